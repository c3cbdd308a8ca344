"""A Llama of any shape with random weights, as a folder that vLLM and transformers load offline.

    python benchmarks/random_llama.py FOLDER --shape tiny
    python benchmarks/random_llama.py FOLDER --shape llama-3.2-1b --device cuda

Speed depends on shapes and not on what was learnt, so a machine without network measures real
scale with these. The tokenizer knows one word a token ("t0" to the last of the vocabulary).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

__all__ = ["SHAPES", "write"]

SHAPES: dict[str, dict[str, Any]] = {
    "tiny": {
        "vocab_size": 1024,
        "hidden_size": 64,
        "intermediate_size": 160,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
        "initializer_range": 0.15,
        "dtype": "float32",
    },
    "llama-3.2-1b": {
        "vocab_size": 128_256,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "max_position_embeddings": 131_072,
        "tie_word_embeddings": True,
        "dtype": "bfloat16",
    },
    "llama-3.1-8b": {
        "vocab_size": 128_256,
        "hidden_size": 4096,
        "intermediate_size": 14_336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131_072,
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
    },
    # 64 layers of this width: 66 GB in bfloat16.
    "llama-33b": {
        "vocab_size": 128_256,
        "hidden_size": 6144,
        "intermediate_size": 20_480,
        "num_hidden_layers": 64,
        "num_attention_heads": 48,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131_072,
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
    },
}
"""Shape of each model: those of the published configurations where the name is a model's."""


def write(folder: Path, shape: str, seed: int = 0, device: str = "cpu", weights: bool = True) -> None:
    """Write config, tokenizer and weights (safetensors) of a random model.

    Args:
        folder: is made; files of the same names are replaced.
        shape: a key of `SHAPES`.
        seed: of the weights, which are normal with the configuration's `initializer_range`.
        device: where the weights are drawn; a large model takes minutes on a CPU.
        weights: False leaves them out, for `vllm serve --load-format dummy`.
    """
    from transformers import LlamaConfig

    folder.mkdir(parents=True, exist_ok=True)
    settings = SHAPES[shape]
    config = LlamaConfig(architectures=["LlamaForCausalLM"], bos_token_id=0, eos_token_id=1, **settings)
    config.save_pretrained(folder)
    _tokenizer(settings["vocab_size"]).save(str(folder / "tokenizer.json"))
    words = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "t0", "eos_token": "t1"}
    longest = {"model_max_length": settings["max_position_embeddings"]}
    (folder / "tokenizer_config.json").write_text(json.dumps(words | longest), encoding="utf-8")
    if weights:
        _weights(config, seed, device).save_pretrained(folder)


def _tokenizer(vocab: int) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {f"t{index}": index for index in range(vocab)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="t2"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer


def _weights(config: Any, seed: int, device: str) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    with torch.device(device):
        return AutoModelForCausalLM.from_config(config, dtype=config.dtype)


def main() -> None:
    """Write the folder that the command line names."""
    parser = argparse.ArgumentParser(description="Write a Llama with random weights.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shape", choices=SHAPES, default="tiny")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--no-weights", action="store_true", help="for --load-format dummy")
    given = parser.parse_args()
    write(given.folder, given.shape, given.seed, given.device, not given.no_weights)


if __name__ == "__main__":
    main()
