"""A law of the user's own."""

from __future__ import annotations

import copy
import hashlib
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadgen import scenario
from loadgen.scenario import ScenarioError
from loadgen.workload import arrivals
from tests.workload.arrival_laws import S, law

TWO_PHASES = """
import math

def gaps(uniform, mean):
    while True:
        for u in uniform(3):
            yield -mean * math.log(u)

def three(uniform):
    yield from (0, 1, 0.5)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "my_laws.py").write_text(TWO_PHASES)
    return tmp_path


def custom(folder: Path, name: str = "my_laws:gaps", **args: Any) -> Any:
    return law("custom", law=name, args=args, folder=str(folder))


def test_gaps_are_what_the_function_yields(folder: Path) -> None:
    """In seconds, from 0 on; the law ends where the function does."""
    assert arrivals.stream(custom(folder, "my_laws:three"), 1).take(9).tolist() == [0, S, 3 * S // 2]


def test_its_random_numbers_are_the_seeds(folder: Path) -> None:
    """The same seed the same instants, in blocks of any size, copied or pickled on the way."""
    one = custom(folder, mean=0.1)
    whole = arrivals.stream(one, 1).take(500)
    assert not np.array_equal(whole, arrivals.stream(one, 2).take(500))
    stream = arrivals.stream(one, 1)
    head = stream.take(123)
    for other in (copy.deepcopy(stream), pickle.loads(pickle.dumps(stream)), stream):
        assert np.array_equal(np.concatenate([head, other.take(377)]), whole)
    # Exponential gaps of mean 0.1 s: 500 of them take 50 s, within 5 sd.
    assert whole[-1] / S == pytest.approx(50, abs=5 * 0.1 * 500**0.5)


def test_the_module_is_found_beside_the_scenario(folder: Path) -> None:
    """Wherever the scenario is read from; nothing is left in Python's search path, nor beside the module."""
    (folder / "s.yaml").write_text(
        "load:\n  num_requests: 5\n  arrivals: {kind: custom, law: 'my_laws:three'}\n"
    )
    path = list(sys.path)
    asked = scenario.load(folder / "s.yaml").load.arrivals
    assert asked is not None
    assert len(arrivals.stream(asked, 1).take(9)) == 3
    assert sys.path == path
    assert "my_laws" not in sys.modules
    assert sorted(p.name for p in folder.iterdir()) == ["my_laws.py", "s.yaml"]


def test_two_modules_of_one_name_are_two(tmp_path: Path) -> None:
    """And a changed file is read anew."""
    for name, gap in (("a", 1), ("b", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "laws.py").write_text(f"def f(uniform):\n    yield {gap}\n")
    for name, gap in (("a", 1), ("b", 2)):
        assert arrivals.stream(custom(tmp_path / name, "laws:f"), 1).take(1).tolist() == [gap * S]
    (tmp_path / "a" / "laws.py").write_text("def f(uniform):\n    yield 7\n")
    assert arrivals.stream(custom(tmp_path / "a", "laws:f"), 1).take(1).tolist() == [7 * S]


def test_a_module_may_import_what_is_beside_it(tmp_path: Path) -> None:
    """A dataclass, too, finds its own module."""
    (tmp_path / "beside_it_12.py").write_text("GAP = 3\n")
    source = (
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\nfrom beside_it_12 import GAP\n"
        "@dataclass\nclass A:\n    gap: float = GAP\ndef f(uniform):\n    yield A().gap\n"
    )
    (tmp_path / "laws.py").write_text(source)
    assert arrivals.stream(custom(tmp_path, "laws:f"), 1).take(1).tolist() == [3 * S]


def test_an_installed_module_will_do(tmp_path: Path) -> None:
    """itertools:count(uniform) is no law, but json:loads is found, and fails as it should."""
    with pytest.raises(ScenarioError, match="json:loads: cannot be called: TypeError"):
        arrivals.stream(custom(tmp_path, "json:loads"), 1)


def test_what_a_law_prints_is_no_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As it is imported, called and asked for gaps: stdout is left to what was measured."""
    (tmp_path / "loud.py").write_text(
        "print('read')\ndef gaps(uniform):\n    while True:\n        print('asked')\n        yield 1\n"
    )
    assert arrivals.stream(custom(tmp_path, "loud:gaps"), 1).take(2).tolist() == [S, 2 * S]
    said = capsys.readouterr()
    assert (said.out, said.err.split()) == ("", ["read", "asked", "asked"])


def test_the_hash_is_that_of_the_file(folder: Path) -> None:
    """SHA-256, so that a plan's digest changes with the law."""
    expected = hashlib.sha256((folder / "my_laws.py").read_bytes()).hexdigest()
    assert arrivals.source_hash(custom(folder)) == expected


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("yield 1; yield -1", "gave -1 for request 1: a gap is from 0 to"),
        ("yield float('nan')", "gave nan for request 0: a gap is from 0 to"),
        ("yield float('inf')", "gave inf for request 0: a gap is from 0 to"),
        ("yield 'soon'", "gave 'soon' for request 0: a gap is a number of seconds"),
        ("yield True", "gave True for request 0: a gap is a number of seconds"),
        ("yield 1; raise OSError('rate\\n b')", "failed at request 1: OSError: rate b"),
        ("yield 1; raise SystemExit(7)", "failed at request 1: SystemExit: 7"),
        ("return 5", "cannot be called: TypeError: 'int' object is not iterable"),
    ],
)
def test_a_law_that_fails_is_one_clear_line(tmp_path: Path, body: str, told: str) -> None:
    """Which law, which request, what was wrong."""
    (tmp_path / "laws.py").write_text(f"def f(uniform):\n    {body}\n")
    with pytest.raises(ScenarioError) as caught:
        arrivals.stream(custom(tmp_path, "laws:f"), 1).take(5)
    assert str(caught.value).startswith("load.arrivals.law: laws:f: ")
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "source", "told"),
    [
        ("nowhere:f", "", "nowhere.py does not exist, nor is nowhere installed"),
        ("laws:g", "def f(uniform): yield 1", "laws.py has no function g"),
        ("laws:f", "f = 3", "laws.py has no function f"),
        ("laws:f", "def f(:", "cannot be imported: SyntaxError"),
        ("laws:f", "import not_there_either", "cannot be imported: ModuleNotFoundError: No module named"),
        ("laws:f", "import sys; sys.exit(3)", "cannot be imported: SystemExit: 3"),
        ("laws:f", "def f(): yield 1", "cannot be called: TypeError"),
        ("sys:exit", "", "sys is no file of Python"),
    ],
)
def test_a_law_that_is_not_there_is_one_clear_line(tmp_path: Path, name: str, source: str, told: str) -> None:
    """Where it was looked for, and what was missing."""
    (tmp_path / "laws.py").write_text(source)
    with pytest.raises(ScenarioError) as caught:
        arrivals.stream(custom(tmp_path, name), 1)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
