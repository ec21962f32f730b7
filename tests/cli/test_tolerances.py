"""What is written after --tolerance and --noise."""

from __future__ import annotations

import pytest

from loadgen.cli.tolerances import noise_from, tolerances_from
from loadgen.scenario import ScenarioError
from loadgen.stats.figures import METRICS, Tolerance


def test_a_tolerance_of_one_metric_comes_before_that_of_all() -> None:
    """Wherever it stands; of latencies the one of all is all there is, of shares the points stay."""
    found = tolerances_from(["ttft_p99=10%,20ms", "3%", "error_rate=0.5pp", "output_tokens_per_s=50/s"])
    assert found["ttft_p99"] == Tolerance(relative=0.1, absolute=0.02)
    assert found["error_rate"] == Tolerance(relative=0.0, absolute=0.005)
    assert found["output_tokens_per_s"] == Tolerance(relative=0.0, absolute=50.0)
    assert found["e2e_mean"] == Tolerance(relative=0.03, absolute=0.0)
    assert found["itl_p99"] == Tolerance(relative=0.03, absolute=0.0)
    assert found["rejection_rate"].absolute == METRICS["rejection_rate"].tolerance.absolute
    assert tolerances_from([]) == {}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("5", "is no share: write a percentage"),
        ("-5%", "is no share: write a percentage"),
        ("nan%", "is no share"),
        ("ttft=5%", "did you mean ttft_p"),
        ("ttft_p99=20", "--tolerance 'ttft_p99=20'"),
        ("ttft_p99=", "--tolerance 'ttft_p99='"),
        ("ttft_p99=5%,6%", "'6%' is its second relative one"),
        ("ttft_p99=20ms,5%,30ms", "'30ms' is its second absolute one"),
        ("9" * 400 + "%", "is not a finite number"),
        ("error_rate=" + "9" * 400 + "pp", "is not a finite number"),
        ("error_rate=20ms", "is not percentage points"),
        ("output_tokens_per_s=fast", "--tolerance 'output_tokens_per_s=fast'"),
    ],
)
def test_a_wrong_tolerance_is_one_clear_line(text: str, what: str) -> None:
    """With the flag, the word and what would be right."""
    with pytest.raises(ScenarioError) as refused:
        tolerances_from([text])
    assert what in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("texts", [["5%", "6%"], ["ttft_p99=5%", "3%", "ttft_p99 = 6%"]])
def test_a_tolerance_is_given_once(texts: list[str]) -> None:
    """Of all metrics, and of each: neither of two is passed over."""
    with pytest.raises(ScenarioError, match="has one already"):
        tolerances_from(texts)


def test_noise_is_a_share() -> None:
    """Of the figure."""
    assert noise_from("1.5%") == pytest.approx(0.015)
    with pytest.raises(ScenarioError, match="--noise: '1' is no share: write a percentage"):
        noise_from("1")
