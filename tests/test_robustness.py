"""The benchmark of long and large runs: its arithmetic, and the report that it makes of what parts found."""

from __future__ import annotations

import json
import re
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.bench import robustness
from tests.bench.robustness import PARTS, Part
from tests.bench.server import Server
from tests.bench.soak import slope, under_load
from tests.bench.streams import opening
from tests.bench.watch import CLIENT, SERVER, Sample, Watch, curve

SAMPLE = Sample(0.0, CLIENT, rss_mb=80.0, descriptors=12, threads=1, cpu_s=0.0, written_mb=0.0)


def over(seconds: int, mb_per_hour: float, noise_mb: float = 0.0) -> list[Sample]:
    """A look a second at a process that grows."""
    noise = np.random.default_rng(3).normal(0, noise_mb, seconds)
    return [
        replace(SAMPLE, at_s=float(i), rss_mb=80 + mb_per_hour * i / 3600 + noise[i]) for i in range(seconds)
    ]


def test_growth_is_told_of_the_last_minutes_alone() -> None:
    """36 MB an hour for 100 s and 7.2 from then on are 7.2, exactly where nothing else moves."""
    found = slope([*over(100, 36), *(replace(s, at_s=s.at_s + 100) for s in over(400, 7.2))])
    assert found is not None
    assert (found.per_hour, found.low, found.high) == pytest.approx((7.2, 7.2, 7.2))
    assert not found.is_flat


@pytest.mark.parametrize(
    ("mb_per_hour", "noise_mb", "flat"), [(0, 0.5, True), (0.7, 0, True), (9, 0.1, False)]
)
def test_flat_is_what_noise_explains_or_nobody_would_notice(
    mb_per_hour: float, noise_mb: float, flat: bool
) -> None:
    """Noise alone is flat; so is less than 1 % of 80 MB an hour; 9 MB an hour under small noise is not."""
    found = slope(over(600, mb_per_hour, noise_mb))
    assert found is not None
    assert found.is_flat == flat


def test_a_run_that_is_too_short_for_its_last_minutes_has_no_growth() -> None:
    """What its start adds would be taken for growth."""
    assert slope(over(200, 50)) is None


def test_only_what_was_seen_between_the_first_record_and_the_last_counts() -> None:
    """The start of the process and its summary take memory that the load does not."""
    written = [0.0, 0.0, 0.1, 0.5, 0.9, 0.9, 0.9]
    seen = under_load([replace(SAMPLE, at_s=float(i), written_mb=mb) for i, mb in enumerate(written)])
    assert [s.at_s for s in seen] == [2, 3]


def test_streams_open_from_the_last_quiet_look_to_the_first_with_all() -> None:
    """12 files are the process's own; 1,012 are all; what closes afterwards does not matter."""
    files = [3, 12, 12, 400, 1012, 1012, 700, 12]
    samples = [replace(SAMPLE, at_s=float(i), descriptors=n) for i, n in enumerate(files)]
    assert [s.at_s for s in opening(samples)] == [2, 4]


def test_a_long_curve_is_thinned() -> None:
    """Ten hours of looks are 600 points at most, from the first on."""
    points = curve(over(36_000, 3600), "rss_mb")
    assert points[0] == [0.0, 80.0]
    assert 500 < len(points) <= 600


def found(part: Part, **more: Any) -> dict[str, Any]:
    return {
        "columns": ["what", "n"],
        "rows": [[f"{part.name} <b>", 1000], ["other", None]],
        "notes": [f"The answer of {part.name}.", "A note."],
        "machine": {"cores": 2},
        "took_s": 90.0,
        "quick": False,
    } | more


def test_the_report_has_the_tables_and_curves_of_the_parts_that_were_measured(tmp_path: Path) -> None:
    """Answer first, then a table a part; a picture for each unit, and no other; what is missing is said."""
    faults, *_, soak, _, _ = PARTS
    curves = {"client, MB": [[0, 80], [1, 81.5]], "client 1, MB": [[0, 60]], "client, descriptors": [[0, 9]]}
    for part, told in ((faults, found(faults)), (soak, found(soak, series=curves))):
        robustness.kept(tmp_path, part).write_text(json.dumps(told))
    report = tmp_path / "report"
    robustness.write(tmp_path, report)
    page = (report / "report.md").read_text()
    assert "**MEASURED.**" in page.split("**Question.**")[0]
    assert "\npython -m tests.bench.robustness" in page
    assert "- Faults: The answer of faults." in page
    assert r"| faults \<b\> | 1,000 |" in page
    assert "Not measured here: Kills, Several machines, Ten thousand streams, A million rows." in page
    shown = re.findall(r"^!\[.+\]\((.+\.svg)\)$", page, re.MULTILINE)
    assert sorted(shown) == ["soak-descriptors.svg", "soak-mb.svg"]
    assert {path.name for path in report.iterdir()} == {"report.md", "figures.json", *shown}
    assert json.loads((report / "figures.json").read_text())["figures"]["soak"]["series"] == curves


def test_a_short_form_is_no_result(tmp_path: Path) -> None:
    """What was measured with --quick says so where it is read."""
    part = PARTS[-1]
    robustness.kept(tmp_path, part).write_text(json.dumps(found(part, quick=True)))
    robustness.write(tmp_path, tmp_path / "report")
    assert f"SHORT, for trying, and no result: {part.title}." in (tmp_path / "report/report.md").read_text()


def test_a_later_call_measures_only_what_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part that was left out is named at the end, with the report of the others made; it is tried again."""
    tried: list[str] = []

    def measure(part: Part, work: Path, *, quick: bool) -> bool:
        tried.append(part.name)
        if part.name != "cluster":
            robustness.kept(work, part).write_text(json.dumps(found(part, quick=quick)))
        return part.name != "cluster"

    monkeypatch.setattr(robustness, "measure", measure)
    told = ["--work", str(tmp_path / "work"), "--report", str(tmp_path / "report")]
    (tmp_path / "work").mkdir()
    for _ in range(2):
        with pytest.raises(SystemExit, match="left out: cluster"):
            robustness.main(told)
    assert tried == [*(part.name for part in PARTS), "cluster"]
    robustness.main([*told, "--only-report"])
    robustness.main([*told, "--only", "soak"])
    assert tried[len(PARTS) + 1 :] == ["soak"]


def test_a_part_that_cannot_be_measured_leaves_what_it_had_found_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its process ends with an error: that is said, and the file of an earlier call stays."""
    part = Part("no_such_bench", "None", "Is there one?", 0)
    robustness.kept(tmp_path, part).write_text("earlier")
    assert not robustness.measure(part, tmp_path, quick=False)
    assert "left out" in capsys.readouterr().err
    assert robustness.kept(tmp_path, part).read_text() == "earlier"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
def test_a_watch_sees_the_server_that_runs_below_it(tmp_path: Path) -> None:
    """Its memory, its files, a thread or more; and not what this process started besides."""
    with Server().serving(tmp_path), Watch(0.05) as watch:
        until_s = time.perf_counter() + 10
        while not watch.of(SERVER) and time.perf_counter() < until_s:
            time.sleep(0.01)
    assert watch.clients == []
    sample = watch.of(SERVER)[0]
    assert 10 < sample.rss_mb < 200
    assert sample.descriptors > 3
    assert sample.threads >= 1
