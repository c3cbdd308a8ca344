"""Whether outputs are as good as the baseline's: arithmetic with known answers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from strop.core import Fault, Reason
from strop.gate import numerics

Rows = npt.NDArray[np.generic]
RNG = np.random.default_rng(0)
R = RNG.normal(0, 3, (400, 50))
B = (R + RNG.normal(0, 1e-5, R.shape)).astype(np.float32)


def judged(candidate: Rows, baseline: Rows = B) -> list[str]:
    evidence = numerics.Evidence()
    numerics.observe(evidence, R, baseline, candidate, [3] * 399)
    return [check.name for check in numerics.judge(evidence)]


def refused(candidate: Rows) -> Fault:
    with pytest.raises(Fault) as caught:
        judged(candidate)
    return caught.value


def test_other_rounding_of_the_same_size_passes() -> None:
    other = (R + RNG.normal(0, 1e-5, R.shape)).astype(np.float32)
    assert judged(other) == ["error", "divergence", "greedy", "perplexity"]


def test_twice_the_error_does_not() -> None:
    fault = refused((R + RNG.normal(0, 2e-5, R.shape)).astype(np.float32))
    assert fault.reason is Reason.NUMERICS
    assert "median 1.99" in fault.detail


def test_a_few_very_wrong_rows_show_in_the_tail() -> None:
    wrong = B.copy()
    wrong[::30] += RNG.normal(0, 1e-3, wrong[::30].shape).astype(np.float32)
    assert "p97.5" in refused(wrong).detail or "tail" in refused(wrong).detail


def test_a_constant_output_does_not_pass() -> None:
    assert refused(np.zeros_like(B)).reason is Reason.NUMERICS


def test_nan_is_named_with_its_rows() -> None:
    broken = B.copy()
    broken[[3, 7], 5] = np.nan
    fault = refused(broken)
    assert fault.reason is Reason.NONFINITE
    assert "2 of 400 rows" in fault.detail


def test_another_shape_is_named() -> None:
    assert refused(B[:, :-1]).reason is Reason.SHAPE


def test_the_error_by_hand() -> None:
    evidence = numerics.Evidence()
    r = np.array([[3.0, 4.0]])
    numerics.observe(evidence, r, np.array([[3.5, 4.0]]), np.array([[3.0, 5.0]]), [1])
    assert evidence.joined("error_b").tolist() == [0.1]
    assert evidence.joined("error_c").tolist() == [0.2]
    assert evidence.joined("margin").tolist() == [1.0]
    assert evidence.joined("nll_b")[0] == pytest.approx(np.log(1 + np.exp(-0.5)))
    p = np.exp([3.0, 4.0]) / np.exp([3.0, 4.0]).sum()
    q = np.exp([3.0, 5.0]) / np.exp([3.0, 5.0]).sum()
    assert evidence.joined("kl_c")[0] == pytest.approx((p * np.log(p / q)).sum())


def test_slabs_do_not_change_the_answer() -> None:
    whole, parts = numerics.Evidence(), numerics.Evidence()
    numerics.observe(whole, R, B, B, [1] * 399)
    for start in range(0, 400, 100):
        rows = slice(start, start + 100)
        numerics.observe(parts, R[rows], B[rows], B[rows], [1] * (99 if start == 300 else 100))
    for name in ("error_c", "kl_c", "nll_c", "margin"):
        np.testing.assert_array_equal(whole.joined(name), parts.joined(name))


def test_an_opted_in_precision_must_keep_tokens_and_perplexity() -> None:
    evidence = numerics.Evidence()
    numerics.observe(evidence, R, B, (R + RNG.normal(0, 1e-3, R.shape)).astype(np.float32), [3] * 399)
    assert [c.name for c in numerics.judge_precision(evidence)] == ["greedy", "perplexity"]
    coarse = numerics.Evidence()
    numerics.observe(coarse, R, B, (R + RNG.normal(0, 1.0, R.shape)).astype(np.float32), [3] * 399)
    with pytest.raises(Fault) as caught:
        numerics.judge_precision(coarse)
    assert caught.value.reason is Reason.QUALITY


def test_bit_exact_means_bits() -> None:
    assert numerics.bit_exact([B], [B], [B.copy()]).passed
    off = B.copy()
    off[0, 0] = np.nextafter(off[0, 0], np.float32(9))
    with pytest.raises(Fault, match="differ from the baseline"):
        numerics.bit_exact([B], [B], [off])


def test_a_baseline_that_does_not_repeat_is_its_own_bound() -> None:
    again = B + np.float32(1e-3)
    assert "not deterministic" in numerics.bit_exact([B], [again], [B + np.float32(5e-4)]).measured
    with pytest.raises(Fault):
        numerics.bit_exact([B], [again], [B + np.float32(1e-2)])
