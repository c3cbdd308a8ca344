"""How often the judge is wrong about speed: a smoke run of benchmarks/judge_power.py."""

from __future__ import annotations

import pytest

from benchmarks import judge_power as power


def statuses(policy: str, noise: str, gain: float, count: int, *, final: bool) -> list[str]:
    found = [
        power.simulated(power.POLICIES[policy], power.NOISE[noise], seed, gain=gain, final=final)
        for seed in range(count)
    ]
    return [one.status for one in found]


@pytest.mark.parametrize("final", [False, True], ids=["search", "confirmation"])
@pytest.mark.parametrize("policy", power.POLICIES)
@pytest.mark.parametrize("noise", power.NOISE)
def test_the_same_code_is_not_accepted_on_a_simulated_clock(policy: str, noise: str, final: bool) -> None:
    assert "passed" not in statuses(policy, noise, 0.0, 12, final=final)


@pytest.mark.parametrize("final", [False, True], ids=["search", "confirmation"])
def test_a_true_gain_of_two_percent_is_found_by_the_default_policy(final: bool) -> None:
    assert statuses("default", "3 %", power.GAIN, 20, final=final).count("passed") >= 19


def test_the_same_code_is_not_accepted_beside_a_load() -> None:
    policy = power.config.Policy(numerics="bit_exact", pairs_slow=16, patience_s=5.0)
    with power.load(True), power.engine(0, policy) as judge:
        found = [power.compare(judge, power.named(power.SAME, n), final=False) for n in range(2)]
    assert [one.status == "passed" for one in found] == [False, False]
    assert len({power.named(power.SAME, n).id for n in range(2)}) == 2
