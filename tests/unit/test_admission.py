"""What is refused without running it."""

from __future__ import annotations

import pytest

from strop.core import Candidate, Fault, Reason
from strop.gate.admission import admit, precision, width

GOOD = {"forward.py": "def build(model, ctx):\n    return {}\n", "manifest.toml": 'author = "me"\n'}


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"forward.py": None}, "no forward.py"),
        ({"manifest.toml": None}, "no manifest.toml"),
        ({"forward.py": "def build(model, ctx)\n"}, "forward.py, line 1"),
        ({"forward.py": "x = 1\n"}, "no build"),
        ({"forward.py": "def build(model):\n    pass\n"}, "takes"),
        ({"forward.py": "x = '\0'\n"}, "forward.py"),
        ({"manifest.toml": "author = "}, "manifest.toml"),
        ({"manifest.toml": "autor = 'me'"}, "unknown key 'autor'"),
        ({"manifest.toml": "threads = 'two'"}, "threads must be int"),
        ({"manifest.toml": "precision = 'fp3'"}, "precision must be one of"),
        ({"../evil.py": "x = 1"}, "no file a candidate may have"),
        ({"/etc/evil.py": "x = 1"}, "no file a candidate may have"),
        ({"evil.so": "x"}, "no file a candidate may have"),
        ({"big.py": "#" * (1 << 20)}, "larger than"),
    ],
)
def test_a_bad_candidate_is_refused_with_the_place(files: dict[str, str | None], says: str) -> None:
    merged = {name: text for name, text in {**GOOD, **files}.items() if text is not None}
    with pytest.raises(Fault, match=says) as caught:
        admit(Candidate(merged), allow_precision_change=False)
    assert caught.value.reason is Reason.NOT_ADMITTED
    assert "\n" not in caught.value.detail


def test_a_good_one_is_admitted_and_its_imports_are_named() -> None:
    source = "import ctypes, math\nfrom . import other\n" + GOOD["forward.py"]
    assert "imports to read: ctypes" in admit(Candidate({**GOOD, "forward.py": source}), False)


def test_a_change_of_precision_needs_the_owners_word() -> None:
    lower = Candidate({**GOOD, "manifest.toml": 'precision = "int8"'})
    with pytest.raises(Fault, match="allow_precision_change"):
        admit(lower, False)
    assert admit(lower, True)
    assert precision(lower) == "int8"
    assert precision(Candidate(GOOD)) == "same"
    assert [width(lower, "float32"), width(lower, "bfloat16")] == [0.25, 0.5]
    assert [width(Candidate(GOOD), "float32"), width(lower, "float64")] == [1.0, 0.125]
