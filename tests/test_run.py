"""The run folder: what is written is what is read, and what was cut or mixed up is said."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.plan import Phase
from loadgen.records import OUTCOMES, Outcome, Records, RequestRecord
from loadgen.run import Run
from loadgen.run_folder import RecordWriter, RunWriter, load, refuse_used
from loadgen.scenario import ScenarioError
from loadgen.whole_file import WriteError, write_whole
from tests.records import failed, header, ok, run_of


def written(folder: Path, records: list[RequestRecord]) -> Path:
    with RunWriter(folder) as writer:
        writer.write_header(header(rows_due=len(records)))
        for record in records:
            writer.append(record)
    return folder


def as_data(records: Records) -> dict[str, Any]:
    columns = {f.name: getattr(records, f.name) for f in dataclasses.fields(records)}
    return {
        name: c if isinstance(c, list) else np.nan_to_num(c, nan=-1).tolist() for name, c in columns.items()
    }


counts = st.none() | st.integers(0, 10**6)
texts = st.none() | st.text(max_size=8)


@st.composite
def any_record(draw: st.DrawFn, index: int = 0) -> RequestRecord:
    gaps = draw(st.lists(st.integers(0, 2**32 - 1), max_size=4))
    listed = st.lists(st.integers(0, 9), min_size=len(gaps) + 1, max_size=len(gaps) + 1)
    due, lag, wait = (draw(st.integers(0, 10**9)) for _ in range(3))
    last = due + lag + wait + sum(gaps)
    return RequestRecord(
        index=index,
        request_id=draw(st.text(max_size=8)),
        phase=draw(st.sampled_from(["warmup", "measured", "tail"])),
        due_s=due / 1e6,
        started_s=draw(st.none() | st.just((due + lag) / 1e6)),
        first_token_s=(due + lag + wait) / 1e6,
        last_token_s=last / 1e6,
        ended_s=draw(st.none() | st.integers(last, last + 10**9).map(lambda us: us / 1e6)),
        outcome=draw(st.sampled_from(Outcome)),
        status=draw(st.none() | st.integers(100, 599)),
        error=draw(texts),
        output_tokens=draw(counts),
        gaps_us=gaps,
        event_tokens=draw(st.none() | st.just(1) | listed),
        warnings=draw(st.lists(st.text(max_size=4), max_size=2)),
    )


@given(st.data())
def test_a_folder_gives_back_the_records_it_was_given(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Columns read from a folder equal the columns made in memory, whatever the records hold."""
    records = [data.draw(any_record(index=i)) for i in range(data.draw(st.integers(0, 4)))]
    run = load(written(tmp_path_factory.mktemp("run") / "new", records))
    assert as_data(run.records) == as_data(Records.from_records(records))
    assert run.torn_lines == 0


def test_columns_hold_each_field_of_each_row() -> None:
    """Numbers are NaN for null, outcomes and phases are codes, gaps and event tokens lie end to end."""
    r = Records.from_records(
        [
            ok(7, 1.5, gaps_us=[10, 20], event_tokens=[1, 3, 2], warnings=["odd"], class_="chat"),
            failed(9, 2.0, Outcome.REJECTED, status=429, error="busy", phase="tail"),
        ]
    )
    assert r.index.tolist() == [7, 9]
    assert [OUTCOMES[code] for code in r.outcome] == ["ok", "rejected"]
    assert [Phase(code) for code in r.phase] == [Phase.MEASURED, Phase.TAIL]
    assert r.status.tolist() == [200, 429]
    assert r.first_token_s[0] == 1.6
    assert np.isnan(r.first_token_s[1])
    assert r.gaps_us.tolist() == [10, 20]
    assert r.gap_start.tolist() == [0, 2, 2]
    assert r.per_event.tolist() == [-1, 0]
    assert r.event_tokens.tolist() == [1, 3, 2]
    assert r.events.tolist() == [3, 0]
    assert r.received_tokens.tolist() == [3, 0]
    assert (r.error, r.warnings, r.class_) == ([None, "busy"], [("odd",), ()], ["chat", None])


@given(st.lists(st.integers(0, 7), max_size=12), st.integers(1, 9))
def test_blocks_are_the_rows_in_order(gap_counts: list[int], least: int) -> None:
    """Laid end to end they are the whole again, however long the rows are against the blocks."""
    whole = Records.from_records(
        ok(i, gaps_us=range(1, n + 1), event_tokens=[i % 3 + 1] * (n + 1)) for i, n in enumerate(gap_counts)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("loadgen.records._BLOCK_GAPS", least)
        blocks = list(whole.blocks())
    for name in ("index", "request_id", "due_s", "gaps_us", "gap_count", "event_tokens"):
        laid = [value for block in blocks for value in getattr(block, name)]
        assert laid == list(getattr(whole, name))
    sums = [total for block in blocks for total in block.sums_by_row(block.gaps_us)]
    assert sums == [n * (n + 1) / 2 for n in gap_counts]
    assert all(block.gap_count[:-1].sum() <= least for block in blocks)


def test_what_many_rows_say_alike_is_kept_once() -> None:
    """A million answers that end for one reason hold one text; what each says of its own stays apart."""
    r = Records.from_records(ok(i, finish_reason="".join(["st", "op"]), warnings=["odd"]) for i in range(300))
    assert len({id(text) for text in r.finish_reason}) == len({id(said) for said in r.warnings}) == 1
    assert len({*r.request_id}) == 300


def test_no_records_make_empty_columns() -> None:
    """A run in which nothing fell due is still a run."""
    run = run_of([])
    assert len(run.records) == 0
    assert run.records.gap_start.tolist() == [0]


@pytest.mark.parametrize(
    "changes",
    [
        {"gaps_us": [-1]},
        {"gaps_us": [2**32]},
        {"event_tokens": [1]},
        {"event_tokens": 2},
        {"event_tokens": [1, -1]},
    ],
)
def test_gaps_and_counts_that_cannot_be_are_refused_with_their_row(changes: dict[str, Any]) -> None:
    """The error names the row, since no line number is known in memory."""
    with pytest.raises(ValueError, match="row 3:"):
        Records.from_records([ok(3, 0.0, **{"gaps_us": [5]} | changes)])


def test_a_record_is_on_disk_as_soon_as_it_was_appended(tmp_path: Path) -> None:
    """A killed process loses no request that had ended: another reader sees the line before close."""
    with RunWriter(tmp_path / "run") as writer:
        writer.append(ok(0))
        line = (tmp_path / "run" / "records.jsonl").read_bytes()
    assert line.endswith(b"\n")
    assert json.loads(line)["index"] == 0


def test_all_keys_are_written_and_nothing_but_strict_json(tmp_path: Path) -> None:
    """Absent values are null; a NaN or an infinity that slipped in becomes null too."""
    folder = written(tmp_path / "run", [ok(0, retry_after_s=float("nan"), connect_s=float("inf"))])

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    line = json.loads((folder / "records.jsonl").read_text(), parse_constant=refuse)
    assert set(line) == {f.encode_name for f in msgspec.structs.fields(RequestRecord)}
    assert line["retry_after_s"] is None
    assert line["connect_s"] is None
    assert "class" in line


def test_the_header_is_replaced_whole(tmp_path: Path) -> None:
    """The last header written is the one read, and no half-written file stays behind."""
    with RunWriter(tmp_path / "run") as writer:
        writer.write_header(header(complete=False))
        writer.write_header(header(complete=True, rows_due=0, notes=["warm"]))
    assert load(tmp_path / "run").header == header(complete=True, rows_due=0, notes=["warm"])
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == ["records.jsonl", "run.json"]


def test_a_folder_that_is_not_empty_is_refused_and_the_flag_named(tmp_path: Path) -> None:
    """Two runs never mix in one folder."""
    (tmp_path / "summary.json").touch()
    with pytest.raises(ScenarioError, match=r"is not empty.*--out"):
        RunWriter(tmp_path)


def test_a_folder_that_cannot_be_made_is_the_users_mistake(tmp_path: Path) -> None:
    """A file in the way is told in one line, with the flag that helps."""
    (tmp_path / "file").touch()
    with pytest.raises(ScenarioError, match=r"cannot make the run folder.*--out"):
        RunWriter(tmp_path / "file" / "run")


def test_an_empty_folder_with_missing_parents_is_made(tmp_path: Path) -> None:
    """Parents are made on the way; an empty folder that exists is as good as none."""
    (tmp_path / "a").mkdir()
    assert len(load(written(tmp_path / "a" / "b" / "c", [ok(0)])).records) == 1


def test_a_last_line_cut_anywhere_is_left_out_and_counted(tmp_path: Path) -> None:
    """However much of the last line was lost, the others are read; without its end mark it is whole."""
    path = written(tmp_path / "run", [ok(0), ok(1), ok(2)]) / "records.jsonl"
    whole = path.read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    for cut in range(last + 1, len(whole)):
        path.write_bytes(whole[:cut])
        run = load(path.parent)
        is_torn = cut < len(whole) - 1
        assert (len(run.records), run.torn_lines) == ((2, 1) if is_torn else (3, 0)), cut


def test_a_line_cut_anywhere_costs_no_other_that_was_written_behind_it(tmp_path: Path) -> None:
    """One process was killed in the midst of a write, another went on in the same file."""
    path = written(tmp_path / "run", [ok(0), ok(1), ok(2)]) / "records.jsonl"
    first, second, third = path.read_bytes().splitlines(keepends=True)
    for cut in range(1, len(second)):
        path.write_bytes(first + second[:cut] + third)
        run = load(path.parent)
        assert (list(run.records.index), run.torn_lines) == ([0, 2], 1), cut
    path.write_bytes(first[:40] + second[:50] + third)
    assert load(path.parent).torn_lines == 2


def test_a_broken_line_in_the_middle_is_an_error_with_its_place(tmp_path: Path) -> None:
    """Only the end of the file may be cut short."""
    path = written(tmp_path / "run", [ok(0), ok(1)]) / "records.jsonl"
    first, second = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + b'{"index": 3\n' + second)
    with pytest.raises(ScenarioError, match=r"records\.jsonl:2: "):
        load(path.parent)


def test_a_line_with_an_unknown_outcome_is_an_error_with_its_place(tmp_path: Path) -> None:
    """A value outside the vocabulary is never read as something else."""
    path = written(tmp_path / "run", [ok(0), ok(1)]) / "records.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"outcome":"ok"', b'"outcome":"fine"', 1))
    with pytest.raises(ScenarioError, match=r"records\.jsonl:1: .*fine"):
        load(path.parent)


def test_a_last_line_that_is_whole_but_wrong_is_not_taken_for_a_torn_one(tmp_path: Path) -> None:
    """A missing end mark excuses a line that breaks off, and no other."""
    path = written(tmp_path / "run", [ok(0)]) / "records.jsonl"
    path.write_bytes(path.read_bytes() + b'{"index": 1}')
    with pytest.raises(ScenarioError, match=r"records\.jsonl:2: .*request_id"):
        load(path.parent)


def test_a_row_recorded_twice_is_an_error_with_both_places(tmp_path: Path) -> None:
    """Each row that fell due has exactly one record."""
    folder = written(tmp_path / "run", [ok(4), ok(5), ok(4)])
    with pytest.raises(ScenarioError, match=r"records\.jsonl:3: row 4 stands on line 1 already"):
        load(folder)


def test_several_writers_append_to_one_file(tmp_path: Path) -> None:
    """Line by line, in the order in which they were appended; none overwrites another's."""
    folder = tmp_path / "run"
    with RunWriter(folder) as one, RecordWriter(folder) as two:
        for index in range(6):
            (two if index % 2 else one).append(ok(index))
        one.write_header(header())
    assert list(load(folder).records.index) == list(range(6))


def test_keys_of_a_later_version_are_ignored(tmp_path: Path) -> None:
    """A key may be added to either file; older readers pass over it."""
    folder = written(tmp_path / "run", [ok(0)])
    for name in ("run.json", "records.jsonl"):
        data = json.loads((folder / name).read_text()) | {"added_later": [1]}
        (folder / name).write_text(json.dumps(data) + "\n")
    assert len(load(folder).records) == 1


def test_another_schema_is_named(tmp_path: Path) -> None:
    """A folder of another schema is refused before its keys are looked at."""
    folder = written(tmp_path / "run", [])
    (folder / "run.json").write_text('{"schema": 2, "run_id": 5}')
    with pytest.raises(ScenarioError, match="schema 2 is not 1"):
        load(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 1}'])
def test_a_broken_header_is_told_with_its_file(tmp_path: Path, text: str) -> None:
    """Broken or foreign JSON in run.json ends in one line that names the file."""
    folder = written(tmp_path / "run", [])
    (folder / "run.json").write_text(text)
    with pytest.raises(ScenarioError, match=r"run\.json: "):
        load(folder)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"index": 2**63}, "index"),
        ({"index": 2**70}, "index"),
        ({"index": -1}, "index"),
        ({"due_s": 1e300}, "due_s"),
        ({"due_s": -1.0}, "due_s"),
        ({"first_token_s": 1e308}, "first_token_s"),
        ({"output_tokens": 10**400}, "output_tokens"),
        ({"prompt_tokens": -4}, "prompt_tokens"),
        ({"attempts": -3}, "attempts"),
        ({"status": 10**30}, "status"),
        ({"gaps_us": [-1]}, "gaps_us"),
        ({"event_tokens": [2**40]}, "event_tokens"),
        ({"ended_s": 0.5}, "ended_s is before due_s"),
        ({"started_s": 1.5, "ended_s": 1.4}, "first_event_s is before started_s"),
        ({"first_choice_s": 1.05}, "first_choice_s is before first_event_s"),
        ({"first_choice_s": 1.11}, "first_token_s is before first_choice_s"),
        ({"last_choice_s": 1.11}, "last_choice_s is before last_token_s"),
        ({"last_choice_s": 1.13}, "ended_s is before last_choice_s"),
        ({"first_token_s": 1.3}, "last_token_s is before first_token_s"),
        ({"ended_s": 1.11}, "ended_s is before last_token_s"),
        ({"gaps_us": [10_000, 10_003]}, "gaps_us do not add up to last_token_s - first_token_s"),
        ({"first_token_s": None, "last_token_s": None}, "gaps_us do not add up"),
    ],
)
def test_figures_that_cannot_be_are_refused_with_file_line_and_key(
    tmp_path: Path, changes: dict[str, Any], rule: str
) -> None:
    """The second line of three is damaged: never a crash in the statistics, never a figure made of it."""
    path = written(tmp_path / "run", [ok(i, 1.0, gaps_us=[10_000] * 2) for i in range(3)]) / "records.jsonl"
    lines = path.read_text().splitlines()
    lines[1] = json.dumps(json.loads(lines[1]) | changes)
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(ScenarioError) as told:
        load(path.parent)
    assert str(told.value).startswith(f"{path}:2: ")
    assert rule in str(told.value)


@pytest.mark.parametrize(
    ("scenario", "rule"),
    [
        ({"goodput": 5}, "scenario: goodput: must hold keys and values"),
        ({"goodput": {"ttft": "banana"}}, "scenario: goodput.ttft: 'banana' is not a duration"),
        (
            {"load": {"arrivals": {"kind": "poisson", "rate": "x"}}},
            "scenario: load.arrivals.rate: 'x' is not",
        ),
        ({"load": []}, "scenario: load: must hold keys and values"),
    ],
)
def test_a_header_with_a_scenario_that_is_none_is_refused(
    tmp_path: Path, scenario: dict[str, Any], rule: str
) -> None:
    """What statistics read of the scenario must be readable; keys of a later version are passed over."""
    folder = written(tmp_path / "run", [])
    data = json.loads((folder / "run.json").read_text())
    data["scenario"] |= {"of_a_later_version": 1}
    (folder / "run.json").write_text(json.dumps(data))
    load(folder)
    data["scenario"] |= scenario
    (folder / "run.json").write_text(json.dumps(data))
    with pytest.raises(ScenarioError) as told:
        load(folder)
    assert str(told.value).startswith(f"{folder / 'run.json'}: {rule}")


def test_half_a_surrogate_pair_costs_no_row(tmp_path: Path) -> None:
    """A text that no file can hold is written with a question mark in its place, and all else as it is."""
    folder = written(tmp_path / "run", [failed(0, error="bad \ud800 text", connect_s=float("nan")), ok(1)])
    run = load(folder)
    assert run.records.error == ["bad ? text", None]
    assert run.records.index.tolist() == [0, 1]


def test_what_is_not_a_run_folder_is_told_apart(tmp_path: Path) -> None:
    """Neither an empty folder, nor a missing one, nor one without records is read as an empty run."""
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(ScenarioError, match="is not a run folder"):
            load(folder)
    folder = written(tmp_path / "run", [])
    (folder / "records.jsonl").unlink()
    with pytest.raises(ScenarioError, match="no records"):
        load(folder)


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """Where a file cannot be put in its place, one line says so, and nothing half-written stays."""
    (tmp_path / "summary.json").mkdir()
    with pytest.raises(WriteError, match=r"cannot write .*summary\.json: Is a directory"):
        write_whole(tmp_path / "summary.json", b"{}")
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]
    for nameless in (".", "..", "/"):
        with pytest.raises(WriteError, match="cannot write"):
            write_whole(Path(nameless), b"{}")


def test_the_scenario_is_asked_by_path() -> None:
    """What the scenario leaves out, at any depth, is None."""
    run = Run(header(scenario={"load": {"max_in_flight": 4}, "goodput": None}), Records.from_records([]))
    assert run.asked("load", "max_in_flight") == 4
    assert run.asked("load", "arrivals", "kind") is None
    assert run.asked("goodput", "ttft") is None


def test_what_is_no_plain_file_is_not_replaced(tmp_path: Path) -> None:
    """A pipe is refused, and so is a link to one; a link to a file stays, and its file is written."""
    os.mkfifo(tmp_path / "pipe")
    for name, leads_to in (("to-pipe", "pipe"), ("to-file", "file")):
        (tmp_path / name).symlink_to(leads_to)
    for name in ("pipe", "to-pipe"):
        with pytest.raises(WriteError, match="no plain file"):
            write_whole(tmp_path / name, b"{}")
    write_whole(tmp_path / "to-file", b"{}")
    assert (tmp_path / "to-file").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"{}"
    assert (tmp_path / "pipe").is_fifo()


def test_two_runs_that_find_one_folder_empty_do_not_share_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Both looked before either wrote: the second is told what it would have been told a moment later."""
    with RunWriter(tmp_path / "run") as writer:
        writer.append(ok(0))
        monkeypatch.setattr(sys.modules[RunWriter.__module__], "refuse_used", lambda folder: None)
        with pytest.raises(ScenarioError, match="run is not empty: choose another folder with --out"):
            RunWriter(tmp_path / "run")
        with RecordWriter(tmp_path / "run") as process_of_the_first:
            process_of_the_first.append(ok(1))
    assert (tmp_path / "run" / "records.jsonl").read_bytes().count(b"\n") == 2


def test_a_folder_that_cannot_be_made_is_refused_before_anything_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a disk that is read-only, however deep below what exists; it is not tried by writing."""
    asked = []

    def refuses(path: Path, mode: int) -> bool:
        asked.append(path)
        return False

    monkeypatch.setattr("os.access", refuses)
    with pytest.raises(ScenarioError, match=r"^cannot make the run folder .*: Permission denied; choose"):
        refuse_used(tmp_path / "a" / "b")
    assert asked == [tmp_path]
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("key", ["plan_rows", "rows_due", "rows_not_sent", "rows_lost", "rows_dropped"])
def test_a_header_counts_from_nought(tmp_path: Path, key: str) -> None:
    """A count below it is nobody's, and would let another be too large."""
    folder = written(tmp_path / "r", [])
    told = json.loads((folder / "run.json").read_bytes()) | {key: -1}
    (folder / "run.json").write_text(json.dumps(told))
    with pytest.raises(ScenarioError, match=rf"run\.json: .*{key}"):
        load(folder)


@pytest.mark.parametrize("there", [None, "another"])
def test_a_folder_that_was_replaced_is_not_taken_for_ours(tmp_path: Path, there: str | None) -> None:
    """Removed, and made again by another run: nothing is written into it, and its rows are not ours."""
    with RunWriter(tmp_path / "r") as ours:
        ours.write_header(header())
        (tmp_path / "r").rename(tmp_path / "away")
        if there is not None:
            written(tmp_path / "r", [ok(0)])
        place = r"/r: " if there else r"/r/records\.jsonl: No such file"
        with pytest.raises(WriteError, match=rf"cannot write .*{place}") as said:
            ours.write_header(header(complete=True))
        with pytest.raises(WriteError, match=rf"cannot write .*{place}"):
            ours.write("workers.json", b"[]")
    assert not (tmp_path / "r" / "workers.json").exists()
    assert ("another run's records" in str(said.value)) == (there is not None)
    assert hasattr(said.value, "__notes__") == (there is not None), "or its reader is sent to the other's"
    if there is not None:
        assert load(tmp_path / "r").header == header(rows_due=1)
