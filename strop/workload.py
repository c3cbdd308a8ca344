"""Prompts for a workload: windows of real text, cut where a secret seed says.

The candidate must not foresee what it will be measured on, so every offset comes from
HMAC-SHA256 under the judge's seed, stretched by SHAKE-256. The last fifth of the text is cut only
for held-out prompts, the rest only for the others.
"""

from __future__ import annotations

import gzip
import hashlib
import hmac
import zlib
from functools import lru_cache
from importlib import resources
from pathlib import Path

from strop.core import StropError, TokenSource

__all__ = ["HELD_OUT", "Prompts", "Window"]

HELD_OUT = 0.2
"""Share of the text, at its end, that only held-out prompts are cut from."""

Window = tuple[int, ...]
"""Token ids of one prompt."""


class Prompts:
    """Token ids to measure with: of real text, or random ones that are labelled so."""

    def __init__(
        self,
        tokenizer: str,
        vocab: int,
        text: str = "",
        tokens: TokenSource = TokenSource.REAL,
    ) -> None:
        """Tokenize the text once; no special tokens are added.

        Args:
            tokenizer: Path of a tokenizer.json; not read for synthetic tokens.
            vocab: Token ids that the model knows: 0 to vocab - 1.
            text: Path of a UTF-8 text, plain or gzipped; empty for the one strop ships.
            tokens: Real text, or synthetic: uniformly random ids.

        Raises:
            StropError: no tokenizer, an unreadable text or tokenizer, ids the model lacks.
        """
        if vocab < 1:
            raise StropError(f"a vocabulary of at least 1 token is expected, got {vocab}")
        self.source = tokens
        self.vocab = vocab
        self.text = text or "the text that strop ships"
        self._ids: Window = ()
        if tokens is TokenSource.REAL:
            self._ids = _tokenized(tokenizer, text)
            self._refuse_foreign(tokenizer)
        self._split = len(self._ids) - int(len(self._ids) * HELD_OUT)

    def draw(self, length: int, batch: int, seed: int | bytes, held_out: bool = False) -> tuple[Window, ...]:
        """Return `batch` windows of `length` tokens at offsets that follow from the seed.

        Windows may overlap one another, but never the part of the text that the other value of
        `held_out` draws from.

        Raises:
            StropError: `length` or `batch` is below 1, or the part of the text is shorter.
        """
        _check(length=length, batch=batch)
        key = _key(seed, "draw", length, batch, held_out)
        if self.source is TokenSource.SYNTHETIC:
            return self._random(key, length, batch)
        start, end = self._part(held_out)
        if length > end - start:
            raise self._too_short(held_out, length)
        offsets = _uniform(key, batch, end - start - length + 1)
        return tuple(self._ids[start + at : start + at + length] for at in offsets)

    def teacher_forced(
        self, positions: int, length: int, seed: int | bytes, held_out: bool = False
    ) -> list[Window]:
        """Return disjoint windows of `length` tokens that hold at least `positions` tokens.

        Each token is one position: its row of logits is compared. The next token, where there
        is one, is its label, so a window has `length` - 1 labels.

        Raises:
            StropError: `positions` or `length` is below 1, or the part of the text is shorter.
        """
        _check(positions=positions, length=length)
        count = -(-positions // length)
        key = _key(seed, "forced", length, count, held_out)
        if self.source is TokenSource.SYNTHETIC:
            return list(self._random(key, length, count))
        start, end = self._part(held_out)
        slots = (end - start) // length
        if count > slots:
            raise self._too_short(held_out, count * length)
        spare, *ranks = _uniform(key, 1 + slots, 1 << 62)
        start += spare % (end - start - slots * length + 1)
        chosen = sorted(range(slots), key=ranks.__getitem__)[:count]
        return [self._ids[start + i * length : start + (i + 1) * length] for i in chosen]

    def _part(self, held_out: bool) -> tuple[int, int]:
        return (self._split, len(self._ids)) if held_out else (0, self._split)

    def _random(self, key: bytes, length: int, batch: int) -> tuple[Window, ...]:
        ids = _uniform(key, length * batch, self.vocab)
        return tuple(tuple(ids[i * length : (i + 1) * length]) for i in range(batch))

    def _too_short(self, held_out: bool, needed: int) -> StropError:
        start, end = self._part(held_out)
        part = "held-out part" if held_out else "part that is not held out"
        return StropError(
            f"{self.text}: its {part} has {end - start} tokens, {needed} are needed; name a longer "
            "text in traffic.text, or lower traffic.max_isl or policy.positions"
        )

    def _refuse_foreign(self, tokenizer: str) -> None:
        if (top := max(self._ids)) >= self.vocab:
            raise StropError(
                f"{tokenizer}: gives token {top}, but the model knows only 0 to {self.vocab - 1}; "
                "this tokenizer belongs to another model"
            )


def _check(**counts: int) -> None:
    for name, value in counts.items():
        if value < 1:
            raise StropError(f"{name}: at least 1 is expected, got {value}")


def _key(seed: int | bytes, *labels: object) -> bytes:
    if isinstance(seed, int):
        # The prefix keeps the integer 1 apart from the bytes 01.
        seed = b"int:%d" % seed
    return hmac.digest(seed, repr(labels).encode(), "sha256")


def _uniform(key: bytes, count: int, below: int) -> list[int]:
    """Return `count` integers in [0, below). The bias of the remainder is below 2**-64."""
    stream = hashlib.shake_256(key).digest(16 * count)
    return [int.from_bytes(stream[i : i + 16], "big") % below for i in range(0, len(stream), 16)]


def _tokenized(tokenizer: str, text: str) -> Window:
    if not tokenizer:
        raise StropError('the model has no tokenizer.json; add one, or set traffic.tokens = "synthetic"')
    return _encoded(_read_text(text), text or "the text that strop ships", Path(tokenizer))


def _read_text(text: str) -> str:
    try:
        data = Path(text).read_bytes() if text else _shipped()
        if data.startswith(b"\x1f\x8b"):
            data = gzip.decompress(data)
        decoded = data.decode("utf-8-sig")
    except FileNotFoundError:
        raise StropError(f"{text}: no such text file; see traffic.text") from None
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise StropError(f"{text}: not a readable UTF-8 text: {error}") from None
    if not decoded.strip():
        raise StropError(f"{text}: empty; prompts cannot be cut from it")
    return decoded


def _shipped() -> bytes:
    return (resources.files("strop") / "data" / "shakespeare.txt.gz").read_bytes()


@lru_cache(maxsize=2)
def _encoded(text: str, name: str, tokenizer: Path) -> Window:
    from tokenizers import Tokenizer

    try:
        rules = Tokenizer.from_file(str(tokenizer))
    except Exception as error:  # The library raises nothing narrower.
        detail = " ".join(str(error).split())
        raise StropError(f"{tokenizer}: not a readable tokenizer.json: {detail}") from None
    # A tokenizer.json may cut or pad what it encodes.
    rules.no_truncation()
    rules.no_padding()
    ids = tuple(rules.encode(text, add_special_tokens=False).ids)
    if not ids:
        raise StropError(f"{name}: the tokenizer makes no tokens of it")
    return ids
