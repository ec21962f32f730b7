"""A real browser, headless, and pages as the commands make them. Without a browser these tests fail."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.made import make

FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    assert found, "there is no chromium on this machine: on Debian, apt-get install chromium"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield started
        started.close()


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The page of that name, made once."""
    folder = tmp_path_factory.mktemp("pages")

    def path(name: str) -> Path:
        page = folder / f"{name}.html"
        if not page.exists():
            make(name, folder, page)
        return page

    return path


@dataclass
class Opened:
    """A page as the browser has it: what it complained of, and what it asked the network for."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


Opening = Callable[..., Opened]


@pytest.fixture
def opening(browser: Browser, made: Callable[[str], Path]) -> Iterator[Opening]:
    """Opens the page of that name, so wide, in that scheme; waits until every picture is drawn."""
    contexts = []

    def opened(name: str, width: int = 1280, scheme: Any = "light") -> Opened:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        found = Opened(context.new_page())
        page, url = found.page, made(name).as_uri()
        page.on("console", lambda said: found.complaints.append(said.text))
        page.on("pageerror", lambda error: found.complaints.append(str(error)))
        page.on("request", lambda asked: found.requests.append(asked.url))
        page.goto(url)
        if page.locator("#page-data").count():
            page.wait_for_selector("html[data-drawn=yes]", timeout=20_000)
        found.requests.remove(url)
        return found

    yield opened
    for context in contexts:
        context.close()
