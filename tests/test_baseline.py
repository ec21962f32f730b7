"""A baseline file holds what a gate needs of a run, small, the same bytes each time, and nothing else."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen import drive
from loadgen.baseline import decoded, encoded, figures_of, keep, of_run, read, runs_in, sides
from loadgen.health import Health
from loadgen.order import Order
from loadgen.records import OUTCOMES, Outcome, RequestRecord
from loadgen.run_folder import RunWriter
from loadgen.scenario import ScenarioError, build
from loadgen.stats import summarize
from loadgen.stats.sample import About, Sample, sample
from loadgen.workload import draw
from tests.records import failed, header, ok, run_of

ABOUT = sample(run_of([ok()]), summarize(run_of([ok()]))).about
US = st.none() | st.integers(0, 10**10)
ROWS = st.lists(
    st.tuples(
        st.integers(0, 10**11), US, US, US, US, st.sampled_from(range(len(OUTCOMES))), st.integers(0, 10**6),
        st.integers(0, 10**6), st.lists(st.tuples(st.integers(0, 2500), st.integers(1, 10**6)), max_size=5),
    ),
    max_size=20,
).map(lambda rows: sorted(rows, key=lambda row: row[0]))  # fmt: skip


def sample_of(rows: list[tuple[Any, ...]], about: About = ABOUT) -> Sample:
    """A Sample of rows (due, ttft, e2e, stall in us, tpot in ns, outcome, tokens, owed, gaps)."""

    def column(place: int, per_s: float = 1e6) -> Any:
        return np.array([np.nan if row[place] is None else row[place] / per_s for row in rows])

    gaps = [gap for row in rows for gap in row[8]]
    return Sample(
        about=about,
        index=np.arange(len(rows)) * 3,
        due_s=column(0),
        outcome=np.array([row[5] for row in rows], np.uint8),
        ttft_s=column(1),
        e2e_s=column(2),
        longest_stall_s=column(3),
        tpot_s=column(4, 1e9),
        output_tokens=np.array([row[6] for row in rows], np.int32),
        owed=np.array([row[7] for row in rows], np.int32),
        gap_start=np.cumsum([0, *(len(row[8]) for row in rows)]),
        gap_bin=np.array([at for at, _ in gaps], np.uint16),
        gap_times=np.array([times for _, times in gaps], np.int32),
    )


def assert_same(a: Sample, b: Sample, within_s: float = 0.0) -> None:
    assert a.about == b.about
    for name in {field.name for field in dataclasses.fields(Sample)} - {"about", "lag_s", "since"}:
        mine, others = getattr(a, name), getattr(b, name)
        assert mine.dtype == others.dtype, name
        np.testing.assert_allclose(mine, others, rtol=0, atol=within_s, err_msg=name)


def run_folder(folder: Path, records: list[RequestRecord], **changes: Any) -> Path:
    with RunWriter(folder) as writer:
        for record in records:
            writer.append(record)
        writer.write_header(header(plan_rows=len(records), rows_due=len(records), **changes))
    return folder


@given(ROWS)
def test_what_is_written_is_read_back(rows: list[tuple[Any, ...]]) -> None:
    """Every column to the bit where it is whole microseconds, as records are; the same bytes each time."""
    written = sample_of(rows)
    content = encoded(written)
    assert_same(decoded(content, "x"), written)
    assert encoded(decoded(content, "x")) == content


def test_a_run_is_kept_as_a_gate_sees_it(tmp_path: Path) -> None:
    """The file's sample is the run folder's, within a nanosecond."""
    records = [ok(i, i / 10, ttft_s=0.1 + i / 1000, gaps_us=[10_000 + i, 333, 0]) for i in range(30)]
    records += [failed(30, 3.0, Outcome.REJECTED, status=429), ok(31, 3.1, gaps_us=[])]
    folder = run_folder(tmp_path / "run", records)
    path = keep(folder, tmp_path / "kept")
    assert path == tmp_path / "kept" / "run" / "run-1.baseline"
    assert_same(read(path), of_run(folder).sample, within_s=1e-9)


def test_a_request_of_100_tokens_takes_under_300_bytes(tmp_path: Path) -> None:
    """With noise in every step, so that no two gaps are alike."""
    jitter = {"step": 0.05, "drift": 0.02, "run": 0.02}
    load = {"arrivals": {"kind": "poisson", "rate": "8/s"}, "num_requests": 300, "output_tokens": 100}
    asked = build({"load": load, "engine": {"jitter": jitter}})
    drive.simulate(Order(asked, draw(asked), tmp_path / "run", "r"))
    assert keep(tmp_path / "run", tmp_path).stat().st_size < 300 * 300


def test_no_secret_of_a_scenario_gets_into_git(tmp_path: Path) -> None:
    """A key in a header is masked before it comes to a run folder, and so to a baseline."""
    target = {"base_url": "http://127.0.0.1:1", "headers": {"X-Api-Key": "sk-planted"}}
    asked = build({"target": target, "load": {"requests": [{"prompt": 16, "output": 4}]}})
    folder = run_folder(tmp_path / "run", [ok()], scenario=asked.as_asked())
    with zipfile.ZipFile(keep(folder, tmp_path)) as archive:
        content = b"".join(archive.read(name) for name in archive.namelist())
    assert b"X-Api-Key" in content
    assert b"sk-planted" not in content


# --- what is refused --------------------------------------------------------------------------------


def changed(content: bytes, by: int = zipfile.ZIP_STORED, **entries: bytes) -> bytes:
    """The archive with other entries; b"" takes one out."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w", by) as new:
        for name in old.namelist():
            if data := entries.get(name.removesuffix(".json"), old.read(name)):
                new.writestr(name, data)
    return out.getvalue()


def says(**about: Any) -> bytes:
    """The archive, had its header said something else of the run."""
    return changed(GOOD, header=json.dumps(HEADER | {"about": HEADER["about"] | about}).encode())


def forged(**column: Any) -> bytes:
    """Two requests, and something that no run can have been."""
    two = sample_of([(0, 5, 9, 2, 7, 0, 3, 0, [(4, 2)]), (1, 5, 9, 2, 7, 0, 3, 0, [])])
    columns: dict[str, Any] = {name: np.array(values) for name, values in column.items()}
    return encoded(dataclasses.replace(two, **columns))


GOOD = encoded(sample_of([(0, 5, 9, 2, 7, 0, 3, 0, [(4, 2)])]))
HEADER = json.loads(zipfile.ZipFile(io.BytesIO(GOOD)).read("header.json"))


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "is no baseline, or not a whole one"),
        (b"PK\x03\x04 is how a zip begins", "is no baseline, or not a whole one"),
        (GOOD[:-40], "is no baseline, or not a whole one"),
        (GOOD[:200] + b"\xff" + GOOD[201:], "is no baseline"),
        (changed(GOOD, ttft_s=b""), "is no baseline, or not a whole one"),
        (changed(GOOD, header=json.dumps(HEADER | {"schema": 2}).encode()), "its schema is 2, not 1"),
        (changed(GOOD, header=json.dumps(HEADER | {"schema": "1"}).encode()), "its schema is '1', not 1"),
        (changed(GOOD, header=b"{}"), "its schema is null, not 1"),
        (changed(GOOD, header=b"[1"), "is no baseline that this version of loadgen reads"),
        (
            changed(GOOD, header=json.dumps(HEADER | {"rows": 2}).encode()),
            "its columns are not of one length",
        ),
        (changed(GOOD, ttft_s=b"123"), "is no baseline that this version of loadgen reads"),
        (changed(GOOD, outcome=b"\xfe" + bytes(7)), "an outcome that is none"),
        (changed(GOOD, gaps=b"\x04" + bytes(7)), "its columns are not of one length"),
        (changed(GOOD, zipfile.ZIP_LZMA), "compressed otherwise than by DEFLATE"),
        (changed(GOOD, zipfile.ZIP_BZIP2), "compressed otherwise than by DEFLATE"),
        (says(run_id="../../x"), r"run_id"),
        (says(run_id="x\n::error::y"), r"run_id"),
        (says(run_id="x\n"), r"run_id"),
        (says(run_id=".."), r"run_id"),
        (says(name="\x1b[31mred"), r"name"),
        (says(window_s=0), r"window_s"),
        (says(window_s=-1.5), r"window_s"),
        (forged(ttft_s=[0.1, -0.1]), "below zero"),
        (forged(due_s=[-0.1, 0.1]), "below zero"),
        (forged(due_s=[0.2, 0.1]), "in order of due"),
        (forged(due_s=[np.nan, 0.1]), "in order of due"),
        (forged(index=[1, 1]), "one is there twice"),
        (forged(index=[-1, 1]), "below zero"),
        (forged(owed=[0, -1]), "below zero"),
        (forged(output_tokens=[0, 2**31]), "more than can be counted"),
        (forged(gap_times=[-1]), "below zero"),
        (forged(gap_bin=[2**16]), "more than can be counted"),
    ],
)
def test_a_broken_or_foreign_file_is_one_clear_line(content: bytes, what: str) -> None:
    """Cut short, damaged, of another schema, or something else altogether."""
    with pytest.raises(ScenarioError, match=what) as problem:
        decoded(content, "here")
    assert str(problem.value).startswith("here ")
    assert "\n" not in str(problem.value)


@pytest.mark.parametrize(("entry", "size"), [("header", 2_001), ("gap_bin", 2**20)])
def test_what_unpacks_to_far_more_than_it_is_is_not_unpacked(
    monkeypatch: pytest.MonkeyPatch, entry: str, size: int
) -> None:
    """A small file costs no gigabytes: its entries say beforehand how large they are."""
    monkeypatch.setattr("loadgen.baseline._MOST_BYTES", 2**16)
    monkeypatch.setattr("loadgen.baseline.MAX_FILE_BYTES", 2_000)
    assert len(decoded(GOOD, "here")) == 1
    with pytest.raises(ScenarioError, match="unpack to far more than a run takes"):
        decoded(changed(GOOD, zipfile.ZIP_DEFLATED, **{entry: bytes(size)}), "here")


@given(st.integers(0, len(GOOD) - 1), st.integers(1, 255))
def test_a_damaged_byte_is_no_crash(at: int, by: int) -> None:
    """It is found, or does not matter."""
    damaged = GOOD[:at] + bytes([GOOD[at] ^ by]) + GOOD[at + 1 :]
    with contextlib.suppress(ScenarioError):
        assert len(decoded(damaged, "here")) == 1


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"interrupted": True}, "did not come to its end"),
        ({"complete": False}, "did not come to its end"),
        ({"health": Health(descriptors_exhausted=True)}, "INVALID"),
    ],
)
def test_a_run_that_cannot_be_trusted_is_no_baseline(tmp_path: Path, changes: Any, why: str) -> None:
    """Nor one that did not come to its end."""
    folder = run_folder(tmp_path / "run", [ok()], **changes)
    with pytest.raises(ScenarioError, match=f"can be no baseline: .*{why}"):
        keep(folder, tmp_path)


def test_a_run_without_a_good_answer_is_no_baseline(tmp_path: Path) -> None:
    """Empty, or all failed."""
    with pytest.raises(ScenarioError, match="can be no baseline: no request of it was ok"):
        keep(run_folder(tmp_path / "failed", [failed()]), tmp_path)
    with pytest.raises(ScenarioError, match="can be no baseline"):
        keep(run_folder(tmp_path / "empty", []), tmp_path)


def test_a_shard_is_no_side_of_a_gate_and_no_baseline(tmp_path: Path) -> None:
    """Its rates and percentiles are of a part of the load: what they are held against would be another."""
    folder = run_folder(tmp_path / "run", [ok()], shard="1/2")
    with pytest.raises(ScenarioError, match="is shard 1/2 of a run: merge all"):
        keep(folder, tmp_path)
    with pytest.raises(ScenarioError, match="is shard 1/2 of a run: merge all"):
        of_run(folder)


def test_no_run_is_kept_beside_the_folder(tmp_path: Path) -> None:
    """A run folder comes from anywhere too: its id is no path."""
    folder = run_folder(tmp_path / "run", [ok()], run_id="../../x")
    with pytest.raises(ScenarioError, match="run_id"):
        keep(folder, tmp_path / "a" / "b")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_run_is_kept_once(tmp_path: Path) -> None:
    """Twice it would look as if runs did not differ."""
    folder = run_folder(tmp_path / "run", [ok()])
    keep(folder, tmp_path, "x")
    with pytest.raises(ScenarioError, match="is there already"):
        keep(folder, tmp_path, "x")


@pytest.mark.parametrize("name", ["../up", "a/b", "", "..", "."])
def test_a_name_stays_within_the_folder(tmp_path: Path, name: str) -> None:
    """A name is no path."""
    with pytest.raises(ScenarioError, match="--name"):
        keep(run_folder(tmp_path / "run", [ok()]), tmp_path / "kept", name)


# --- finding them -----------------------------------------------------------------------------------


def test_a_run_a_file_a_folder_or_a_name_is_found(tmp_path: Path) -> None:
    """Each means the same two runs, or one of them."""
    runs = [run_folder(tmp_path / "runs" / x, [ok()], run_id=x) for x in ("a", "b")]
    kept = [keep(run, tmp_path / "kept", "chat") for run in runs]

    def found(path: Path) -> list[str]:
        return [side.sample.about.run_id for side in sides(path, tmp_path / "kept")]

    assert found(runs[0]) == found(kept[0]) == ["a"]
    assert found(tmp_path / "runs") == found(Path("chat")) == found(tmp_path / "kept") == ["a", "b"]
    assert runs_in(tmp_path / "runs") == runs
    with pytest.raises(ScenarioError, match="holds no baseline of that name; there are chat"):
        found(Path("chatt"))
    with pytest.raises(ScenarioError, match="a run folder is needed here"):
        runs_in(kept[0])
    (tmp_path / "runs" / "gate.json").write_text("{}")
    with pytest.raises(ScenarioError, match=r"gate\.json is a file, and no run folder: FOLDER/\*/"):
        runs_in(tmp_path / "runs" / "gate.json")
    (tmp_path / "runs" / "comparison.json").write_text("{}")
    with pytest.raises(ScenarioError, match="a run of each variant"):
        runs_in(tmp_path / "runs")


def test_of_several_runs_none_is_passed_over(tmp_path: Path) -> None:
    """Three of which one has lost its run.json are not two; and probes are no runs of one plan."""
    runs = [run_folder(tmp_path / "runs" / x, [ok()], run_id=x) for x in ("1", "2", "3")]
    (runs[1] / "run.json").unlink()
    with pytest.raises(ScenarioError, match=r"runs/2 is no whole run folder: it has no run\.json"):
        runs_in(tmp_path / "runs")
    run_folder(tmp_path / "search" / "001", [ok()], run_id="a")
    (tmp_path / "search" / "capacity.json").write_text("{}")
    with pytest.raises(ScenarioError, match="holds a search's probes"):
        runs_in(tmp_path / "search")


def test_the_noise_between_baselines_is_their_spread() -> None:
    """TTFT 100, 110 and 90 ms: mean 100 ms, sd 10 ms. One run alone has none."""
    rows = [[(i * 10**5, us, us, None, None, 0, 1, 0, []) for i in range(80)] for us in (100e3, 110e3, 90e3)]
    samples = [sample_of(row, msgspec.structs.replace(ABOUT, run_id=str(len(row)))) for row in rows]
    ttft = figures_of(samples)["e2e_mean"]
    assert (ttft.mean, ttft.least, ttft.most, ttft.noise) == pytest.approx((0.1, 0.09, 0.11, 0.1))
    assert figures_of(samples[:1])["e2e_mean"].noise is None
    assert figures_of(samples)["itl_p50"].mean is None
