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


def judged(candidate: Rows, baseline: Rows = B) -> dict[str, str]:
    """What the tests measured that say no."""
    evidence = numerics.Evidence()
    numerics.observe(evidence, R, baseline, candidate, [3] * 399)
    checks = numerics.judge(evidence)
    assert [c.name for c in checks] == ["error", "divergence", "greedy", "perplexity"]
    return {check.name: check.measured for check in checks if not check.passed}


def refused(candidate: Rows) -> Fault:
    with pytest.raises(Fault) as caught:
        judged(candidate)
    return caught.value


def test_other_rounding_of_the_same_size_passes() -> None:
    assert judged((R + RNG.normal(0, 1e-5, R.shape)).astype(np.float32)) == {}


def test_twice_the_error_does_not() -> None:
    assert "median 1.99" in judged((R + RNG.normal(0, 2e-5, R.shape)).astype(np.float32))["error"]


def test_a_few_very_wrong_rows_show_in_the_tail() -> None:
    wrong = B.copy()
    wrong[::30] += RNG.normal(0, 1e-3, wrong[::30].shape).astype(np.float32)
    evidence = numerics.Evidence()
    numerics.observe(evidence, R, B, wrong)
    median, tail, worst = numerics.error_ratios(evidence)
    assert median < 1.05
    assert min(tail, worst) > 50


def test_one_wrong_row_in_four_hundred_is_the_worst_one() -> None:
    wrong = B.copy()
    wrong[7] += RNG.normal(0, 1e-4, wrong[7].shape).astype(np.float32)
    found = judged(wrong)["error"]
    assert "median 1.00" in found


def test_a_constant_output_does_not_pass() -> None:
    assert {"error", "divergence", "greedy"} <= set(judged(np.zeros_like(B)))


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
    assert quality(evidence) == [True, True]
    coarse = numerics.Evidence()
    numerics.observe(coarse, R, B, (R + RNG.normal(0, 1.0, R.shape)).astype(np.float32), [3] * 399)
    assert quality(coarse) == [False, False]


def quality(evidence: numerics.Evidence) -> list[bool]:
    policy = numerics.POLICY
    perplexity = numerics.perplexity(evidence, policy.quality_perplexity)
    return [numerics.agreement(evidence, policy).passed, perplexity.passed]


def test_bit_exact_means_bits() -> None:
    assert numerics.bit_exact([B], [B], [B.copy()]).passed
    off = B.copy()
    off[0, 0] = np.nextafter(off[0, 0], np.float32(9))
    found = numerics.bit_exact([B], [B], [off])
    assert not found.passed
    assert "1 bytes differ from the baseline" in found.measured
    assert not numerics.bit_exact([B], [B], [B.astype(np.float64)]).passed


def test_a_baseline_that_does_not_repeat_is_its_own_bound() -> None:
    again = B + np.float32(1e-3)
    assert "not deterministic" in numerics.bit_exact([B], [again], [B + np.float32(5e-4)]).measured
    assert not numerics.bit_exact([B], [again], [B + np.float32(1e-2)]).passed
