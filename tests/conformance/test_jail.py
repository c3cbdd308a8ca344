"""What a candidate cannot do, tried from inside a real worker, layer by layer."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from strop import config
from strop.core import Fault, Reason, Tier
from strop.engine import jail
from strop.engine.client import ProcessEngine
from strop.engine.contract import Batch, Role
from strop.engine.jail import mounts
from tests.support.candidates import candidate

HELD = jail.probe()
pytestmark = pytest.mark.skipif(
    bool(jail.missing(HELD)), reason=f"layers missing here: {', '.join(jail.missing(HELD))}"
)
MODELS = {
    "toy": ("strop.engine.toy", "toy"),
    "torch": ("strop.engine.torch.holder", "tests.support.models:tiny_llama"),
}


@pytest.fixture(scope="module", params=MODELS)
def engine(request: pytest.FixtureRequest) -> Iterator[ProcessEngine]:
    holder, model = MODELS[request.param]
    settings = config.Engine(model=model, threads=2, step_timeout_s=30.0, build_timeout_s=120.0)
    with ProcessEngine(holder, settings) as started:
        yield started
        assert started.owner_starts == 1


def told(engine: ProcessEngine, code: str) -> str:
    """Run code in a worker; it reports what `say` got, or the exception's name."""
    lines = [f"        {line}" for line in code.strip().splitlines()]
    source = "\n".join(
        [
            "import os",
            "class Said(Exception): pass",
            "def say(what): raise Said(f'<{what}>')",
            "def build(model, ctx):",
            "    try:",
            *lines,
            "    except Said: raise",
            "    except BaseException as error: say(type(error).__name__ + ' ' + str(error))",
            "    say('allowed')",
        ]
    )
    with pytest.raises(Fault) as caught:
        engine.load(candidate(source), Tier.SLOW)
    detail = caught.value.detail
    assert "<" in detail, detail
    return detail[detail.index("<") + 1 : detail.rindex(">")]


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "journal.db"
    path.write_text("key", encoding="utf-8")
    path.chmod(0o666)
    return path


def test_every_layer_holds_and_is_named(engine: ProcessEngine) -> None:
    assert engine.jail == tuple(layer.name for layer in jail.LAYERS)
    assert engine.describe().jail == engine.jail


@pytest.mark.parametrize(
    "code",
    [
        "os.execv('/bin/true', ['true'])",
        "os.fork()",
        "os.posix_spawn('/bin/true', ['true'], {})",
        "import socket; socket.socket()",
        "import socket; socket.socket(socket.AF_INET6)",
        "import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
        "import socket; socket.socket(socket.AF_UNIX).connect('/run/docker.sock')",
        "open('/proc/sys/kernel/core_pattern', 'w')",
        "import time; time.clock_settime(time.CLOCK_REALTIME, 0)",
        "os.setuid(0)",
        "os.chroot('/')",
        "os.mkdir('/new')",
        "open('/usr/new', 'w')",
        "open('/etc/passwd', 'a')",
        "import ctypes; assert ctypes.CDLL(None).ptrace(16, 1, 0, 0) == 0",
        "import ctypes; assert ctypes.CDLL(None).unshare(0x10000000) == 0",
        "import ctypes; assert ctypes.CDLL(None).syscall(425, 8, 0) >= 0",  # io_uring
        "import ctypes; assert ctypes.CDLL(None).mount(b'x', b'/tmp', b'tmpfs', 0, b'') == 0",
    ],
)
def test_it_may_not(engine: ProcessEngine, code: str) -> None:
    assert told(engine, code).partition(" ")[0] in (
        "PermissionError",
        "OSError",
        "AssertionError",
        "ProcessLookupError",
        "FileNotFoundError",  # a socket that is outside its root
    )


def test_it_sees_no_file_but_the_systems_and_its_own(engine: ProcessEngine, secret: Path) -> None:
    assert told(engine, f"open({str(secret)!r})").startswith("FileNotFoundError")
    # Python itself may lie below /tmp, as a clone made there does.
    known = {Path(path).parts[2] for path in mounts.readable() if path.startswith("/tmp/")}
    seen = set(told(engine, "say(' '.join(os.listdir('/tmp')))").split())
    assert len(seen - known) <= 1, "its own folder"
    assert told(engine, "say(os.path.exists(os.path.expanduser('~root/.ssh')))") == "False"
    folders = told(engine, "say(os.getcwd())")
    assert told(engine, "open('mine', 'w').write('x'); say(open('mine').read())") == "x"
    assert folders.startswith("/")
    repository = Path(__file__).parents[2]
    assert told(engine, f"say(os.path.exists({str(repository / 'README.md')!r}))") == "False"


def test_it_sees_no_process_but_its_own(engine: ProcessEngine) -> None:
    assert told(engine, "say(os.getpid())") == "1"
    pids = told(engine, "say(sorted(int(p) for p in os.listdir('/proc') if p.isdigit()))")
    assert pids == "[1, 2]", "itself, and its builder"
    assert told(engine, "open('/proc/2/mem', 'rb')").startswith("PermissionError")


def test_it_has_no_rights_and_no_user(engine: ProcessEngine) -> None:
    wanted = "('Cap', 'Uid', 'NoNew', 'Seccomp:')"
    status = told(
        engine, f"say(';'.join(x.strip() for x in open('/proc/self/status') if x.startswith({wanted})))"
    )
    fields = dict(line.split(":\t", 1) for line in status.split(";"))
    assert all(int(fields[name], 16) == 0 for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb", "CapInh"))
    assert set(fields["Uid"].split()) == {"65534"}
    assert fields["NoNewPrivs"] == "1"
    assert fields["Seccomp"] == "2"


def test_it_holds_only_its_own_descriptors(engine: ProcessEngine) -> None:
    code = """
fds = [f'/proc/self/fd/{n}' for n in range(3, 64)]
say([os.readlink(fd) for fd in fds if os.path.lexists(fd)])
"""
    found = told(engine, code)
    assert found.count("socket:") == 2, found
    assert "memfd" not in found
    assert "pipe" not in found


def test_threads_go_on_working(engine: ProcessEngine) -> None:
    code = "import threading; t = threading.Thread(target=lambda: None); t.start(); t.join(); say('joined')"
    assert told(engine, code) == "joined"


def test_a_compiler_works_through_the_builder(engine: ProcessEngine) -> None:
    code = """
import subprocess, ctypes
open('a.c', 'w').write('int seven(void) { return 7; }')
subprocess.run(['cc', '-shared', '-fPIC', 'a.c', '-o', 'a.so'], check=True)
say(ctypes.CDLL(os.path.abspath('a.so')).seven())
"""
    assert told(engine, code) == "7"


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("say(run(['cat'], input=b'ab', stdout=-1).stdout)", "b'ab'"),
        ("say(subprocess.check_output('echo $((6*7))', shell=True, text=True).strip())", "42"),
        ("say(run(['false']).returncode)", "1"),
        ("run(['no-such-program'])", "FileNotFoundError"),
        ("subprocess.check_call(['false'])", "CalledProcessError"),
        ("run(['sleep', '60'], timeout=0.2)", "TimeoutExpired"),
        ("say(subprocess.Popen(['echo', 'x'], stdout=-1, text=True).stdout.read().strip())", "x"),
        ("run(['true'], preexec_fn=print)", "ValueError"),
        ("say(run(['sh', '-c', 'echo a; echo b >&2'], stdout=-1, stderr=-2).stdout)", "b'a"),
    ],
)
def test_subprocess_looks_as_it_always_did(engine: ProcessEngine, code: str, says: str) -> None:
    assert told(engine, f"import subprocess; run = subprocess.run; {code}").startswith(says)


def test_the_builder_has_walls_too(engine: ProcessEngine, secret: Path) -> None:
    def run(command: str) -> str:
        done = f"subprocess.run({command!r}, shell=True, stdout=-1, stderr=-2, text=True).stdout"
        return told(engine, f"import subprocess; say({done}.strip())")

    assert "No such file" in run(f"cat {secret}")
    assert any(word in run("touch /usr/x") for word in ("Read-only", "denied"))
    assert "not permitted" in run(f"{sys.executable} -c 'import socket; socket.socket()' 2>&1 | tail -1")
    assert run("id -u") == "65534"


def test_what_a_program_leaves_running_is_killed(engine: ProcessEngine) -> None:
    code = """
import subprocess, time
subprocess.run('setsid sleep 1000 & setsid sleep 1001 &', shell=True)
for _ in range(100):  # the kernel needs a moment to bury them
    pids = sorted(int(p) for p in os.listdir('/proc') if p.isdigit())
    if pids == [1, 2]:
        break
    time.sleep(0.01)
say(pids)
"""
    assert told(engine, code) == "[1, 2]"


def test_nothing_is_left_after_many_respawns(engine: ProcessEngine) -> None:
    owner = engine._process.pid
    before = state(owner)
    for _ in range(10):
        engine.replace(Role.ACTIVE)
    engine.measure(probe(engine))
    assert state(owner) == before


def state(owner: int) -> tuple[int, int, int, int]:
    """Children, descriptors, mounts and folders of an owner."""
    children = Path(f"/proc/{owner}/task/{owner}/children").read_text(encoding="ascii").split()
    mounts = Path(f"/proc/{owner}/mounts").read_text(encoding="ascii").count("\n")
    folders = len(list(Path(os.environ.get("TMPDIR", "/tmp")).glob("strop-worker-*")))
    return len(children), len(os.listdir(f"/proc/{owner}/fd")), mounts, folders


def probe(engine: ProcessEngine) -> Batch:
    return Batch(prompts=((1, 2, 3),), steps=2)


def test_workers_die_with_their_owner() -> None:
    with ProcessEngine("strop.engine.toy", config.Engine(model="toy")) as engine:
        engine.replace(Role.ACTIVE)
        owner = engine._process.pid
        workers = Path(f"/proc/{owner}/task/{owner}/children").read_text(encoding="ascii").split()
        below = [Path(f"/proc/{w}/task/{w}/children").read_text(encoding="ascii").split() for w in workers]
        every = [*workers, *(pid for pids in below for pid in pids)]
        assert len(every) >= 2, "a worker and its builder"
        os.kill(owner, signal.SIGKILL)
        engine._process.wait()
        until = time.monotonic() + 2
        while alive(every) and time.monotonic() < until:
            time.sleep(0.01)
        assert alive(every) == []


def alive(pids: list[str]) -> list[str]:
    """Those that are there and no zombies."""
    found = []
    for pid in pids:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
        except OSError:
            continue
        if stat.rpartition(")")[2].split()[0] not in "ZX":
            found.append(pid)
    return found


@pytest.mark.parametrize("layer", [layer.name for layer in jail.LAYERS if layer.enter])
def test_a_layer_that_cannot_be_entered_is_missed(layer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError("not here")

    layers = []
    for known in jail.LAYERS:
        enter = refused if known.name == layer else known.enter
        layers.append(jail.Layer(known.name, known.meaning, known.mend, enter, known.last))
    monkeypatch.setattr(jail, "LAYERS", tuple(layers))
    assert layer in jail.missing(jail.probe())


def test_a_bomb_is_contained(engine: ProcessEngine) -> None:
    """Memory without end is refused by the kernel, for this worker alone."""
    greedy = candidate("def build(model, ctx):\n    return bytearray(1 << 36)\n")
    with pytest.raises(Fault) as caught:
        engine.load(greedy, Tier.SLOW)
    assert caught.value.reason is Reason.OOM
