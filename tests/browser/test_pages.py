"""Every page in a real browser: it draws, offline and in silence; its pictures can be looked into."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page

from tests.browser.conftest import Opening
from tests.browser.made import PAGES

pytestmark = pytest.mark.browser
DRAWN = [page for page in PAGES if page != "empty"]
MARKS = ".mark-symbol path, .mark-rect path, .mark-line path, .mark-rule line, .mark-area path"


@pytest.mark.parametrize("name", PAGES)
def test_a_page_draws_all_it_has_without_a_complaint_and_without_the_network(
    opening: Opening, name: str
) -> None:
    """Nothing on the console, no error, no request but for the file itself; every picture has marks."""
    opened = opening(name)
    assert opened.complaints == []
    assert opened.requests == []
    charts = opened.page.locator(".chart").all()
    assert len(charts) > 0 or name == "empty"
    for chart in charts:
        assert chart.locator(MARKS).count() > 0, chart.get_attribute("aria-label")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_its_window(opening: Opening, name: str, width: int, scheme: str) -> None:
    """No page is wider than the window; what is wide scrolls inside, and so do no pictures."""
    page = opening(name, width, scheme).page
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for svg in page.locator(".chart > svg, .chart svg.marks").all():
        box = svg.bounding_box()
        assert box is not None
        assert box["width"] <= width


@pytest.mark.parametrize("name", DRAWN)
def test_a_point_that_is_hovered_tells_its_figures(opening: Opening, name: str) -> None:
    """In at least one picture of each page, the middle of a mark brings a tooltip with words and a number."""
    page = opening(name).page
    told = [text for chart in page.locator(".chart").all() if (text := _hovered(page, chart))]
    assert any(any(c.isdigit() for c in text) and any(c.isalpha() for c in text) for text in told)


def _hovered(page: Page, chart: Locator) -> str:
    chart.scroll_into_view_if_needed()
    marks = chart.locator(".mark-symbol path, .mark-rect path")
    for i in range(0, marks.count(), max(1, marks.count() // 5)):
        box = marks.nth(i).bounding_box()
        if box and box["width"] and box["height"]:
            page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
            page.wait_for_timeout(30)
            shown = page.locator("#vg-tooltip-element.visible")
            if shown.count():
                return shown.inner_text()
    return ""


@pytest.mark.parametrize("name", ["run", "comparison", "many", "plan"])
def test_a_series_is_hidden_by_its_button_and_comes_back(opening: Opening, name: str) -> None:
    """By mouse and by keyboard; the button says which it is, and the picture is as it was before."""
    page = opening(name).page
    figure = page.locator("figure", has=page.locator("button[aria-pressed]")).first
    button = figure.locator("button[aria-pressed]").first
    before = _drawing(figure)
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    page.wait_for_timeout(300)
    assert _drawing(figure) != before
    button.focus()
    page.keyboard.press("Enter")
    assert button.get_attribute("aria-pressed") == "true"
    page.wait_for_timeout(300)
    assert _drawing(figure) == before


def _drawing(figure: Locator) -> list[str]:
    """What is drawn of the data, in any order."""
    drawn: list[str] = figure.locator(".chart svg").first.evaluate(
        "svg => [...svg.querySelectorAll('.role-mark path')].map(mark => mark.getAttribute('d')).sort()"
    )
    return drawn


def test_the_plain_wheel_scrolls_and_with_ctrl_it_zooms(opening: Opening) -> None:
    """A page with pictures can be scrolled with the mouse over one."""
    page = opening("run").page
    chart = page.locator("#picture-in-flight .chart")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    before, top = chart.inner_text(), page.evaluate("scrollY")
    page.mouse.wheel(0, 5)
    page.wait_for_timeout(300)
    assert page.evaluate("scrollY") != top
    assert chart.inner_text() == before
    page.keyboard.down("Control")
    page.mouse.wheel(0, -500)
    page.keyboard.up("Control")
    page.wait_for_timeout(300)
    assert chart.inner_text() != before


def test_dark_light_and_print_each_have_colours_of_their_own(opening: Opening) -> None:
    """Dark paper in the dark, white in the light, and white on paper whatever the screen."""
    page = opening("run", scheme="dark").page
    paper = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(paper)
    page.emulate_media(media="print")
    assert page.evaluate(paper) == "rgb(255, 255, 255)" != dark
    assert opening("run").page.evaluate(paper) == "rgb(255, 255, 255)"


def test_printing_unfolds_every_table(opening: Opening) -> None:
    """What is folded on the screen cannot be unfolded on paper."""
    page = opening("run").page
    assert page.locator("details:not([open])").count() > 0
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0


def test_a_saved_picture_stands_alone(opening: Opening, tmp_path: Path) -> None:
    """It is an SVG with plain colours and its own background."""
    page = opening("run", scheme="dark").page
    with page.expect_download() as saving:
        page.locator(".save").first.click()
    saved = tmp_path / "saved.svg"
    saving.value.save_as(saved)
    text = saved.read_text(encoding="utf-8")
    assert ET.fromstring(text).tag.endswith("svg")
    assert "var(" not in text
    assert "background: #14181d" in text


@pytest.mark.parametrize("name", PAGES)
def test_a_page_can_be_read_without_seeing_it(opening: Opening, name: str) -> None:
    """One first heading, none skipped; a name for every picture, and its numbers as a table with headings."""
    page = opening(name).page
    levels = [
        int(tag[1]) for tag in page.evaluate("[...document.querySelectorAll('h1,h2,h3')].map(h => h.tagName)")
    ]
    assert levels.count(1) == 1
    assert all(later - earlier <= 1 for earlier, later in pairwise(levels))
    for figure in page.locator("figure").all():
        assert figure.locator(".chart[role=img]").get_attribute("aria-label")
        assert figure.locator("details table th[scope=col]").count() > 0
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id).filter(Boolean)")
    own = [each for each in ids if not each.startswith(("gradient", "clip"))]
    assert len(own) == len(set(own))
    for link in page.locator("nav a").all():
        assert page.locator(link.get_attribute("href") or "").count() == 1


def test_what_a_hostile_server_said_is_shown_and_does_nothing(opening: Opening) -> None:
    """Scripts, markup, escapes and marks that turn text around are words, or nothing at all."""
    page = opening("hostile").page
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() == 0
    text = page.locator("body").inner_text()
    assert "<script>window.hacked = 1</script>" in text
    assert not set(text) & {"\x1b", "\x07", "\u202e", "\u2066"}
    assert len(page.content()) < 1_500_000


def test_a_script_that_came_in_all_the_same_would_not_run(opening: Opening) -> None:
    """The page's own policy stops what its escaping has let through."""
    opened = opening("hostile")
    opened.page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = 'window.hacked = 3';"
        " document.body.append(s); }"
    )
    assert opened.page.evaluate("window.hacked") is None
    assert any("Content Security Policy" in said for said in opened.complaints)


@pytest.mark.parametrize("name", ["run", "comparison", "capacity"])
def test_a_wide_table_shows_what_a_row_is_of_wherever_it_is_scrolled(opening: Opening, name: str) -> None:
    """On a phone its caption and its first column stay, and the page says at its edge that it goes on."""
    page = opening(name, 390).page
    wide = [
        each
        for each in page.locator("section > .scroll").all()
        if each.evaluate("e => e.scrollWidth > e.clientWidth + 20")
    ]
    assert wide
    for table in wide:
        table.evaluate("e => { e.scrollLeft = e.scrollWidth }")
        left = table.bounding_box()
        assert left is not None
        for part in ("caption span", "tbody th >> nth=0"):
            box = table.locator(part).bounding_box()
            assert box is not None
            assert box["x"] == pytest.approx(left["x"], abs=1)
        assert "gradient" in table.evaluate("e => getComputedStyle(e).backgroundImage")
