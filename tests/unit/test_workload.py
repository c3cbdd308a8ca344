"""Prompts: real windows, secret offsets, and a held-out part that nothing else touches."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strop.core import StropError, TokenSource
from strop.workload import Prompts

VOCAB = 1200
SYNTHETIC = Prompts("", 50, tokens=TokenSource.SYNTHETIC)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a tokenizer.json whose word w7 is token 7, and which cuts and pads by default."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = {f"w{i}": i for i in range(VOCAB - 2)} | {"[UNK]": VOCAB - 2, "[BOS]": VOCAB - 1}
    rules = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    rules.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    rules.post_processor = processors.TemplateProcessing(
        single="[BOS] $A", special_tokens=[("[BOS]", VOCAB - 1)]
    )
    rules.enable_truncation(16)
    rules.enable_padding(length=4096)
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    rules.save(str(path))
    return str(path)


@pytest.fixture(scope="module")
def prompts(tokenizer: str) -> Prompts:
    """Return prompts from a text whose token at place n is n: 800 to cut, 200 held out."""
    text = Path(tokenizer).parent / "text.txt"
    text.write_text(" ".join(f"w{i}" for i in range(1000)))
    return Prompts(tokenizer, VOCAB, str(text))


def _is_run(window: tuple[int, ...]) -> bool:
    return list(window) == list(range(window[0], window[0] + len(window)))


@settings(max_examples=60, deadline=None)
@given(length=st.integers(1, 200), batch=st.integers(1, 9), seed=st.integers() | st.binary(max_size=40))
def test_windows_are_real_and_parts_disjoint(
    prompts: Prompts, length: int, batch: int, seed: int | bytes
) -> None:
    for held_out, part in ((False, range(800)), (True, range(800, 1000))):
        windows = prompts.draw(length, batch, seed, held_out)
        assert [len(w) for w in windows] == [length] * batch
        for window in windows:
            assert _is_run(window)
            assert window[0] in part
            assert window[-1] in part


def test_the_seed_alone_decides(prompts: Prompts) -> None:
    assert prompts.source is TokenSource.REAL
    assert prompts.draw(10, 3, 7) == prompts.draw(10, 3, 7)
    keys: list[int | bytes] = [7, 8, -7, b"7", b"\x07", b"int:9", 2**70]
    drawn = {prompts.draw(10, 4, key) for key in keys}
    assert len(drawn) == len(keys)
    # A longer prompt is no extension of a shorter one under the same seed.
    starts = [w[0] for w in prompts.draw(10, 8, 7)]
    assert starts != [w[0] for w in prompts.draw(11, 8, 7)]
    # Pinned: a record made today must be drawn again tomorrow, on any machine.
    assert [w[0] for w in prompts.draw(10, 3, b"pinned")] == [503, 164, 221]


def test_offsets_spread_over_the_whole_part(prompts: Prompts) -> None:
    starts = [w[0] for w in prompts.draw(1, 4000, 3)]
    tenths = [sum(80 * i <= s < 80 * (i + 1) for s in starts) for i in range(10)]
    assert min(tenths) > 320  # 400 expected, standard deviation 19
    assert max(tenths) < 480
    assert {w[0] for w in prompts.draw(199, 200, 3, held_out=True)} == {800, 801}


@pytest.mark.parametrize(("held_out", "part"), [(False, range(800)), (True, range(800, 1000))])
def test_teacher_forced_windows_are_disjoint(prompts: Prompts, held_out: bool, part: range) -> None:
    windows = prompts.teacher_forced(150, 16, 5, held_out)
    assert len(windows) == 10
    assert all(_is_run(w) and len(w) == 16 for w in windows)
    places = [place for w in windows for place in w]
    assert len(set(places)) == 160
    assert set(places) <= set(part)
    assert windows == prompts.teacher_forced(150, 16, 5, held_out)
    assert windows != prompts.teacher_forced(150, 16, 6, held_out)
    assert prompts.teacher_forced(200, 200, 5, True) == [tuple(range(800, 1000))]


def test_too_short_a_text_says_what_to_do(prompts: Prompts) -> None:
    with pytest.raises(StropError, match=r"held-out part has 200 tokens, 201 are needed"):
        prompts.draw(201, 1, 0, held_out=True)
    with pytest.raises(StropError, match=r"not held out has 800 tokens, 801 .*traffic\.text"):
        prompts.draw(801, 1, 0)
    with pytest.raises(StropError, match=r"200 tokens, 208 .*policy\.positions"):
        prompts.teacher_forced(201, 16, 0, held_out=True)


@pytest.mark.parametrize("source", ["real", "synthetic"])
def test_counts_below_one(prompts: Prompts, source: str) -> None:
    some = prompts if source == "real" else SYNTHETIC
    with pytest.raises(StropError, match="length: at least 1"):
        some.draw(0, 1, 0)
    with pytest.raises(StropError, match="batch: at least 1"):
        some.draw(1, 0, 0)
    with pytest.raises(StropError, match="positions: at least 1"):
        some.teacher_forced(0, 1, 0)


def test_synthetic_ids_fill_the_vocabulary() -> None:
    assert SYNTHETIC.source is TokenSource.SYNTHETIC
    windows = SYNTHETIC.draw(1000, 3, 1)
    assert [len(w) for w in windows] == [1000] * 3
    assert {i for w in windows for i in w} == set(range(50))
    assert len(set(windows)) == 3
    assert windows == SYNTHETIC.draw(1000, 3, 1)
    assert windows != SYNTHETIC.draw(1000, 3, 1, held_out=True)
    assert [len(w) for w in SYNTHETIC.teacher_forced(25, 10, 1)] == [10, 10, 10]


def test_the_shipped_text(tokenizer: str) -> None:
    shipped = Prompts(tokenizer, VOCAB)
    # Every word is unknown to this tokenizer: what counts is that there are enough of them.
    assert set(shipped.draw(1000, 1, 0)[0]) == {VOCAB - 2}
    assert sum(map(len, shipped.teacher_forced(20_000, 256, 0, held_out=True))) >= 20_000
    assert len(shipped.draw(32_000, 1, 0, held_out=True)[0]) == 32_000


def test_gzipped_text_with_a_byte_order_mark(tokenizer: str, tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbf" + b"w1 " * 10))
    assert Prompts(tokenizer, VOCAB, str(path)).draw(8, 1, 0) == ((1,) * 8,)


def test_an_edited_text_is_read_again(tokenizer: str, tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    for word in (1, 2):
        path.write_text(f"w{word} " * 10)
        assert Prompts(tokenizer, VOCAB, str(path)).draw(8, 1, 0) == ((word,) * 8,)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (b"\xff\xfe\x00", "not a readable UTF-8 text"),
        (b"\x1f\x8bxx", "not a readable UTF-8 text"),
    ],
)
def test_bad_texts(tokenizer: str, tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "text"
    path.write_bytes(content)
    with pytest.raises(StropError, match=expected) as raised:
        Prompts(tokenizer, VOCAB, str(path))
    assert str(path) in str(raised.value)


def test_bad_tokenizers(tokenizer: str, tmp_path: Path) -> None:
    with pytest.raises(StropError, match=r'no tokenizer\.json; .*"synthetic"'):
        Prompts("", VOCAB)
    with pytest.raises(StropError, match=r"not a readable tokenizer\.json"):
        Prompts(str(tmp_path / "none.json"), VOCAB)
    broken = tmp_path / "tokenizer.json"
    broken.write_text(json.dumps({"model": "none"}))
    with pytest.raises(StropError, match=r"not a readable tokenizer\.json"):
        Prompts(str(broken), VOCAB)
    with pytest.raises(StropError, match=r"gives token 1198, .* only 0 to 99; .*another model"):
        Prompts(tokenizer, 100)
    with pytest.raises(StropError, match="no such text file"):
        Prompts(tokenizer, VOCAB, str(tmp_path / "none.txt"))
    with pytest.raises(StropError, match="vocabulary of at least 1"):
        Prompts("", 0, tokens=TokenSource.SYNTHETIC)
