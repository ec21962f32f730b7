"""ServeGen: requests drawn from the laws of each client's windows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadgen.scenario import ScenarioError
from loadgen.trace_source import TraceSource
from loadgen.workload.traces import Trace, read

LENGTHS = {"0": {"input_tokens": "{100: 0.25, 300: 0.75}", "output_tokens": "{7: 1.0}"}}


def client(folder: Path, number: int, trace: str, lengths: Any = LENGTHS) -> None:
    (folder / f"chunk-{number}-trace.csv").write_text(trace)
    (folder / f"chunk-{number}-dataset.json").write_text(json.dumps(lengths))


def drawn(folder: Path, seed: int = 3, **asked: Any) -> Trace:
    return read(TraceSource.model_validate({"file": str(folder), "format": "servegen"} | asked), seed)


@pytest.mark.parametrize(
    ("law", "shape", "cv"), [("Gamma", 0.25, 2.0), ("Weibull", 0.5, 5**0.5), ("Gamma", 4.0, 0.5)]
)
def test_every_window_has_its_rate_and_its_law(tmp_path: Path, law: str, shape: float, cv: float) -> None:
    """In short windows too: the count of a stationary process has mean rate x time, exactly.

    1,000 windows of 600 s at 0.01/s; their mean count within 4 of its own standard errors of 6. The gaps in
    one long window have the law's CV, within 10 %: 4 sd of it over 40,000 gaps, or more.
    """
    client(tmp_path, 1, "".join(f"{600 * i},0.01,1,{law},{shape},1\n" for i in range(1000)))
    due = drawn(tmp_path).due_ns
    assert due is not None
    counts = np.bincount(due // 600_000_000_000, minlength=1000)[:1000]
    assert counts.mean() == pytest.approx(6, abs=4 * counts.std() / 1000**0.5)
    client(tmp_path, 1, f"0,40,1,{law},{shape},1\n1000,0,0,,0,0\n")
    facts = drawn(tmp_path).facts
    assert facts.rate_rps == pytest.approx(40, rel=4 * cv / 40_000**0.5)
    assert facts.gap_cv == pytest.approx(cv, rel=0.1)


def test_lengths_are_drawn_from_the_tables(tmp_path: Path) -> None:
    """The share of a length is its probability, within 4 standard errors."""
    client(tmp_path, 1, "0,20,1,Gamma,1,0.05\n600,0,0,,0,0\n")
    found = drawn(tmp_path)
    share = float((found.prompt_tokens == 300).mean())
    assert share == pytest.approx(0.75, abs=4 * (0.75 * 0.25 / len(found)) ** 0.5)
    assert set(found.prompt_tokens.tolist()) == {100, 300}
    assert set(found.output_tokens.tolist()) == {7}


def test_the_load_is_that_of_all_clients(tmp_path: Path) -> None:
    """A client added leaves the others' requests as they were."""
    client(tmp_path, 1, "0,2,1,Gamma,1,0.5\n")
    alone = drawn(tmp_path)
    client(tmp_path, 2, "0,1,1,Weibull,1,1\n", {"0": {"input_tokens": {"9": 1}, "output_tokens": {"2": 1}}})
    both = drawn(tmp_path)
    assert both.due_ns is not None
    assert alone.due_ns is not None
    first = both.due_ns[both.prompt_tokens != 9]
    assert (first - first[0]).tolist() == alone.due_ns.tolist()
    assert len(both) > len(alone)


def test_a_slice_draws_what_the_whole_would_have_there(tmp_path: Path) -> None:
    """By seed, client and window, whatever else is drawn; another seed gives others."""
    client(tmp_path, 1, "".join(f"{600 * i},0.2,1,Gamma,0.5,1\n" for i in range(6)))
    whole = drawn(tmp_path)
    assert whole.due_ns is not None
    part = drawn(tmp_path, start="700s", duration="20m")
    assert part.due_ns is not None
    assert 150 < len(part) < 350
    at = next(
        i
        for i in range(len(whole))
        if (whole.due_ns[i : i + len(part)] - whole.due_ns[i]).tolist() == part.due_ns.tolist()
    )
    assert part.prompt_tokens.tolist() == whole.prompt_tokens[at : at + len(part)].tolist()
    assert drawn(tmp_path, seed=4, start="700s").due_ns is not None
    assert len(drawn(tmp_path, seed=4)) != len(whole)


def test_idle_windows_and_windows_before_any_lengths_have_no_requests(tmp_path: Path) -> None:
    """The latter are said."""
    lengths = {"600": LENGTHS["0"], "1200": {"input_tokens": "{}", "output_tokens": "{}"}}
    client(
        tmp_path,
        1,
        "0,1,1,Gamma,1,1\n600,1,1,Gamma,1,1\n1200,0.0,0.0,,0.0,0.0\n1800,1,1,Gamma,1,1\n",
        lengths,
    )
    found = drawn(tmp_path)
    assert found.due_ns is not None
    assert not np.any((found.due_ns > 610e9) & (found.due_ns < 1190e9))
    assert found.facts.span_s == pytest.approx(1800, abs=20)
    assert found.facts.warnings == ("1 windows left out: the client has no lengths that early",)


@pytest.mark.parametrize(
    ("trace", "lengths", "said"),
    [
        ("0,1,1,Pareto,1,1\n", LENGTHS, "chunk-1-trace.csv:1: unknown pattern 'Pareto'"),
        ("0,1,1,Gamma,1\n", LENGTHS, "chunk-1-trace.csv:1: has 5 columns, not 6"),
        ("0,-1,1,Gamma,1,1\n", LENGTHS, "chunk-1-trace.csv:1: '-1' must be a number, not below zero"),
        ("0,1,1,Gamma,0,1\n", LENGTHS, "chunk-1-trace.csv:1: Gamma of rate 1 and shape 0: "),
        ("0,1e6,1,Gamma,1,1\n", LENGTHS, ": about 600,000,000 requests: take a part by load.trace.start"),
        ("0,0,0,,0,0\n", LENGTHS, ": no usable rows: no client has a window with a rate and lengths"),
        ("0,1,1,Gamma,1,1\n", {"0": {}}, "chunk-1-dataset.json: each window must have input_tokens and"),
        (
            "0,1,1,Gamma,1,1\n",
            {"0": dict.fromkeys(LENGTHS["0"], "{1: x}")},
            "chunk-1-dataset.json: lengths must",
        ),
    ],
)
def test_what_cannot_be_drawn_from_is_refused(tmp_path: Path, trace: str, lengths: Any, said: str) -> None:
    """With the file, and the line where there is one."""
    client(tmp_path, 1, trace, lengths)
    with pytest.raises(ScenarioError) as caught:
        drawn(tmp_path)
    assert said in str(caught.value)


def test_a_folder_without_clients_is_refused(tmp_path: Path) -> None:
    """It says what should be there; so is a client whose lengths are missing, and no folder at all."""
    with pytest.raises(ScenarioError, match=r"a folder with chunk-1-trace\.csv"):
        drawn(tmp_path)
    (tmp_path / "chunk-7-trace.csv").write_text("0,1,1,Gamma,1,1\n")
    with pytest.raises(ScenarioError, match=r"chunk-7-dataset\.json: cannot be read"):
        drawn(tmp_path)
    with pytest.raises(ScenarioError, match="nowhere: cannot be read"):
        drawn(tmp_path / "nowhere")
