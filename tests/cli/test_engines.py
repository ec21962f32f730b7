"""`loadgen engines`: the list, an explanation, a fit, and what is said of wrong names."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from loadgen import presets
from loadgen.cli import main
from loadgen.cli.engine_flags import layered
from loadgen.knobs import FittedCost
from loadgen.scenario import parse


class Door:
    """The command line as called, and what came of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *words: str) -> tuple[int, str, str]:
        """Exit code, stdout, stderr of `loadgen engines WORDS`."""
        self._monkeypatch.setattr("sys.argv", ["loadgen", "engines", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        said = self._capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, said.out, said.err


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Door:
    return Door(monkeypatch, capsys)


def test_alone_it_lists_presets_gpus_and_models(engines: Door) -> None:
    """Each under its heading, on stdout."""
    code, out, err = engines()
    assert (code, err) == (0, "")
    heads = [out.index(head) for head in ("Presets\n", "GPUs\n", "Models\n")]
    assert heads == sorted(heads)
    assert "vllm-v1 " in out[: heads[1]]
    assert "h100-80gb " in out[heads[1] : heads[2]]
    assert "llama-3-8b " in out[heads[2] :]


def test_the_list_as_json_is_alone_on_stdout(engines: Door) -> None:
    """Presets, GPUs and models by name."""
    code, out, err = engines("--json")
    assert (code, err) == (0, "")
    assert set(json.loads(out)["presets"]) == set(presets.names())


def test_show_explains_a_preset(engines: Door) -> None:
    """What it is, its rules, and its knobs."""
    code, out, _ = engines("show", "vllm-2023")
    assert code == 0
    for said in ("vllm-2023  vLLM of mid-2023", "Rules", "kv.watermark     0.01", "At their defaults"):
        assert said in out


def test_show_as_json_is_an_engine_again(engines: Door) -> None:
    """Every knob, fit for a scenario."""
    _, out, _ = engines("show", "sarathi", "--json")
    assert layered(json.loads(out)["engine"]) == layered({"preset": "sarathi"})


@pytest.mark.parametrize(
    ("name", "near"), [("vlm-v1", "vllm-v1"), ("h100", "h100-80gb"), ("llama3-8b", "llama-3-8b")]
)
def test_an_unknown_name_is_a_mistake_of_usage_with_the_nearest(engines: Door, name: str, near: str) -> None:
    """A preset's, a GPU's or a model's."""
    code, out, err = engines("show", name)
    assert (code, out) == (2, "")
    assert err == (
        f"loadgen: no preset, GPU or model '{name}'; did you mean {near}? loadgen engines lists them\n"
    )


def test_fit_prints_an_engine_that_a_scenario_can_hold(engines: Door, tmp_path: Path) -> None:
    """Steps made from known constants give them back, from the YAML as it is printed."""
    steps = [(t, c) for t in (1, 16, 256, 1024, 4096) for c in (0, 10_000, 80_000)]
    rows = [f"{t},{c},{math.hypot(0.02, 8e-5 * t) + 5e-7 * c + 0.003!r}" for t, c in steps]
    (tmp_path / "steps.csv").write_text("\n".join(["tokens,contexts,seconds", *rows]))
    _, out, _ = engines("fit", str(tmp_path / "steps.csv"))
    cost = parse(f"{out}load: {{arrivals: {{kind: burst}}, num_requests: 1}}", "own").engine.cost
    assert isinstance(cost, FittedCost)
    fitted = (cost.weights_s, cost.per_token_s, cost.per_context_token_s, cost.overhead_s)
    assert fitted == pytest.approx((0.02, 8e-5, 5e-7, 0.003), rel=0.02)


def test_fit_says_how_far_it_is_off(engines: Door, tmp_path: Path) -> None:
    """Rows and relative errors, in a comment above the YAML."""
    (tmp_path / "steps.csv").write_text(
        "tokens,contexts,seconds\n" + "".join(f"{n},{k},{n * 1e-4}\n" for n in (8, 64, 512) for k in (0, 9))
    )
    code, out, err = engines("fit", str(tmp_path / "steps.csv"))
    assert (code, err) == (0, "")
    assert out.startswith("# fitted to 6 steps of 'steps.csv': relative error p50 ")


def test_fit_refuses_a_file_that_is_not_there(engines: Door, tmp_path: Path) -> None:
    """As a mistake of usage, on one line."""
    code, out, err = engines("fit", str(tmp_path / "none.csv"))
    assert (code, out) == (2, "")
    assert err.endswith("none.csv: cannot be read: No such file or directory\n")
