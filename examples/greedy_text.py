"""Generate text before and after `strop.apply`: the same text, sooner.

python examples/greedy_text.py MODEL DEPLOYMENT
"""

from __future__ import annotations

import sys
import time

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import strop

PROMPT = "The sea was calm that morning, and the old fisherman"


def generate(model: torch.nn.Module, tokens: torch.Tensor) -> tuple[list[int], float]:
    """Return 64 greedy tokens and how many of them came a second."""
    started = time.perf_counter()
    out = model.generate(tokens, max_new_tokens=64, min_new_tokens=64, do_sample=False)
    return out[0].tolist(), 64 / (time.perf_counter() - started)


def main(name: str, deployment: str) -> int:
    """Compare; exit with 1 when a single token differs."""
    folder = strop.model_folder(name)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokens = tokenizer(PROMPT, return_tensors="pt").input_ids
    with torch.inference_mode():
        generate(model, tokens)  # warm-up
        before, before_tok_s = generate(model, tokens)
        strop.apply(model, deployment)
        generate(model, tokens)
        after, after_tok_s = generate(model, tokens)
    installed = getattr(model, "strop", None)
    print(tokenizer.decode(after, skip_special_tokens=True))
    print(f"original {before_tok_s:.1f} tok/s, applied {after_tok_s:.1f} tok/s", end=", ")
    print(f"version {installed.version[:12]}" if installed else "nothing is live: the original runs")
    print("same greedy text" if before == after else "THE TEXT DIFFERS")
    return 0 if before == after else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
