"""CUDA behind the walls: fork a jailed process, start CUDA in it, compute, fault, and see what is left.

python -m tests.gpu.jailed_cuda        # prints JSON
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from strop.engine import builder, jail


def inside(work: Callable[[], dict[str, Any]], timeout_s: float = 60.0) -> dict[str, Any]:
    """Run `work` in a fresh jailed process; return what it found, and how the process ended."""
    read, write = os.pipe()
    with tempfile.TemporaryDirectory(prefix="strop-cuda-") as made:
        folder = Path(made) / "candidates"
        folder.mkdir()
        folder.chmod(0o777)

        def run(held: list[str]) -> None:
            started = time.perf_counter()
            for name in ("HOME", "TMPDIR", "CUDA_CACHE_PATH", "TRITON_CACHE_DIR", "XDG_CACHE_HOME"):
                os.environ[name] = str(folder)
            held = [*held, *jail.enter(folder)]
            builder.attach(folder, held)
            held += jail.seal(folder)
            jailed = time.perf_counter() - started
            try:
                found = work()
            except BaseException as error:
                found = {"error": f"{type(error).__name__}: {error}"[:500]}
            found |= {"held": held, "jail_s": jailed, "total_s": time.perf_counter() - started}
            os.write(write, json.dumps(found).encode())
            os._exit(0)

        started = time.perf_counter()
        pid = jail.spawn(run)
        os.close(write)
        os.set_blocking(read, False)
        text, until = b"", time.monotonic() + timeout_s
        status = None
        while status is None and time.monotonic() < until:
            done, code = os.waitpid(pid, os.WNOHANG)
            status = code if done else None
            time.sleep(0.005)
        if status is None:
            os.kill(pid, 9)
            status = os.waitpid(pid, 0)[1]
        with os.fdopen(read, "rb") as pipe:
            text = pipe.read() or b"{}"
        return {**json.loads(text), "status": status, "seen_s": time.perf_counter() - started}


def matmul() -> dict[str, Any]:
    """Start CUDA and multiply; the result is known."""
    import torch

    started = time.perf_counter()
    a = torch.ones(512, 512, device="cuda", dtype=torch.bfloat16)
    right = bool((a @ a == 512).all())
    torch.cuda.synchronize()
    return {"right": right, "cuda_s": time.perf_counter() - started, "uid": os.getuid()}


def illegal_address() -> dict[str, Any]:
    """Read far beyond a tensor: a sticky error, after which only the death of the process helps."""
    import torch

    torch.zeros(8, device="cuda")[torch.tensor([1 << 40], device="cuda")].sum().item()
    return {}


def graph() -> dict[str, Any]:
    """Capture a graph and replay it."""
    import torch

    x = torch.ones(256, 256, device="cuda")
    (x @ x).sum()
    torch.cuda.synchronize()
    made = torch.cuda.CUDAGraph()
    with torch.cuda.graph(made):
        y = x @ x
    made.replay()
    torch.cuda.synchronize()
    return {"right": bool((y == 256).all())}


def triton_kernel() -> dict[str, Any]:
    """Compile a Triton kernel: needs a compiler, which only a builder may start."""
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def double(x, n: tl.constexpr):
        at = tl.arange(0, n)
        tl.store(x + at, 2 * tl.load(x + at))

    x = torch.ones(128, device="cuda")
    double[(1,)](x, 128)
    torch.cuda.synchronize()
    return {"right": bool((x == 2).all())}


def main() -> int:
    """Try everything, in fresh processes, and print it."""
    import torch

    jail.prepare()
    found: dict[str, Any] = {
        "command": "python -m tests.gpu.jailed_cuda",
        "kernel": os.uname().release,
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "layers": [layer.name for layer in jail.LAYERS],
    }
    for work in (matmul, graph, illegal_address, matmul, triton_kernel):
        name = work.__name__ if work.__name__ not in found else f"{work.__name__}_after_a_fault"
        found[name] = inside(work)
    found["device"] = torch.cuda.get_device_name()  # only now: a zygote must not touch CUDA
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
