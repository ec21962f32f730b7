"""YAML read strictly: one meaning for each word, a place for each key, a bound on everything."""

from __future__ import annotations

import contextlib
import json
import re
from itertools import pairwise
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen import strict_yaml
from loadgen.strict_yaml import Position, YamlError, read

TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Zl", "Zp"]), max_size=20)
WORDS = TEXT.filter(lambda text: not re.match(r"[-+.0-9]|<<", text))
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


@pytest.fixture(params=["CSafeLoader", "SafeLoader"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both of PyYAML's parsers: the one in C may be missing where PyYAML was built without libyaml."""
    if not hasattr(yaml, request.param):
        pytest.skip("PyYAML was built without libyaml")
    monkeypatch.setattr(strict_yaml, "_LOADER", getattr(yaml, request.param))
    return str(request.param)


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("true", True),
        ("false", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("12", 12),
        ("-12", -12),
        ("0", 0),
        ("1e3", 1000.0),
        ("1.5e-3", 0.0015),
        (".5", 0.5),
        ("2.", 2.0),
        *[(w, w) for w in ("yes", "no", "on", "off", "True", "NULL", "y", "12:30:45", "1:30", "2024-01-31")],
        *[(w, w) for w in ("010", "0x10", "0o17", "0b1", "1_000", "1e", "1.2.3", "-x", "8/s", "nan", "inf")],
        *[(f'"{w}"', w) for w in ("true", "12", "null", "1e3", "")],
    ],
)
def test_every_word_has_one_meaning(parser: str, word: str, value: object) -> None:
    """Only true/false are booleans, only decimals are numbers; quoted or doubtful words stay text."""
    got = read(f"key: {word}").data["key"]
    assert got == value
    assert type(got) is type(value)


@settings(deadline=None)
@given(st.dictionaries(TEXT.filter(lambda key: key != "<<"), VALUES, max_size=5))
def test_json_reads_as_itself(data: dict[str, Any]) -> None:
    """JSON is YAML: what the JSON module wrote comes back the same."""
    assert read(json.dumps(data, ensure_ascii=False)).data == data


@settings(deadline=None)
@given(
    st.dictionaries(
        WORDS, st.recursive(WORDS, lambda v: st.lists(v) | st.dictionaries(WORDS, v), max_leaves=9)
    )
)
def test_what_pyyaml_writes_reads_as_itself(data: dict[str, Any]) -> None:
    """Block style comes back the same; numbers apart, since to PyYAML 1e3 is text without quotes."""
    assert read(yaml.safe_dump(data, allow_unicode=True)).data == data


def test_a_place_is_that_of_the_key_or_the_list_entry() -> None:
    """Lines and columns count from 1, by hand; what does not stand there has no place."""
    document = read("load:\n  arrivals: {kind: burst,\n    size: 3}\n  rows:\n    - a\n    - b: 1\n")
    assert document.at(()) == Position(1, 1)
    assert document.at(("load",)) == Position(1, 1)
    assert document.at(("load", "arrivals")) == Position(2, 3)
    assert document.at(("load", "arrivals", "kind")) == Position(2, 14)
    assert document.at(("load", "arrivals", "size")) == Position(3, 5)
    assert document.at(("load", "rows", 0)) == Position(5, 7)
    assert document.at(("load", "rows", 1, "b")) == Position(6, 7)
    assert document.at(("load", "rate")) is None
    assert document.at(("load", "rows", 2)) is None
    assert document.at(("load", "rows", 0, "x")) is None


def test_an_alias_stands_for_its_value_and_has_the_anchors_places(parser: str) -> None:
    """The keys under an alias are those written at the anchor."""
    document = read("a: &x {b: 1}\nc: *x\n")
    assert document.data == {"a": {"b": 1}, "c": {"b": 1}}
    assert document.at(("c",)) == Position(2, 1)
    assert document.at(("c", "b")) == Position(1, 8)


@pytest.mark.parametrize(
    ("text", "line", "path", "rule"),
    [
        ("a: 1\nb: 2\na: 3", 3, ("a",), "key given twice, first on line 1"),
        ("x:\n  a: 1\n  'a': 2", 3, ("x", "a"), "key given twice, first on line 2"),
        ("", None, (), "the file is empty"),
        ("# only a comment\n", None, (), "the file is empty"),
        ("- a\n", 1, (), "must hold keys and values (key: value), not a list"),
        ("hello", 1, (), "must hold keys and values (key: value), not a single value"),
        ("a: 1\n---\nb: 2\n", 2, (), "a second document starts here: write one to a file"),
        ("a: !!str 5", 1, ("a",), "tags such as tag:yaml.org,2002:str are not read"),
        (
            "a: !!python/name:os.system x",
            1,
            ("a",),
            "tags such as tag:yaml.org,2002:python/name:os.system are not read",
        ),
        ("b:\n  1: 2", 2, ("b",), 'the key 1 is not text: write "1"'),
        ("true: 2", 1, (), 'the key true is not text: write "true"'),
        ("[a]: 2", 1, (), "a key must be plain text"),
        ("a: &x {b: 1}\nc:\n  <<: *x", 3, ("c",), "merge keys (<<) are not read: write the keys out"),
        ("a: &a [*a]", 1, ("a", 0), "alias *a stands for nothing that is complete above it"),
        ("a: *b", 1, ("a",), "alias *b stands for nothing that is complete above it"),
        ("a: .nan", 1, ("a",), "not a finite number"),
        ("a: -.INF", 1, ("a",), "not a finite number"),
        ("a:\n- 1e999", 2, ("a", 0), "not a finite number"),
        (f"a: {10**30}", 1, ("a",), "a whole number of more than 64 bits"),
        ("a: 1\nb: \0", 2, (), "not plain text: it holds the character U+0000"),
        ("a: b\u2028c", 1, (), "not plain text: it holds the character U+2028"),
        ("a: \ud800", 1, (), "not plain text: it holds the character U+D800"),
    ],
)
def test_what_is_not_strict_is_refused_where_it_stands(
    parser: str, text: str, line: int | None, path: tuple[str | int, ...], rule: str
) -> None:
    """The error names the line, the key path and the rule."""
    with pytest.raises(YamlError) as refused:
        read(text)
    error = refused.value
    assert (error.at and error.at.line, error.path, error.rule) == (line, path, rule)


@pytest.mark.parametrize(
    "text", ["a:\n\tb: 1", "a: b: c", "a: [1, 2", "a: 'b", "a: @b", "{a: 1", "a: 1\n b: 2"]
)
def test_what_is_not_yaml_is_refused_with_a_line(parser: str, text: str) -> None:
    """The parser's own words follow `not YAML`."""
    with pytest.raises(YamlError, match=r"^not YAML: \w") as refused:
        read(text)
    assert refused.value.at is not None


def test_half_of_a_surrogate_pair_is_refused(parser: str) -> None:
    """It could be written nowhere as UTF-8."""
    with pytest.raises(YamlError):
        read('a: "\\ud800"')


@pytest.mark.parametrize(
    "text", ["a: " + "[" * 9999, "{a: " * 9999, "a: " + "- " * 9999, "? " * 9999, "a: " + "[" * 60 + "]" * 60]
)
def test_depth_is_bounded(parser: str, text: str) -> None:
    """A file of brackets is refused, without a RecursionError."""
    with pytest.raises(YamlError):
        read(text)


def test_aliases_cannot_deepen_without_bound() -> None:
    """A chain of aliases, each one level around the last, is refused like brackets are."""
    chain = "k0: &k0 [x]\n" + "".join(f"k{i}: &k{i} [*k{i - 1}]\n" for i in range(1, 60))
    with pytest.raises(YamlError, match="more than 50 levels deep"):
        read(chain)


def test_aliases_cannot_multiply_without_bound() -> None:
    """Nine lines that ask for nine to the ninth values are refused."""
    names = "abcdefghi"
    bomb = "a: &a [x]\n" + "".join(f"{c}: &{c} [{', '.join([f'*{p}'] * 9)}]\n" for p, c in pairwise(names))
    with pytest.raises(YamlError, match="aliases add more than 100,000 values"):
        read(bomb)


def test_a_long_file_without_aliases_is_read() -> None:
    """The bound on aliases does not bound what was written out."""
    assert len(read("a: [" + "x, " * 110_000 + "]").data["a"]) == 110_000


@settings(deadline=None)
@given(st.text(st.sampled_from("abk01.:-?&*!|>'\"#[]{},~ \n\t<%@"), max_size=60) | st.text(max_size=60))
def test_both_parsers_agree(text: str) -> None:
    """What the parser in C and the one in Python both accept is the same data to both."""
    read_as = []
    for loader in (getattr(yaml, "CSafeLoader", yaml.SafeLoader), yaml.SafeLoader):
        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(YamlError):
            patch.setattr(strict_yaml, "_LOADER", loader)
            read_as.append(read(text).data)
    assert all(data == read_as[0] for data in read_as)
