"""The picture of ratios: marks where the figures say, hollow where they are simulated."""

from __future__ import annotations

from typing import Any

import pytest

from loadgen.charts.comparison import ratios
from loadgen.charts.picture import Picture, rows, svg
from loadgen.compare import Comparison, compare
from loadgen.stats.summary import Interval, Summary
from tests.report.summaries import distribution, metrics, summary


def run(e2e_s: float, low: float | None = None, high: float | None = None, **changes: Any) -> Summary:
    sure = Interval(low=low, high=high, decided=low is not None)
    e2e = distribution(e2e_s / 4.5, intervals={"p99": sure})
    return summary(metrics=metrics(e2e_s=e2e), **changes)


def compared(**variants: Summary) -> Comparison:
    return compare(variants, dict.fromkeys(variants, "5f" * 32))


def drawn(**variants: Summary) -> Picture:
    picture = ratios(compared(**variants))
    assert picture is not None
    return picture


def marks(picture: Picture, figure: str) -> list[dict[str, Any]]:
    return [row for row in rows(picture.data["ratios"]) if row["figure"] == figure]


def test_each_variant_is_marked_at_its_ratio_and_the_baseline_is_none_of_them() -> None:
    """2 s and 8 s against 4 s: a half and twice, the first within [0.4, 0.6] and 3 % of noise in each run."""
    picture = drawn(base=run(4, 4, 4), fast=run(2, 1.6, 2.4), slow=run(8))
    fast, slow = marks(picture, "E2E p99 adjusted ↓")
    assert (fast["variant"], fast["ratio"], fast["low"], fast["high"]) == ("fast", 0.5, 0.393813, 0.611373)
    assert (slow["variant"], slow["ratio"], slow["low"], slow["high"]) == ("slow", 2, None, None)
    assert [*picture.series] == ["fast", "slow"]
    assert "fast 0.500x [0.393, 0.612]; slow 2.00x" in picture.says


def test_a_simulated_variant_is_named_so_wherever_it_stands() -> None:
    """In title, legend, table and words; the measured one beside it is not."""
    picture = drawn(model=run(4, source="virtual"), server=run(2), other=run(3, source="virtual"))
    assert picture.title == "Ratios to model (SIMULATED)"
    assert [*picture.series] == ["server", "other (SIMULATED)"]
    assert {row["source"] for row in rows(picture.data["ratios"])} == {"http", "virtual"}
    assert "Hollow marks are simulated" in picture.says
    assert "Hollow" not in drawn(a=run(4), b=run(2)).says


def test_a_bound_without_an_end_goes_to_the_edge_of_the_picture() -> None:
    """A p99 that may be any amount later, beside one of twice the baseline's."""
    picture = drawn(base=run(4, 4, 4), b=run(4, 3, None), c=run(8))
    open_, known = marks(picture, "E2E p99 adjusted ↓")
    assert (open_["low"], open_["sure"]) == (0.740866, "[0.740, ∞)")
    assert open_["high"] > known["ratio"]


def test_a_ratio_of_a_million_does_not_make_the_others_one_line() -> None:
    """It is drawn at the edge, and its figure is said."""
    million = marks(drawn(base=run(4), b=run(4e6)), "E2E p99 adjusted ↓")[0]
    assert million["ratio"] < 2
    assert million["said"] == "1,000,000x"


def test_what_got_worse_is_told_from_what_got_better() -> None:
    """Half the latency is better, twice is worse, and half the throughput is worse too."""
    picture = drawn(base=run(4), b=run(2, makespan_output_tokens_per_s=452.6), c=run(8))
    assert [mark["change"] for mark in marks(picture, "E2E p99 adjusted ↓")] == ["better", "worse"]
    assert [mark["change"] for mark in marks(picture, "makespan throughput ↑")] == ["worse", "equal"]
    assert "dashes are for the worse" in picture.says
    assert "stroke-dasharray" in svg(picture)


def test_without_any_ratio_there_is_no_picture() -> None:
    """Nothing was answered on either side."""
    none = summary(metrics={}, makespan_s=None, makespan_output_tokens_per_s=None, completed_rps=None)
    assert ratios(compared(a=none, b=none)) is None


def test_no_two_of_seventeen_variants_have_one_mark() -> None:
    """By ink and shape together: there are eight of the one and seven of the other."""
    picture = drawn(**{f"v{i}": run(1 + i) for i in range(18)})
    shapes = next(
        layer["encoding"]["shape"]["scale"] for layer in picture.spec["layer"] if "shape" in layer["encoding"]
    )
    marks = {*zip(picture.series.values(), shapes["range"], strict=True)}
    assert len(marks) == 17


def test_nine_variants_can_be_drawn() -> None:
    """More than there are shapes and inks; no colour is left unknown."""
    shown = svg(drawn(**{f"v{i}": run(1 + i, source="virtual" if i % 2 else "http") for i in range(10)}))
    assert "var(--" not in shown
    assert "v9 (SIMULATED)" in shown


@pytest.mark.parametrize("e2e_s", [4.0, 1e-6])
def test_two_variants_can_be_drawn(e2e_s: float) -> None:
    """Alike, or as far apart as can be."""
    assert "E2E p99 adjusted" in svg(drawn(a=run(4), b=run(e2e_s)))
