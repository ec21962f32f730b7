"""`loadgen plan`: look, keep, replay, compare."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from loadgen import plan_file
from loadgen.cli import replaying
from loadgen.cli.app import app
from loadgen.scenario import ScenarioError, load
from loadgen.workload import draw

YAML = """\
name: asked
seed: 5
slos: [p99(ttft) <= 500ms]
load:
  arrivals: {kind: poisson, rate: 8/s}
  num_requests: 40
  output_tokens: {kind: uniform, min: 1, max: 9}
  ignore_eos: true
  classes:
    chat: {weight: 1}
    code: {weight: 2, model: coder}
"""


@pytest.fixture
def asked(tmp_path: Path) -> str:
    path = tmp_path / "asked.yaml"
    path.write_text(YAML)
    return str(path)


def loadgen(*words: str) -> Result:
    return CliRunner().invoke(app, words)


def kept(asked: str, ending: str = "jsonl") -> str:
    path = f"{asked}.{ending}"
    done = loadgen("plan", asked, "--export", path)
    assert done.exit_code == 0, done.output
    return path


def replayed(file: str, scenario: str | None = None, **flags: Any) -> Any:
    return replaying.replayed(file, scenario, flags)


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_a_plan_that_was_kept_is_replayed_to_the_row_and_beyond(asked: str, ending: str) -> None:
    """Without any scenario the file is enough, and its tail goes on as the scenario's would."""
    scenario, plan = replayed(kept(asked, ending))
    whole = draw(load(asked))
    assert plan.digest() == whole.digest()
    assert list(next(plan.tail()).rows()) == list(next(whole.tail()).rows())
    assert scenario.load == load(asked).load
    assert scenario.slos == load(asked).slos


def test_a_scenario_beside_the_plan_decides_how_it_is_sent_and_nothing_else(
    asked: str, tmp_path: Path
) -> None:
    """Target, classes' models, EOS and tail are the scenario's; rows, law and seed the file's."""
    file = kept(asked)
    other = tmp_path / "other.yaml"
    changed = YAML.replace("seed: 5", "seed: 9").replace("rate: 8/s", "rate: 80/s").replace("coder", "other")
    other.write_text(changed.replace("ignore_eos: true", "ignore_eos: false\n  tail: false"))
    scenario, plan = replayed(file, str(other), base_url="http://127.0.0.1:1")
    assert plan.digest() == draw(load(asked)).digest()
    assert scenario.load.arrivals == load(asked).load.arrivals
    assert (scenario.seed, scenario.load.ignore_eos, scenario.load.tail) == (5, False, False)
    assert scenario.load.classes["code"].model == "other"
    assert scenario.target is not None


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"request_rate": "3", "seed": 4}, "--seed, --request-rate cannot stand beside --plan"),
        ({"random_range_ratio": 0.0}, "--random-range-ratio cannot stand beside --plan"),
    ],
)
def test_flags_that_make_another_load_are_refused_by_name(asked: str, flags: Any, told: str) -> None:
    """A plan that was kept stays as it is."""
    with pytest.raises(ScenarioError, match=re.escape(told)):
        replayed(kept(asked), **flags)


def test_a_scenario_of_other_classes_cannot_send_the_plan(asked: str) -> None:
    """Each class of the plan needs its manner of sending."""
    with pytest.raises(ScenarioError, match="the plan's classes are chat, code, the scenario's none"):
        replayed(kept(asked), "quickstart")


def test_a_masked_body_is_not_sent(tmp_path: Path) -> None:
    """A secret is not in the file, and three stars are none: the scenario must be there."""
    secret = tmp_path / "secret.yaml"
    secret.write_text(YAML.replace("model: coder", "extra_body: {deep: {api_key: sk-1}}"))
    file = kept(str(secret))
    assert "sk-1" not in Path(file).read_text()
    with pytest.raises(ScenarioError, match="give the scenario beside --plan"):
        replayed(file)
    scenario, _ = replayed(file, str(secret))
    assert scenario.load.classes["code"].extra_body == {"deep": {"api_key": "sk-1"}}


def test_a_replay_is_simulated_as_the_scenario_is(asked: str, tmp_path: Path) -> None:
    """The command runs it: the same digest and the same rows, and an edited file says so in the run."""
    file, out = kept(asked), tmp_path / "out"
    done = loadgen("run", "--plan", file, "--virtual", "--out", str(out), "--quiet")
    assert done.exit_code == 3, done.output  # 40 requests cannot decide the SLO
    header = json.loads((out / "run.json").read_text())
    assert header["plan_digest"] == draw(load(asked)).digest()
    Path(file).write_text(Path(file).read_text().replace('"output_tokens":9', '"output_tokens":8', 1))
    loadgen("run", "--plan", file, "--virtual", "--out", str(tmp_path / "again"), "--quiet")
    header = json.loads((tmp_path / "again" / "run.json").read_text())
    assert any("edited since it was written" in note for note in header["notes"])


def test_plan_shows_a_plan_file_as_it_shows_its_scenario(asked: str) -> None:
    """The same figures, from either."""
    file = kept(asked)
    assert loadgen("plan", file).stdout == loadgen("plan", asked).stdout
    done = loadgen("plan", file, "--seed", "3")
    assert isinstance(done.exception, ScenarioError)
    assert "--seed cannot stand beside" in str(done.exception)


def test_equal_plans_are_told_so_and_different_ones_by_column(asked: str, tmp_path: Path) -> None:
    """A file against its scenario is equal: 0. One changed length is found in its row: 1."""
    file = kept(asked)
    done = loadgen("plan", "--diff", asked, file)
    assert (done.exit_code, done.stdout[:15]) == (0, "equal: 40 rows,")
    other = Path(f"{asked}.edited.jsonl")
    lines = Path(file).read_text().splitlines()
    row = json.loads(lines[7])
    lines[7] = json.dumps(row | {"output_tokens": row["output_tokens"] + 1})
    other.write_text("\n".join(lines))
    done = loadgen("plan", "--diff", file, str(other))
    assert done.exit_code == 1
    assert (
        f"output_tokens: differs in 1 of 40 rows, first in row {row['index']}: "
        f"{row['output_tokens']} and {row['output_tokens'] + 1}" in done.stdout
    )


def test_pictures_are_whole_documents(asked: str, tmp_path: Path) -> None:
    """The SVG and the page hold every chart, and neither asks the network for anything."""
    svg, page = tmp_path / "p.svg", tmp_path / "p.html"
    assert loadgen("plan", asked, "--svg", str(svg), "--html", str(page)).exit_code == 0
    drawn, text = svg.read_text(), page.read_text()
    assert drawn.startswith("<svg")
    assert drawn.rstrip().endswith("</svg>")
    for word in ("Arrivals", "Gaps", "Output tokens", "chat", "code"):
        assert f">{word}</text>" in drawn
    assert text.count("<figure ") == 3  # prompts are all of one length
    besides = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    assert not re.findall(r"""src=|href="[^#]|url\(|<script>""", besides)
    assert "</html>" in besides


def test_whether_the_slos_can_be_decided_is_said(asked: str) -> None:
    """40 requests cannot show a p99; 2,000 can."""
    assert "p99(ttft) <= 500ms: 40 requests cannot show it" in loadgen("plan", asked).stdout
    done = loadgen("plan", asked, "--num-prompts", "2000")
    assert "2,000 measured requests can decide every SLO" in done.stdout
    assert "SLOs" not in loadgen("plan", "--rate", "5", "--num-prompts", "7").stdout


@pytest.mark.parametrize(("flag", "name"), [("--svg", "p.svg"), ("--html", "p.html"), ("--export", "p.csv")])
def test_what_cannot_be_written_is_the_users_mistake(
    flag: str, name: str, asked: str, tmp_path: Path
) -> None:
    """One line with the file's name, exit 2."""
    done = loadgen("plan", asked, flag, str(tmp_path / "no" / name))
    assert isinstance(done.exception, ScenarioError)
    assert f"{name}: cannot be written: No such file" in str(done.exception)


def test_the_files_scenario_is_what_was_asked_with_flags(asked: str) -> None:
    """Flags laid over a scenario are in the file that keeps its plan."""
    path = f"{asked}.csv"
    assert loadgen("plan", asked, "--num-prompts", "3", "--export", path).exit_code == 0
    assert plan_file.read(Path(path)).scenario.load.num_requests == 3


def test_a_grid_is_told_and_checked_before_anything_is_run(tmp_path: Path) -> None:
    """`plan` draws the scenario as it stands, says how many cells there are, and refuses a wrong one."""
    path = tmp_path / "grid.yaml"
    path.write_text(YAML + "vary:\n  load.arrivals.rate: [4/s, 8/s, 12/s]\n")
    told = loadgen("plan", str(path))
    assert told.exit_code == 0, told.output
    assert "vary: 3 cells" in told.stderr
    path.write_text(YAML + "vary:\n  load.arrival.rate: [4/s]\n")
    wrong = loadgen("plan", str(path))
    assert isinstance(wrong.exception, ScenarioError)
    assert "did you mean arrivals?" in str(wrong.exception)


def test_an_slo_of_the_command_line_is_told_of_a_plan_that_was_kept(asked: str) -> None:
    """Beside those that the file has: whether so many requests can decide it."""
    done = loadgen("plan", kept(asked), "--slo", "p50(ttft) <= 1s", "--slo", "mlperf-llama2-70b-server")
    assert done.exit_code == 0, done.output
    assert "p99(tpot) <= 200ms: 40 requests cannot show it: it takes 459" in " ".join(done.output.split())
