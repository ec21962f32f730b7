"""A page as text: what it holds, in which order, and that nothing in it is more than text."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loadgen.capacity import Capacity
from loadgen.charts.picture import Picture
from loadgen.pages import page as pages
from loadgen.pages.again import again
from loadgen.pages.capacity_page import capacity_page, trust
from loadgen.pages.comparison_page import comparison_page
from loadgen.pages.page import Headline, Part, page
from loadgen.pages.run_page import headlines, run_page
from loadgen.pages.run_page import trust as trust_of_run
from loadgen.probe import Probe
from loadgen.report.tables import Column, Table
from loadgen.stats import summarize
from loadgen.stats.summary import Finding
from tests.charts.drawn import any_run
from tests.charts.test_capacity import P90
from tests.records import failed, ok, run_of
from tests.report.summaries import summary

HOSTILE = "</script></style><script>hack()</script><img src=x onerror='hack()' a=\"b\">\x1b[31m\u202eend"
TABLE = Table(HOSTILE, [Column(HOSTILE, "label"), Column(HOSTILE)], [[HOSTILE, HOSTILE]], [HOSTILE])
PICTURE = Picture(
    name="one", title=HOSTILE, says=HOSTILE,
    spec={"data": {"name": "rows"}, "mark": "point", "encoding": {"x": {"field": "at"}}},
    data={"rows": {"at": [1], "kind": [HOSTILE]}}, table=TABLE, by="kind", series={HOSTILE: "ok"},
)  # fmt: skip
PART = Part(
    HOSTILE, [HOSTILE, Headline(HOSTILE, HOSTILE, HOSTILE)], [TABLE], [PICTURE], folded={HOSTILE: HOSTILE}
)


class Elements(html.parser.HTMLParser):
    """Every element that a page begins, and the text between, scripts and styles apart."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.words: list[str] = []
        self._within = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))
        self._within = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._within = ""

    def handle_data(self, data: str) -> None:
        if self._within == "script":
            self.scripts[-1] += data
        elif self._within != "style":
            self.words.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


def whole(*parts: Part) -> Elements:
    return Elements(page(HOSTILE, HOSTILE, [Headline(HOSTILE, HOSTILE, HOSTILE)], parts))


def test_whatever_text_comes_in_is_text() -> None:
    """In every place there is: no element, no attribute and no script but the page's own come of it."""
    made = whole(PART)
    assert not made.all("img")
    assert not [attrs for _, attrs in made.tags if "onerror" in attrs or "a" in attrs]
    assert len(made.scripts) == 3  # the data, the library, the page's own
    said = "".join(made.words)
    assert said.count("<script>hack()</script>") >= 15
    assert not {*said} & {"\x1b", "\u202e"}


def test_nothing_in_the_data_can_end_their_script() -> None:
    """No `<` stands in them, and they read as JSON all the same."""
    [data, *_] = whole(PART).scripts
    assert "<" not in data
    told = json.loads(data)
    assert told["data"]["rows"]["kind"] == [HOSTILE]


def test_the_policy_allows_the_pages_own_scripts_and_no_others() -> None:
    """Each by its hash; a page without pictures runs none."""
    made = whole(PART)
    policy = made.all("meta")[1]["content"] or ""
    hashes = {base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in made.scripts[1:]}
    assert {*re.findall("'sha256-([^']+)'", policy)} == hashes
    assert "default-src 'none'" in policy
    assert "script-src 'none'" in (whole(Part("a", ["b"])).all("meta")[1]["content"] or "")


def test_the_data_are_there_whatever_python_leaves_out() -> None:
    """Two data of one name are refused, and not by an assert, which -O removes; equal ones are one."""
    other = replace(PICTURE, name="two", data={"rows": {"at": [2], "kind": ["x"]}})
    with pytest.raises(ValueError, match="two data are called rows"):
        whole(Part("p", pictures=[PICTURE, other]))
    [data, *_] = whole(Part("p", pictures=[PICTURE, replace(PICTURE, name="two")])).scripts
    assert [*json.loads(data)["data"]] == ["rows"]
    source = Path(str(pages.__file__)).read_text(encoding="utf-8")
    assert "assert " not in source


def test_hidden_series_are_filtered_out_of_every_layer() -> None:
    """By the field that tells series apart; the buttons are the legend of that field alone."""
    spec = {
        "layer": [
            {
                "mark": "line",
                "encoding": {"color": {"field": "kind", "scale": {}}, "x": {"field": "at", "scale": {}}},
            },
            {"mark": "point", "transform": [{"filter": "true"}], "encoding": {}},
        ],
        "params": [{"name": "zoom"}],
    }
    found = pages._toggled(replace(PICTURE, spec=spec))
    assert [param["name"] for param in found["params"]] == ["hidden", "zoom"]
    for layer in found["layer"]:
        assert layer["transform"][0] == {"filter": 'indexof(hidden, datum["kind"]) < 0'}
    assert found["layer"][1]["transform"][1:] == [{"filter": "true"}]
    line = found["layer"][0]["encoding"]
    assert "legend" in line["color"]
    assert "legend" not in line["x"]
    assert "hidden" not in str(pages._toggled(replace(PICTURE, spec=spec, by=None)))


def test_a_word_stands_before_its_sentence_and_the_remedy_after() -> None:
    """In the tone of a verdict: what cannot be trusted is red, what is a warning is not."""
    text = page("t", "s", [], [Part("p", [Headline("INVALID", "late", "wait"), Headline("note", "so")])])
    assert '<p class="finding bad"><b>INVALID</b> late <i>wait</i></p>' in text
    assert '<p class="finding plain"><b>note</b> so</p>' in text


def test_tables_are_fit_for_a_narrow_page() -> None:
    """Each is scrolled by keyboard too; caption and first column stay, and a shadow says there is more."""
    [table] = [
        attrs for attrs in whole(Part("p", tables=[TABLE])).all("div") if attrs.get("class") == "scroll"
    ]
    assert (table["tabindex"], table["role"]) == ("0", "region")
    css = pages._own("page.css")
    assert re.search(r"caption span \{[^}]*position: sticky; left: 0", css)
    assert re.search(r"tr > :first-child \{[^}]*position: sticky; left: 0", css)
    assert "local," in css


# --- of a run, a comparison, a search -----------------------------------------------------------------------


def titles(text: str) -> list[str]:
    return re.findall(r"<h2 id=[^>]*>([^<]*)</h2>", text)


def ids_of(text: str) -> list[str]:
    return [str(attrs["id"]) for _, attrs in Elements(text).tags if attrs.get("id")]


ORDER = ["What was asked", "Can it be trusted?", "Results", "Pictures", "Definitions", "Run it again"]


def test_the_parts_of_a_run_stand_in_order_and_no_id_twice() -> None:
    """What was asked, whether to trust it, results, pictures, definitions, again."""
    run = any_run(1)
    text = run_page(run, summarize(run))
    assert titles(text) == ORDER
    assert len(ids_of(text)) == len({*ids_of(text)}) > 12


def test_a_run_says_how_it_went_before_all_else() -> None:
    """VALID alone is no good news where most were rejected."""
    bad = summary(outcomes={"ok": 340, "rejected": 660}, overloaded=True)
    words = [(headline.word, headline.said) for headline in headlines(bad)]
    assert words[0][0] == "VALID"
    assert words[1][0] == "OVERLOADED"
    assert "1,000 offered" in words[1][1]
    assert "660 rejected" in words[1][1]
    assert headlines(summary())[1].word == "Requests"


def test_what_speaks_against_a_run_comes_first_and_by_its_word() -> None:
    """The worst finding first, each with its remedy apart."""
    found = [
        Finding(name="b", effect="warning", text="a warning", remedy="do this"),
        Finding(name="a", effect="invalid", text="a cause", remedy="do that"),
    ]
    said = trust_of_run(summary(findings=found))
    assert said[:2] == [
        Headline("INVALID", "A cause.", "Do that."), Headline("WARNING", "A warning.", "Do this.")
    ]  # fmt: skip


def test_a_simulated_run_says_what_was_simulated() -> None:
    """The engine on a line; of a server nothing is known."""
    run = any_run(1, source="virtual", target="bundled engine")
    assert "The bundled engine, mini-engine: " in run_page(run, summarize(run))
    scenario = run.header.scenario | {"target": {"base_url": "http://127.0.0.1:8000"}}
    over_http = any_run(1, scenario=scenario)
    assert "The bundled engine, " not in run_page(over_http, summarize(over_http))


def test_every_run_of_a_comparison_can_be_made_again() -> None:
    """What they have in common once, the rest for each: its id, its target, its command."""
    runs = {
        name: run_of([ok()], run_id=f"run-{name}", command=["loadgen", "run", name]) for name in ("a", "b")
    }
    part = again(runs)
    facts = dict(part.tables[0].rows)
    assert (facts["run of a"], facts["run of b"]) == ("run-a", "run-b")
    assert facts["seed"] == str(runs["a"].asked("seed"))
    assert part.folded == {"Command of a": "loadgen run a", "Command of b": "loadgen run b"}


def test_the_parts_of_a_comparison_stand_in_order() -> None:
    """As those of a run."""
    from loadgen.compare import compare

    runs = {"base": any_run(1), "other": any_run(2)}
    found = compare({name: summarize(run) for name, run in runs.items()}, dict.fromkeys(runs, "0" * 64))
    text = comparison_page(found, runs)
    assert titles(text) == ORDER
    assert len(ids_of(text)) == len({*ids_of(text)})


def capacity(**changes: Any) -> Capacity:
    probes = [
        Probe(load=2, folders=["001", "002"], verdict="PASS", requests=100, ttft_p99_s=0.1),
        Probe(load=3, folders=["003"], verdict="INVALID", reason="the client was late"),
    ]
    about = {"name": "q", "over": "rate", "unit": "requests/s", "slos": ["p90(ttft) <= 1s"], "probes": probes}
    return Capacity(**about | {"resolution": 0.005, "source": "virtual"} | changes)


def test_a_search_says_what_made_it_and_what_it_asked() -> None:
    """The command of its first run, its load and engine; the edges as they are; digits that tell."""
    first = run_of(
        [ok()], source="virtual", command=["loadgen", "capacity", "chat", "--slo", "p90(ttft) <= 1s"]
    )
    text = capacity_page(capacity(low=10.0, high=11.8, load=11.0), Path("my runs"), first)
    assert titles(text) == ORDER
    assert "loadgen capacity chat --slo &#x27;p90(ttft) &lt;= 1s&#x27;" in text
    assert "edges at most 0.500 % apart; they lie 18.0 % apart" in text
    assert "The bundled engine, " in text
    lost = capacity_page(capacity(), Path("my runs"), None)
    assert "loadgen report &#x27;my runs&#x27;" in lost
    assert "with them went the command" in lost


def test_all_pictures_of_a_search_stand_on_one_page() -> None:
    """The share, the latency, what was served: what they have in common is the same in each."""
    text = capacity_page(P90, Path("runs"), None)
    assert re.findall('<figure id="picture-([^"]*)"', text) == [
        "capacity-share", "capacity-latency", "capacity-served"
    ]  # fmt: skip


def test_a_load_that_could_not_be_measured_speaks_against_a_search() -> None:
    """By its word, beside what could; and what is not decided."""
    said = trust(capacity(undecided=["3 requests/s: too few to tell"]))
    assert "1 of 2 loads could be measured, each by 1 to 2 runs." in said
    assert Headline("INVALID", "3 requests/s: the client was late") in said
    assert Headline("UNRESOLVED", "3 requests/s: too few to tell") in said


def test_a_page_of_failures_is_a_page() -> None:
    """All failed: no curve, and every other part."""
    run = run_of([failed(i, i * 0.1) for i in range(9)])
    assert titles(run_page(run, summarize(run))) == ORDER
