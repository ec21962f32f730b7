"""`loadgen run --virtual --trace`: what the engine did, printed and kept."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from loadgen.cli import main
from loadgen.engine.trace import Iteration, passages, totals
from loadgen.iterations import iterations
from loadgen.scenario import build, load
from loadgen.workload import draw
from tests.engine.iterations import BASELINE

ROOT = Path(__file__).parents[2]
TEACHING = ROOT / "workloads" / "teaching.yaml"

# first output / completed of A to F, as worked out on paper from the scheduler's rules
PAPER = {
    "baseline": ("3/5", "1/2", "1/1", "3/4", "5/5", "rejected"),
    "chunk6": ("0/2", "3/4", "1/1", "2/3", "4/4", "rejected"),
    "no-preemption": ("1/3", "1/2", "3/3", "5/6", "rejected", "rejected"),
}
UNUSED = {
    "baseline": [0, 3, 2, 2, 4, 4],
    "chunk6": [0, 3, 1, 1, 4],
    "no-preemption": [0, 2, 4, 3, 3, 5, 5],
}
SMALL = """\
engine: {cost: {kind: fixed, step: 10ms}}
load: {arrivals: {kind: burst}, num_requests: 4, prompt_tokens: 8, output_tokens: 3}
"""


class Ended(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def loadgen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Ended]:
    """Run the command line in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> Ended:
        monkeypatch.setattr("sys.argv", ["loadgen", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        assert isinstance(ended.value.code, int)
        return Ended(int(ended.value.code), *capsys.readouterr())

    return run


def sections(out: str) -> dict[str, list[list[str]]]:
    """The words of each line under each variant's headline."""
    found: dict[str, list[list[str]]] = {}
    for line in out.splitlines():
        if line.endswith("SIMULATED in virtual time"):
            found[line.split()[0]] = []
        elif found:
            found[next(reversed(found))].append(line.split())
    return found


def printed(lines: list[list[str]], first: str) -> list[str]:
    return next(words for words in lines if words[:1] == [first])


def test_the_teaching_scenario_prints_what_was_worked_out_on_paper(loadgen: Callable[..., Ended]) -> None:
    """Every variant in turn: who got a first token when, who ended when, who was refused."""
    ended = loadgen("run", "teaching", "--virtual", "--trace", "--out", "t")
    assert ended.code == 0, ended.err
    shown = sections(ended.out)
    assert list(shown) == ["baseline", "chunk6", "no-preemption", "overload"]
    for variant, ways in PAPER.items():
        for name, way in zip("ABCDEF", ways, strict=True):
            cells = printed([w for w in shown[variant] if w[-1:] in (["completed"], ["rejected"])], name)
            assert cells[-1] == "rejected" if way == "rejected" else "/".join(cells[1:3]) == way
        assert ["decode", "waited", "never"] in [words[:3] for words in shown[variant]]
        assert ["longest", "queue", "2"] in [words[:3] for words in shown[variant]]
    put_back = {variant: printed(lines, "preemptions")[1] for variant, lines in shown.items()}
    assert put_back == {"baseline": "1", "chunk6": "1", "no-preemption": "0", "overload": "0"}
    refused = {variant: printed(lines, "rejections")[1] for variant, lines in shown.items()}
    assert refused == {"baseline": "1", "chunk6": "1", "no-preemption": "2", "overload": "19"}


def test_the_teaching_trace_is_kept_iteration_by_iteration(loadgen: Callable[..., Ended]) -> None:
    """The baseline's whole trace, the unused budgets of the others, and H refused at full slots and queue."""
    loadgen("run", "teaching", "--virtual", "--trace", "--out", "t")
    assert list(iterations(Path("t/baseline"))) == BASELINE
    for variant, unused in UNUSED.items():
        assert [it.unused_tokens for it in iterations(Path("t") / variant)] == unused
    crowded = list(iterations(Path("t/overload")))
    assert crowded[5].rejected == ["X5a", "X5b", "H"]
    assert totals(crowded).longest_queue == 2
    assert [p.request for p in passages(crowded) if p.result == "completed"] == [
        *("A", "B", "X0a", "X0b", "X3a", "X4a", "X7a", "X8a")
    ]


def test_the_overload_is_the_base_load_with_two_more_in_each_of_ten_seconds() -> None:
    """And an urgent one at the sixth."""
    asked = load(TEACHING)
    base, crowded = (draw(single) for single in (asked.single("baseline"), asked.single("overload")))
    assert base.ids is not None
    assert crowded.ids is not None
    assert set(crowded.ids) - set(base.ids) == {f"X{n}{x}" for n in range(10) for x in "ab"} | {"H"}
    due_s = dict(zip(crowded.ids, (crowded.due_ns / 1e9).tolist(), strict=True))
    assert (due_s["X7a"], due_s["X7b"], due_s["H"]) == (7.0, 7.0, 5.0)


def test_a_variant_s_own_load_is_kept_with_the_scenario() -> None:
    """As asked, it can be read again."""
    asked = load(TEACHING)
    assert build(asked.as_asked()) == asked


def test_a_trace_of_one_run_is_kept_beside_its_records(loadgen: Callable[..., Ended]) -> None:
    """The same run as without; both files are whole; the folder can be reported as ever."""
    Path("s.yaml").write_text(SMALL)
    assert loadgen("run", "s.yaml", "--virtual", "--no-tail", "--out", "plain").code == 0
    assert loadgen("run", "s.yaml", "--virtual", "--no-tail", "--out", "traced", "--trace").code == 0
    added = {p.name for p in Path("traced").iterdir()} - {p.name for p in Path("plain").iterdir()}
    assert added == {"iterations.jsonl", "trace.json"}
    plain, with_trace = (Path(f, "summary.json").read_text() for f in ("plain", "traced"))
    ids = [json.loads(text)["run_id"] for text in (plain, with_trace)]
    assert plain.replace(ids[0], "") == with_trace.replace(ids[1], "")
    drawing = json.loads(Path("traced/trace.json").read_text())
    assert {event["ph"] for event in drawing["traceEvents"]} == {"M", "B", "E", "C"}
    assert loadgen("report", "traced").code == 0


def test_a_run_that_fails_its_slo_says_so_with_its_trace(loadgen: Callable[..., Ended]) -> None:
    """Exit 1, and why: the verdict first, then the iterations; in JSON too."""
    Path("s.yaml").write_text(SMALL)
    failing = ("run", "s.yaml", "--virtual", "--trace", "--slo", "max(ttft) <= 1ms")
    ended = loadgen(*failing, "--out", "a")
    assert ended.code == 1
    assert 0 < ended.out.index("FAIL  1 of 1 SLOs") < ended.out.index("Iterations")
    found = json.loads(loadgen(*failing, "--out", "b", "--json").out)
    assert {told["verdict"] for told in found.values()} == {"FAIL"}


def test_json_holds_the_totals_and_says_where_the_trace_is(loadgen: Callable[..., Ended]) -> None:
    """Alone on stdout, by the name of the run or the variant."""
    ended = loadgen("run", "teaching", "--virtual", "--trace", "--out", "t", "--json", "--quiet")
    found = json.loads(ended.out)
    assert list(found) == ["baseline", "chunk6", "no-preemption", "overload"]
    assert found["no-preemption"]["totals"]["unused_tokens"] == sum(UNUSED["no-preemption"])
    assert found["chunk6"]["iterations"] == str(Path("t/chunk6/iterations.jsonl"))
    assert Path(found["chunk6"]["trace"]).is_file()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "teaching", "--trace"], "--trace shows what the simulated engine does: it needs --virtual"),
        (["run", "teaching", "--virtual"], "use loadgen compare teaching, or run it with --virtual --trace"),
        (["compare", "teaching", "--virtual"], "variants.overload.load: a comparison has one plan for all"),
        (["run", "mixed.yaml", "--virtual", "--trace"], "mixed.yaml: variants.far: target: only the bundled"),
    ],
)
def test_what_cannot_be_traced_or_compared_is_said_in_one_line(
    loadgen: Callable[..., Ended], words: list[str], said: str
) -> None:
    """Exit 2, and nothing is written."""
    Path("mixed.yaml").write_text(
        SMALL + "variants: {a: {}, far: {target: {base_url: 'http://127.0.0.1:1'}}}\n"
    )
    ended = loadgen(*words)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
    assert len(ended.err.splitlines()) == 1
    assert [p.name for p in Path().iterdir()] == ["mixed.yaml"]


def test_an_interrupted_trace_is_kept_and_drawn_as_far_as_it_goes(
    loadgen: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 130; the first variant's iterations until then, and no other variant's."""
    from loadgen.iterations import IterationWriter

    append = IterationWriter.append

    def interrupting(file: IterationWriter, it: Iteration) -> None:
        append(file, it)
        if it.iteration == 1:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(IterationWriter, "append", interrupting)
    ended = loadgen("run", "teaching", "--virtual", "--trace", "--out", "t")
    assert ended.code == 130
    assert [p.name for p in Path("t").iterdir()] == ["baseline"]
    assert list(iterations(Path("t/baseline"))) == BASELINE[:2]
    assert json.loads(Path("t/baseline/trace.json").read_text())["traceEvents"]
    assert "unfinished" in ended.out
