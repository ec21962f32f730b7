"""Shards of a run, merged: what they mean together is what the whole means."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen import judge, merge
from loadgen.health import Health
from loadgen.merging import merge_folders
from loadgen.records import Outcome, RequestRecord
from loadgen.run import Run
from loadgen.run_folder import RunWriter, load
from loadgen.scenario import ScenarioError
from loadgen.stats import summarize
from loadgen.strict_json import as_json
from loadgen.whole_file import write_whole
from tests.records import failed, ok, run_of

SLOS = ["p90(ttft) <= 200ms", "p99(itl) <= 50ms", "output_tokens_per_s >= 1", "rejection_rate <= 5%"]
SCENARIO = {"load": {"requests": [{"prompt": 16, "output": 4}], "warmup": "auto"}, "slos": SLOS}


def some_rows(n: int, seed: int) -> list[RequestRecord]:
    """Requests of all sorts, some due together, in any order."""
    rng = np.random.default_rng(seed)
    rows: list[RequestRecord] = []
    for i, due in enumerate(np.sort(np.round(rng.uniform(0, 10, n), 1)).tolist()):
        gaps = rng.integers(0, 60_000, rng.integers(0, 20)).tolist()
        listed = rng.integers(1, 5, len(gaps) + 1).tolist() if i % 3 else 1
        row = ok(i, due, ttft_s=float(np.round(rng.exponential(0.1), 6)), gaps_us=gaps, event_tokens=listed)
        if i % 7 == 6:
            row = failed(i, due, [Outcome.REJECTED, Outcome.BROKEN][i % 2], error=f"trouble {i % 3}")
        rows.append(row)
    rng.shuffle(rows)  # type: ignore[arg-type]
    return rows


def shards_of(whole: Run, of: int, seed: int) -> list[Run]:
    """The rows of `whole` dealt out at random."""
    owner = np.random.default_rng(seed).integers(0, of, len(whole.records))
    parts = [whole.records.only(owner == k) for k in range(of)]
    headers = [
        msgspec.structs.replace(
            whole.header, run_id=f"shard-{k}", rows_due=len(part), health=Health(reads=k + 1)
        )
        for k, part in enumerate(parts)
    ]
    return [Run(header, part) for header, part in zip(headers, parts, strict=True)]


def whole_of(rows: list[RequestRecord], **header: Any) -> Run:
    return run_of(rows, scenario=SCENARIO, rows_not_sent=0, **header)


@settings(deadline=None, max_examples=25)
@given(n=st.integers(1, 150), of=st.integers(1, 5), seed=st.integers(0, 99), order=st.randoms())
def test_merged_shards_mean_what_the_whole_means(n: int, of: int, seed: int, order: Any) -> None:
    """However the rows were dealt out, and in whatever order shards come: the same to the last bit."""
    whole = whole_of(some_rows(n, seed))
    shards = shards_of(whole, of, seed)
    order.shuffle(shards)
    found, expected = summarize(merge(shards)), summarize(whole)
    assert (found.source, found.run_id) == ("merged", "shard-0")
    said = [f for f in found.findings if f.name != "client"]
    assert msgspec.structs.replace(found, source="http", run_id="run-1", findings=said) == expected


def test_rows_come_in_order_with_their_own_gaps() -> None:
    """Each row keeps its gaps, its tokens and its words."""
    whole = whole_of(some_rows(60, 3))
    r = merge(shards_of(whole, 3, 1)).records
    assert r.index.tolist() == list(range(60))
    for place, i in enumerate(whole.records.index):
        theirs = whole.records.gaps_us[whole.records.gap_start[place] : whole.records.gap_start[place + 1]]
        assert r.gaps_us[r.gap_start[i] : r.gap_start[i + 1]].tolist() == theirs.tolist()
        assert r.request_id[i] == whole.records.request_id[place]
        assert r.error[i] == whole.records.error[place]


def test_what_shards_counted_adds_up() -> None:
    """Rows that fell due and reads are sums, and each shard is a process."""
    header = merge(shards_of(whole_of(some_rows(30, 0)), 3, 0)).header
    assert header.health is not None
    assert (header.rows_due, header.health.reads, header.health.processes) == (30, 6, 3)


def test_simulated_shards_stay_simulated() -> None:
    """Merged, they are no measurement; nor are they merged with one."""
    shards = shards_of(whole_of(some_rows(30, 0), source="virtual"), 2, 0)
    assert merge(shards).header.source == "virtual"
    measured = replace(shards[1], header=msgspec.structs.replace(shards[1].header, source="http"))
    with pytest.raises(ScenarioError, match="some shards are simulated and some measured"):
        merge([shards[0], measured])


def test_a_row_twice_is_refused() -> None:
    """A shard given twice would count its requests twice."""
    one, two = shards_of(whole_of(some_rows(30, 0)), 2, 0)
    with pytest.raises(ScenarioError, match=r"^row \d+ is in two shards"):
        merge([one, two, one])


def test_a_missing_shard_is_refused() -> None:
    """Rows of the plan that nobody tells of."""
    one, two = shards_of(whole_of(some_rows(30, 0)), 2, 0)
    lacking = len(two.records)
    with pytest.raises(ScenarioError, match=rf"^{lacking} of the plan's 30 rows are in no shard"):
        merge([one])


def test_rows_known_not_to_have_been_sent_are_no_gap() -> None:
    """A shard that was interrupted tells how many it did not send; one that was killed tore a line."""
    one, two = shards_of(whole_of(some_rows(30, 0)), 2, 0)
    lacking = len(two.records)
    stopped = replace(
        one, header=msgspec.structs.replace(one.header, rows_not_sent=lacking, interrupted=True)
    )
    assert merge([stopped]).header.interrupted
    torn = merge([replace(one, torn_lines=lacking)])
    assert torn.header.notes == [f"shard-0: lines that were cut short, and are left out: {lacking}"]


@pytest.mark.parametrize(
    "change",
    [
        *({"plan_digest": "1" * 64}, {"window_end_s": 9.0}, {"window_start_s": 1.0}, {"window_by": "count"}),
        *({"scenario": {}}, {"plan_rows": 31}, {"salt": "other words"}),
    ],
    ids=lambda change: next(iter(change)),
)
def test_shards_of_different_plans_are_refused(change: dict[str, Any]) -> None:
    """They are told apart by what they were asked."""
    one, two = shards_of(whole_of(some_rows(30, 0)), 2, 0)
    with pytest.raises(ScenarioError, match=f"not shards of one run: they differ in {next(iter(change))}"):
        merge([one, replace(two, header=msgspec.structs.replace(two.header, **change))])


def test_nothing_is_no_run() -> None:
    with pytest.raises(ScenarioError, match="no shards"):
        merge([])


# --- shards by number, and in folders -----------------------------------------------------------------------


def numbered(whole: Run, of: int, **changes: Any) -> list[Run]:
    """Every `of`-th row, as `--shard` deals them out."""
    return [
        Run(
            msgspec.structs.replace(
                whole.header,
                run_id=f"run-{k + 1}of{of}",
                shard=f"{k + 1}/{of}",
                start_at="2026-12-01T10:00:00Z",
                rows_due=int((whole.records.index % of == k).sum()),
                health=Health(reads=k + 1, start_by="ntp", start_error_s=0.001 * (k + 1)),
                **changes,
            ),
            whole.records.only(whole.records.index % of == k),
        )
        for k in range(of)
    ]


def of_host(run: Run, boot_id: Any) -> Run:
    return replace(run, header=msgspec.structs.replace(run.header, host={"boot_id": boot_id}))


def changed(run: Run, **changes: Any) -> Run:
    return replace(run, header=msgspec.structs.replace(run.header, **changes))


def test_shards_by_number_become_the_run_they_are_shards_of() -> None:
    """Its id is theirs without the number, and it is no shard itself; how far two starts may lie apart is
    what the two worst are off.
    """
    header = merge(numbered(whole_of(some_rows(30, 0)), 3)).header
    assert (header.run_id, header.shard, header.rows_due) == ("run", None, 30)
    assert header.health is not None
    assert (header.health.start_by, header.health.start_error_s) == ("ntp", 0.005)


def test_shards_of_one_machine_have_one_clock() -> None:
    """However badly that is kept; one that does not tell its machine may be of another."""
    shards = numbered(whole_of(some_rows(30, 0)), 2)
    for boots, by in ((["b", "b"], "clock"), (["b", "c"], "ntp"), ([None, None], "ntp")):
        health = merge([of_host(*each) for each in zip(shards, boots, strict=True)]).header.health
        assert health is not None
        assert health.start_by == by


def test_shards_of_one_machine_that_started_apart_say_so() -> None:
    """Its wall clock was set between them: by its other clock the starts lie 3 s apart."""
    shards = [of_host(shard, "b") for shard in numbered(whole_of(some_rows(30, 0)), 2)]
    apart = [changed(shard, clock_origin_monotonic_ns=k * 3 * 10**9) for k, shard in enumerate(shards)]
    run = merge(apart)
    assert run.header.health is not None
    assert run.header.health.start_error_s == 3.0
    assert [f.effect for f in summarize(run).findings if f.name == "start"] == ["invalid"]


def test_what_befell_any_shard_befell_the_whole() -> None:
    """Rows that were lost or never fell due add up; what cut one short cuts the whole."""
    one, two = numbered(whole_of(some_rows(30, 0)), 2)
    first = changed(one, rows_lost=4, rows_dropped=1, started_at="2026-12-01T10:00:00.3Z")
    second = changed(two, rows_lost=2, rows_dropped=3, started_at="2026-12-01T10:00:00.1Z")
    header = merge([first, changed(second, interrupted=True, crashed="ValueError")]).header
    assert (header.rows_lost, header.rows_dropped) == (6, 4)
    assert (header.complete, header.interrupted, header.crashed) == (False, False, "ValueError")
    assert header.shards_cut == [2]
    assert header.started_at == "2026-12-01T10:00:00.1Z"


def test_the_whole_has_an_origin_only_where_there_is_one_clock() -> None:
    """Of two machines an instant of either would mean nothing to the other."""
    shards = [changed(one, clock_origin_monotonic_ns=7) for one in numbered(whole_of(some_rows(30, 0)), 2)]
    for boots, origin_ns in ((["b", "b"], 7), (["b", "c"], None)):
        there = [of_host(*each) for each in zip(shards, boots, strict=True)]
        assert merge(there).header.clock_origin_monotonic_ns == origin_ns


def test_a_host_may_be_anything() -> None:
    """What a stranger's header says of its machine is compared, whatever it is."""
    shards = [of_host(shard, [1]) for shard in numbered(whole_of(some_rows(30, 0)), 2)]
    assert len(merge(shards).records) == 30


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([1, 3], "^shards 2, 4 of 4 are missing"),
        ([1, 2, 3], "^shard 4 of 4 is missing"),
        ([1, 2, 2, 3, 4], "^shard 2 of 4 is there twice"),
    ],
)
def test_missing_and_repeated_shards_are_named(given: list[int], said: str) -> None:
    """Whatever rows they have."""
    shards = numbered(whole_of(some_rows(30, 0)), 4)
    with pytest.raises(ScenarioError, match=said):
        merge([shards[k - 1] for k in given])


def test_shards_of_other_divisions_and_whole_runs_are_refused() -> None:
    """A half and two quarters may have all rows; yet they were not one load."""
    whole = whole_of(some_rows(30, 0))
    halves, quarters = numbered(whole, 2), numbered(whole, 4)
    with pytest.raises(ScenarioError, match="some are shards of 2 and some of 4"):
        merge([halves[0], quarters[1], quarters[3]])
    with pytest.raises(ScenarioError, match="is a whole run, not a shard"):
        merge([halves[0], changed(halves[1], shard=None)])


def test_what_shards_differ_in_is_named_to_the_key() -> None:
    """Of a scenario, the first key path."""
    one, two = numbered(whole_of(some_rows(30, 0)), 2)
    other = SCENARIO | {"load": SCENARIO["load"] | {"warmup": "1s"}}  # type: ignore[operator]
    with pytest.raises(ScenarioError, match=r"they differ in scenario\.load\.warmup;"):
        merge([one, changed(two, scenario=other)])
    with pytest.raises(ScenarioError, match="they differ in start_at;"):
        merge([one, changed(two, start_at="2026-12-01T11:00:00Z")])


def test_a_shard_that_was_killed_leaves_the_whole_incomplete_and_named() -> None:
    """The second of three shards has 4 of its 10 rows: the finding says which, and how many are missing."""
    one, two, three = numbered(whole_of(some_rows(30, 0)), 3)
    killed = changed(two, complete=False, rows_due=None, rows_not_sent=None, health=None)
    killed = replace(killed, records=two.records.at(np.arange(4)), torn_lines=1)
    merged = merge([three, killed, one])
    assert (merged.header.complete, merged.header.shards_cut) == (False, [2])
    summary = summarize(merged)
    [finding] = [f for f in summary.findings if f.name == "incomplete"]
    assert "shard 2 was cut short; 6 of the plan's 30 rows are missing" in finding.text
    assert (summary.validity, summary.verdict) == ("INVALID", "INVALID")


def to_write(rows: list[RequestRecord]) -> Run:
    return run_of(
        rows, scenario={"load": {"requests": [{"prompt": 16, "output": 4}]}, "slos": SLOS}, rows_not_sent=0
    )


def written(run: Run, rows: list[RequestRecord], folder: Path) -> Path:
    """The shard's folder, its lines in the order of `rows`."""
    mine = {int(i) for i in run.records.index}
    with RunWriter(folder) as writer:
        writer.write_header(run.header)
        for row in rows:
            if row.index in mine:
                writer.append(row)
    return folder


def everything(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """Three shards of 60 rows, the third with the server's metrics."""
    rows = some_rows(60, 5)
    shards = numbered(to_write(rows), 3)
    made = [written(shard, rows, tmp_path / shard.header.run_id) for shard in shards]
    (made[2] / "server.jsonl").write_text('{"at_s":0.5,"took_s":0.01,"values":{"running":2}}\n')
    return made


def test_merged_lines_are_those_of_the_shards_sorted(folders: list[Path], tmp_path: Path) -> None:
    """As `sort` has them, by the number that each line begins with."""
    out = merge_folders([folders[1], folders[2], folders[0]], tmp_path / "m", runs=tmp_path)
    files = [folder / "records.jsonl" for folder in folders]
    in_order = subprocess.run(["sort", "-t:", "-k2n", *files], capture_output=True, check=True).stdout
    assert (out / "records.jsonl").read_bytes() == in_order
    assert in_order.count(b"\n") == 60


def test_in_whatever_order_shards_come_the_folder_is_the_same(folders: list[Path], tmp_path: Path) -> None:
    """To the byte, in each of its files; and it holds the run that merging in memory makes."""
    made = [
        merge_folders(given, tmp_path / f"m{i}", runs=tmp_path)
        for i, given in enumerate(permutations(folders))
    ]
    assert len({frozenset(everything(out).items()) for out in made}) == 1
    assert {*everything(made[0])} == {"run.json", "records.jsonl", "server.jsonl", "shards.json"}
    from_folder, in_memory = load(made[0]), merge([load(folder) for folder in folders])
    assert from_folder.header == in_memory.header
    assert from_folder.server == in_memory.server
    assert from_folder.torn_lines == in_memory.torn_lines == 0
    assert summarize(from_folder) == summarize(in_memory)
    assert "server.jsonl is what run-3of3 saw" in from_folder.header.notes


def test_no_file_from_elsewhere_gets_into_what_is_merged(folders: list[Path], tmp_path: Path) -> None:
    """A stranger's folder may hold a link to what it is not to see; nor is a file taken that is none."""
    (tmp_path / "secret").write_text('{"at_s":0.5,"took_s":0.01,"values":{"running":9}}\n')
    (folders[0] / "server.jsonl").symlink_to(tmp_path / "secret")
    (folders[1] / "server.jsonl").write_text("root:*:20228:\n")
    out = merge_folders(folders, tmp_path / "m", runs=tmp_path)
    assert (out / "server.jsonl").read_bytes() == (folders[2] / "server.jsonl").read_bytes()


def test_a_row_twice_in_one_shard_is_told_with_the_shard(folders: list[Path], tmp_path: Path) -> None:
    """It is the folder that is wrong, and not what was given."""
    lines = (folders[1] / "records.jsonl").read_bytes().splitlines(keepends=True)
    (folders[1] / "records.jsonl").write_bytes(b"".join([lines[0], *lines]))
    with pytest.raises(ScenarioError, match=r"^row \d+ is twice in run-2of3$"):
        merge_folders(folders, tmp_path / "m", runs=tmp_path)
    assert not (tmp_path / "m").exists()


def test_a_folder_that_is_not_named_is_that_of_the_run(folders: list[Path], tmp_path: Path) -> None:
    """Below where runs go, by the id that the shards share; merging twice does not write over it."""
    assert merge_folders(folders, runs=tmp_path / "runs") == tmp_path / "runs" / "run"
    with pytest.raises(ScenarioError, match="is not empty"):
        merge_folders(folders, runs=tmp_path / "runs")


def test_lines_that_were_cut_short_are_left_out_and_what_follows_is_kept(
    folders: list[Path], tmp_path: Path
) -> None:
    """One shard's last line breaks off, another has half a line before a whole one: both are told of."""
    lines = (folders[0] / "records.jsonl").read_bytes().splitlines(keepends=True)
    (folders[0] / "records.jsonl").write_bytes(b"".join(lines)[:-10])
    others = (folders[1] / "records.jsonl").read_bytes().splitlines(keepends=True)
    (folders[1] / "records.jsonl").write_bytes(b"".join([others[0][:50], *others]))
    (header := load(folders[0]).header).complete = False
    write_whole(folders[0] / "run.json", as_json(header))
    merged = (merge_folders(folders, tmp_path / "m", runs=tmp_path) / "records.jsonl").read_bytes()
    assert merged.count(b"\n") == 59
    assert lines[-1] not in merged
    assert all(line in merged for line in [*lines[:-1], *others])
    assert [note[:8] for note in load(tmp_path / "m").header.notes[:2]] == ["run-1of3", "run-2of3"]


def test_a_whole_run_is_not_merged(folders: list[Path], tmp_path: Path) -> None:
    """Not even alone: it would be copied. Nothing is made."""
    rows = some_rows(5, 0)
    whole = written(to_write(rows), rows, tmp_path / "whole")
    for these in ([whole], [*folders, whole]):
        with pytest.raises(ScenarioError, match=r"whole is a whole run, not a shard"):
            merge_folders(these, tmp_path / "m", runs=tmp_path)
    assert not (tmp_path / "m").exists()


# --- how far the starts lie apart ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("by", "error_s", "effect"),
    [
        *(("clock", 0.0, None), ("wall", None, "invalid"), ("measured", 0.0019, None)),
        *(("measured", 0.0021, "invalid"), ("ntp", 0.0019, None), ("ntp", 0.5, "warning")),
    ],
)
def test_how_far_starts_may_lie_apart_is_judged(by: Any, error_s: float | None, effect: str | None) -> None:
    """TTFT is 100 ms in the median, so 2 ms is the limit; by NTP's own bound it is a warning alone."""
    run = run_of([ok(i, i / 10) for i in range(50)], health=Health(start_by=by, start_error_s=error_s))
    assert [f.effect for f in summarize(run).findings if f.name == "start"] == [effect] * (effect is not None)


def test_a_shard_alone_is_not_judged() -> None:
    """It says what it is; its arrivals are every other of the law's, and no SLO is of them."""
    asked = {"arrivals": {"kind": "poisson", "rate": "10/s"}, "num_requests": 200}
    rows = [ok(i, i / 5) for i in range(200)]  # as even as no Poisson process is
    whole = run_of(rows, scenario={"load": asked, "slos": SLOS})
    part = summarize(changed(whole, shard="2/8"))
    assert (part.slos, part.verdict) == ([], None)
    assert part.certificate is not None
    assert part.certificate.verdict == "not tested"
    [text] = [f.text for f in part.findings if f.name == "shard"]
    assert text.startswith("shard 2 of 8:")
    before = summarize(whole)
    assert before.certificate is not None
    assert before.certificate.verdict == "departs"
    assert before.verdict is not None
    with pytest.raises(ScenarioError, match="merge all"):
        judge(changed(whole, shard="2/8"))


def test_shards_that_another_address_answered_are_merged_and_that_is_said() -> None:
    """Hosts may know one server by several names; a reader is told, since it may be two servers."""
    whole = run_of(some_rows(20, 1), scenario=SCENARIO)
    first, second = shards_of(whole, 2, seed=1)
    second.header.target, second.header.model = "http://other", "another"
    header = merge([first, second]).header
    assert header.target == f"{first.header.target}, http://other"
    assert {note for note in header.notes if "differ" in note} == {
        "the shards differ in target: see shards.json",
        "the shards differ in model: see shards.json",
    }


def test_a_whole_of_which_one_shard_was_interrupted_is_invalid_and_says_which(tmp_path: Path) -> None:
    """From then on a part of the load was missing, so that its rates and latencies are of another load."""
    one, two = numbered(whole_of(some_rows(30, 0)), 2)
    stopped = two.records.only(two.records.due_s < 5)
    second = replace(
        changed(two, interrupted=True, rows_due=len(stopped), rows_not_sent=15 - len(stopped)),
        records=stopped,
    )
    found = summarize(merge([one, second]))
    assert found.validity == "INVALID"
    [said] = [finding.text for finding in found.findings if finding.name == "incomplete"]
    assert said.endswith(f"shard 2 was cut short; {15 - len(stopped)} of the plan's 30 rows are missing")


def test_a_host_may_know_scenario_and_server_by_another_name() -> None:
    """A file may be called otherwise, and a server be behind another address; nothing else may differ."""
    target = {"base_url": "http://here", "model": "m"}
    scenario = SCENARIO | {"name": "a", "target": target}
    one, two = numbered(run_of(some_rows(30, 0), scenario=scenario), 2)
    other = changed(two, scenario=scenario | {"name": "b", "target": target | {"base_url": "http://there"}})
    assert len(merge([one, other]).records) == 30
    another = changed(two, scenario=scenario | {"target": target | {"endpoint": "/v2"}})
    with pytest.raises(ScenarioError, match=r"differ in scenario\.target\.endpoint;"):
        merge([one, another])


def test_a_shard_that_still_goes_on_is_waited_for(tmp_path: Path) -> None:
    """Else the whole would lack what it has yet to record, and be kept like that."""
    with RunWriter(tmp_path / "s"), pytest.raises(ScenarioError, match=r"/s: that run still goes on: wait"):
        merge_folders([tmp_path / "s"], tmp_path / "m", runs=tmp_path)


def test_more_shards_than_files_may_be_open_merge(folders: list[Path], tmp_path: Path) -> None:
    """As many files are open as without any shard, but one."""
    from resource import RLIMIT_NOFILE, getrlimit, setrlimit

    soft, hard = getrlimit(RLIMIT_NOFILE)
    room = len(os.listdir("/dev/fd")) + 3  # noqa: PTH208  the records merged, a shard's, and one to look
    setrlimit(RLIMIT_NOFILE, (room, hard))
    try:
        out = merge_folders(folders, tmp_path / "m", runs=tmp_path)
    finally:
        setrlimit(RLIMIT_NOFILE, (soft, hard))
    assert len(load(out).records) == 60
