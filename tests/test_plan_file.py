"""A plan in a file is the plan."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loadgen import plan_file
from loadgen.plan import COLUMNS, NONE, Blocks, Phase, Plan, PromptRecipe, Window
from loadgen.prompts import Prompts, SharedPrefix
from loadgen.scenario import Scenario, ScenarioError, build
from loadgen.workload import draw

ENDINGS = ("parquet", "csv", "jsonl")
SCENARIO = build(
    {
        "name": "kept",
        "seed": 7,
        "load": {
            "arrivals": {"kind": "poisson", "rate": "8/s"},
            "num_requests": 3,
            "extra_body": {"api_key": "sk-1", "top_k": 2},
        },
    }
)


def plan_of(due_ns: list[int], **other: Any) -> Plan:
    n = len(due_ns)
    columns: dict[str, Any] = {
        "index": np.arange(n, dtype=np.int64),
        "due_ns": np.array(due_ns, np.int64),
        "prompt_tokens": np.full(n, 40, np.int32),
        "output_tokens": np.arange(1, n + 1, dtype=np.int32),
        "phase": np.full(n, Phase.MEASURED, np.uint8),
        "priority": np.full(n, -3, np.int32),
        "window": Window(0, due_ns[-1] if due_ns else 0, "count"),
        "prompts": PromptRecipe(seed=7),
    }
    return Plan(**(columns | other))


def full() -> Plan:
    """A plan that has something of everything."""
    return plan_of(
        [5, 5, 9_000_000_000_000_001],
        class_id=np.array([0, 1, 1], np.uint8),
        session=np.array([NONE, 4, 4], np.int64),
        turn=np.array([0, 1, 2], np.int32),
        after=np.array([NONE, NONE, 1], np.int64),
        think_ns=np.array([0, 0, 123_456_789_012], np.int64),
        history_tokens=np.array([0, 0, 21], np.int32),
        group=np.array([NONE, 2, NONE], np.int32),
        source=np.array([0, 1, NONE], np.int32),
        ids=("a,\"b'#", None, "c"),
        classes=("chat", "code"),
        law_hash="ab12",
        notes=("2 rows dropped: déjà vu\u2028",),
        prompts=PromptRecipe(
            seed=7,
            texts=("hello\n# world", [{"role": "user", "content": "é\ud7ff"}], None),
            bodies=({"temperature": 0.1, "stop": ["#"]}, None, None),
            blocks=Blocks(16, np.array([3, 9], np.int64), np.array([0, 1, 1, 2], np.int64)),
            styles=(Prompts(), Prompts(prefix=SharedPrefix(kind="shared", tokens=9))),
        ),
    )


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_plan_read_back_is_the_plan_written(ending: str, tmp_path: Path) -> None:
    """Every column, id, prompt and note comes back, and so does the digest."""
    plan, path = full(), tmp_path / f"p.{ending}"
    plan_file.write(plan, SCENARIO, path)
    kept = plan_file.read(path)
    assert not kept.is_edited
    assert kept.plan.digest() == plan.digest()
    assert list(kept.plan.rows()) == list(plan.rows())
    assert (kept.plan.notes, kept.plan.window, kept.plan.users) == (plan.notes, plan.window, None)
    assert [getattr(kept.plan, name).dtype for name in COLUMNS] == [
        getattr(plan, name).dtype for name in COLUMNS
    ]
    assert list(tmp_path.iterdir()) == [path]


def test_the_plan_of_everything_leaves_nothing_out() -> None:
    """The plan above differs from an empty one in every field, so that no field can be forgotten."""
    ours, plain = full(), plan_of([1, 2, 3])
    same = [
        field.name
        for whole, other in ((ours, plain), (ours.prompts, plain.prompts))
        for field in fields(whole)
        if np.array_equal(getattr(whole, field.name), getattr(other, field.name))
    ]
    columns = ["index", "prompt_tokens", "output_tokens", "phase", "priority"]
    assert same == [*columns, "users", "more", "seed", "kind"]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    due_ns=st.lists(st.integers(0, 2**62), min_size=1, max_size=9).map(sorted),
    ids=st.lists(st.none() | st.from_regex(r"[a-z!-/]{1,9}", fullmatch=True), min_size=9, max_size=9),
    text=st.text(st.characters(exclude_categories=["Cs"]), max_size=9),
    users=st.none() | st.integers(1, 9),
    ending=st.sampled_from(ENDINGS),
)
def test_whatever_a_plan_holds_its_digest_survives(
    due_ns: list[int], ids: list[str | None], text: str, users: int | None, ending: str, tmp_path: Path
) -> None:
    """Any instants, ids and texts are kept, in each of the three formats."""
    plan = plan_of(
        due_ns,
        ids=tuple(ids[: len(due_ns)]),
        users=users,
        source=np.zeros(len(due_ns), np.int32),
        prompts=PromptRecipe(seed=1, texts=(text,)),
    )
    if not any(plan.ids or ()):
        plan = replace(plan, ids=None)
    path = tmp_path / f"p.{ending}"
    plan_file.write(plan, SCENARIO, path)
    assert plan_file.read(path).plan.digest() == plan.digest()


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_scenario_comes_along_without_its_secrets(ending: str, tmp_path: Path) -> None:
    """What was asked is in the file, so that a replay needs no other; a key is not."""
    path = tmp_path / f"p.{ending}"
    plan_file.write(full(), SCENARIO, path)
    kept = plan_file.read(path).scenario
    assert b"sk-1" not in path.read_bytes()
    assert (kept.name, kept.seed, kept.load.arrivals) == ("kept", 7, SCENARIO.load.arrivals)
    assert kept.load.extra_body == {"api_key": "***", "top_k": 2}


def edited(path: Path, old: str, new: str) -> plan_file.Kept:
    text = path.read_text()
    assert text.count(old) >= 1
    path.write_text(text.replace(old, new, 1))
    return plan_file.read(path)


@pytest.mark.parametrize(
    ("ending", "old", "new"), [("csv", "\n2,9", "\n2,8"), ("jsonl", '"due_ns":9', '"due_ns":8')]
)
def test_an_edited_plan_is_read_and_known_as_edited(ending: str, old: str, new: str, tmp_path: Path) -> None:
    """A row changed by hand is what the file now says, and the digest in the head no longer agrees."""
    path = tmp_path / f"p.{ending}"
    plan_file.write(full(), SCENARIO, path)
    kept = edited(path, old, new)
    assert kept.is_edited
    assert kept.plan.due_ns[2] == 8_000_000_000_000_001
    replayed = kept.to_replay(lambda _: pytest.fail("nothing is drawn for an edited plan"))
    assert "edited" in replayed.notes[-1]
    assert not list(replayed.tail())


def endless(plan: Plan) -> Plan:
    def more() -> Iterator[Plan]:
        yield plan_of([10**13])

    return replace(plan, more=more)


def test_the_load_after_the_rows_is_drawn_anew(tmp_path: Path) -> None:
    """The scenario in the file draws the same plan, so its tail goes on; else there is none."""
    path = tmp_path / "p.csv"
    plan_file.write(endless(full()), SCENARIO, path)
    kept = plan_file.read(path)

    def draws(asked: Scenario) -> Plan:
        assert asked.seed == 7
        return endless(full())

    def cannot(_: Scenario) -> Plan:
        raise ScenarioError("trace.csv: cannot be read")

    assert len(list(kept.to_replay(draws).tail())) == 1
    other = kept.to_replay(lambda _: endless(plan_of([1, 2, 3])))
    assert other.digest() == full().digest()
    assert not list(other.tail())
    assert "draws another plan" in other.notes[-1]
    assert "trace.csv: cannot be read" in kept.to_replay(cannot).notes[-1]


def test_a_closed_loop_by_duration_goes_on_without_a_tail(tmp_path: Path) -> None:
    """Its plan has but the first row of each user; the others are measured, not load after the rows."""
    loop = {"arrivals": {"kind": "closed", "concurrency": 2}, "duration": "20s", "tail": False}
    scenario = build({"load": loop})
    plan_file.write(draw(scenario), scenario, tmp_path / "p.csv")
    replayed = plan_file.read(tmp_path / "p.csv").to_replay(draw)
    assert next(replayed.tail()).index.tolist() == next(draw(scenario).tail()).index.tolist()
    assert not replayed.notes


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("\n1,5,", "\n1,4,", "row 2: due_ns is before the row before it"),
        ("\n1,5,40", "\n1,5,0", "row 2: prompt_tokens must be from 1 to 2147483647"),
        ("\n1,5,40", "\n1,5,4000000000", "row 2: prompt_tokens must be from 1 to 2147483647"),
        ("\n1,5,40", f"\n1,5,{2**64}", "p.csv: "),
        ("\n1,5,40", "\n1,5,many", "p.csv:17: Expected `int`, got `str`"),
        (",id\n", ",xid\n", "p.csv: column id is missing"),
        ("\n1,5,", "\n0,5,", "row 2: its index is that of an earlier row"),
        ("\n1,5,", "\n1,5,9,", "p.csv:17: 16 cells, not 15"),
        ("2,1,", "2,2,", "row 2: phase must be 0"),
        (",1,4,2,1,", ",7,4,2,1,", "row 3: class_id is no place in classes"),
        (",1,4,2,1,", ",1,4,2,2,", "row 3: after is no row before it"),
        (",21,", ",40,", "row 3: history_tokens must be below prompt_tokens"),
        (",2,1,\n", ",2,3,\n", "row 2: source is no place in texts, bodies or blocks"),
        (",c\n", ",c d\n", "1 to 128 printable ASCII"),
        ("# digest", "# digits", "not a plan that loadgen wrote"),
        ("# format: 1", "# format: 2", "plan format 2 is not 1"),
        ("# users: null", "# users: nil", "p.csv: JSON is malformed"),
        ('"by": "count"', '"by": "often"', "p.csv: Invalid enum value"),
        ('"rate": "8/s"', '"rate": "fast"', "p.csv: scenario: load.arrivals.rate: 'fast' is not a rate"),
    ],
)
def test_what_is_no_plan_is_refused_with_its_place(old: str, new: str, told: str, tmp_path: Path) -> None:
    """A broken file is one clear line."""
    path = tmp_path / "p.csv"
    plan_file.write(full(), SCENARIO, path)
    with pytest.raises(ScenarioError) as found:
        edited(path, old, new)
    assert told in str(found.value)
    assert "p.csv" in str(found.value)


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}\n", b"\xff\xfe", b"PAR1PAR1", b'{"loadgen": 3}\n', b"# a: [\n"]
)
def test_any_other_file_is_refused(content: bytes, ending: str, tmp_path: Path) -> None:
    """Whatever stands in a file, reading it ends in a plan or in one line."""
    (path := tmp_path / f"p.{ending}").write_bytes(content)
    with pytest.raises(ScenarioError, match=rf"p\.{ending}") as found:
        plan_file.read(path)
    assert "\n" not in str(found.value)


def test_other_endings_and_absent_files_are_the_users_mistake(tmp_path: Path) -> None:
    """The three endings are told."""
    with pytest.raises(ScenarioError, match=r"\.parquet, \.csv, \.jsonl"):
        plan_file.write(full(), SCENARIO, tmp_path / "p.xml")
    with pytest.raises(ScenarioError, match=r"p\.csv: cannot be read: No such file"):
        plan_file.read(tmp_path / "p.csv")
    with pytest.raises(ScenarioError, match=r"cannot be written: No such file"):
        plan_file.write(full(), SCENARIO, tmp_path / "no" / "p.csv")


def test_parquet_without_pyarrow_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other two formats need nothing."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ScenarioError, match=r"/p\.parquet: .*loadgen\[parquet\]"):
        plan_file.write(full(), SCENARIO, tmp_path / "p.parquet")
    plan_file.write(full(), SCENARIO, tmp_path / "p.csv")


def test_other_programs_read_the_rows(tmp_path: Path) -> None:
    """CSV rows stand below the lines that begin with #; JSON lines are objects of the same keys."""
    plan_file.write(full(), SCENARIO, tmp_path / "p.csv")
    plan_file.write(full(), SCENARIO, tmp_path / "p.jsonl")
    lines = [line for line in (tmp_path / "p.csv").read_text().splitlines() if not line.startswith("# ")]
    rows = list(csv.DictReader(lines))
    objects = [json.loads(line) for line in (tmp_path / "p.jsonl").read_bytes().splitlines()][1:]
    assert [row["id"] for row in rows] == ["a,\"b'#", "", "c"]
    assert [row["due_ns"] for row in rows] == ["5", "5", "9000000000000001"]
    assert [{key: str(o[key]) for key in COLUMNS} for o in objects] == [
        {key: row[key] for key in COLUMNS} for row in rows
    ]


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("due_ns", ["x", "y", "z"]),
        ("due_ns", [0.5, 1.5, 2.5]),
        ("due_ns", [None, 1, 2]),
        ("due_ns", [[1], [2], [3]]),
        ("due_ns", np.array([2**63] * 3, np.uint64)),
        ("id", [1, 2, 3]),
    ],
)
def test_a_parquet_column_of_another_type_is_refused_in_one_line(
    column: str, values: Any, tmp_path: Path
) -> None:
    """It names the column, or the row."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    plan_file.write(full(), SCENARIO, tmp_path / "p.parquet")
    table = parquet.read_table(tmp_path / "p.parquet")
    place = table.column_names.index(column)
    parquet.write_table(table.set_column(place, column, arrow.array(values)), tmp_path / "p.parquet")
    with pytest.raises(ScenarioError, match=rf"p\.parquet: (column|row 1:) {column}") as told:
        plan_file.read(tmp_path / "p.parquet")
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_a_head_that_is_nested_without_end_is_refused(ending: str, tmp_path: Path) -> None:
    """The decoder's own limit is the file's fault."""
    path = tmp_path / f"p.{ending}"
    path.write_text(("# digest: " if ending == "csv" else '{"loadgen":') + "[" * 100_000 + "\n")
    with pytest.raises(ScenarioError, match="recursion"):
        plan_file.read(path)


def test_prompts_of_another_version_are_refused(tmp_path: Path) -> None:
    """They could not be made."""
    plan_file.write(full(), SCENARIO, tmp_path / "p.csv")
    with pytest.raises(ScenarioError, match=r"kind: prompts are of 'other'"):
        edited(tmp_path / "p.csv", f'# kind: "{PromptRecipe(seed=0).kind}"', '# kind: "other"')
