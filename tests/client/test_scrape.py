"""The process that looks at the server's metrics: what it writes, and what becomes of a run without it."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from loadgen import server_log
from loadgen.client import scrape
from loadgen.client import scraper as run_side
from loadgen.client.pipes import framed
from loadgen.client.scrape import MOST_RAW, Server, Start, Wanted, _Watch, places
from loadgen.client.scraper import Scraper
from loadgen.server_log import Scrape
from loadgen.target import Target
from tests.fakes import HANG, Received, Reply, ScriptedServer

CONNECT_S = 5.0


def reply(text: str, status: int = 200) -> Reply:
    return Reply(status=status, writes=[(0.0, text.encode())], framing="length")


class Counting:
    """A server whose count grows by 10 at every look."""

    def __init__(self) -> None:
        self.looks = 0

    def __call__(self, request: Received) -> Reply:
        if request.path != "/metrics":
            return reply("{}", 404)
        self.looks = min(self.looks + 1, 3)
        running = "vllm:num_requests_running 2"
        return reply(f"{running}\nvllm:generation_tokens_total {10 * self.looks}\nother 7\n")


@asynccontextmanager
async def served(script: Any) -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer(script) as server:
        yield server


async def found_at(target: Target, looks: int = 1, api_key: str | None = None) -> list[Scrape]:
    """By looks at the only server, in this process."""
    async with AsyncExitStack() as stack:
        (place,) = places(target)
        server = await Server.opened(stack, Wanted(target, api_key, CONNECT_S), place)
        return [(await server.look())[1] for _ in range(looks)]


async def looked(folder: Path, target: Target, api_key: str | None = None) -> list[Scrape]:
    """Of a run that has nothing to do."""
    scraper = await Scraper.launch(target, api_key, CONNECT_S)
    assert scraper.absent is None
    scraper.start(time.perf_counter_ns(), folder)
    assert await scraper.end() is None
    return list(server_log.read(folder).scrapes)


async def test_looks_from_before_the_origin_to_after_the_end_are_written(tmp_path: Path) -> None:
    """The first is before the origin; the last two count the same; raw samples stand where they changed."""
    async with served(Counting()) as server:
        found = await looked(tmp_path, Target(base_url=server.url))
    assert found[0].at_s < 0 < found[-1].at_s
    assert [scrape.values["output_tokens"] for scrape in found] == [10, 20, 30, 30]
    assert {scrape.kind for scrape in found} == {"vLLM"}
    assert [scrape.raw for scrape in found] == [{"other": 7}, {}, {}, {}]
    assert all(0 < scrape.took_s < 1 and scrape.target is None for scrape in found)


async def test_it_looks_as_the_load_asks_with_the_key() -> None:
    """And says in what form it wants them."""
    async with served(Counting()) as server:
        target = Target(base_url=f"{server.url}/v1", headers={"x-team": "a"})
        await found_at(target, api_key="sk-secret")
        first = server.requests[0]
    assert first.path == "/metrics"
    assert first.headers["authorization"] == "Bearer sk-secret"
    assert first.headers["x-team"] == "a"
    assert first.headers["accept"].startswith("text/plain")


async def test_where_the_first_path_has_json_prometheus_text_is_looked_for() -> None:
    """As trtllm-serve has it."""

    def script(request: Received) -> Reply:
        is_text = request.path == "/prometheus/metrics"
        return reply("trtllm_num_requests_running 4\n" if is_text else '[{"numActiveRequests": 9}]')

    async with served(script) as server:
        found = await found_at(Target(base_url=server.url), looks=2)
        paths = [request.path for request in server.requests]
    assert {scrape.values["running"] for scrape in found} == {4}
    assert paths == ["/metrics", "/prometheus/metrics", "/prometheus/metrics"]


async def test_json_is_taken_where_there_is_no_text() -> None:
    """Gauges are better than nothing."""

    def script(request: Received) -> Reply:
        return reply('[{"numActiveRequests": 9}]') if request.path == "/metrics" else reply("no", 404)

    async with served(script) as server:
        found = await found_at(Target(base_url=server.url), looks=2)
    assert [scrape.values["running"] for scrape in found] == [9, 9]


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (reply("not here", 404), "404"),
        (reply("<html>Grafana</html>"), "HTML page"),
        (reply("hello"), "no Prometheus text"),
    ],
)
async def test_no_metrics_are_absent_with_the_reason(script: Reply, why: str) -> None:
    """In the look, which has no value then."""
    async with served(lambda _: script) as server:
        (found,) = await found_at(Target(base_url=server.url))
    assert why in (found.error or "")
    assert found.values == {}


async def test_a_key_in_a_page_that_is_no_metrics_is_masked_before_it_is_cut() -> None:
    """Half of it would be most of it."""
    async with served(lambda _: reply("hello I do not know {sk-planted-9f8e7d6c5b4a")) as server:
        (found,) = await found_at(Target(base_url=server.url), api_key="sk-planted-9f8e7d6c5b4a")
    assert "it begins with hello I do not know {***" in (found.error or "")
    assert "planted" not in (found.error or "")


async def test_a_dead_port_is_told_as_such() -> None:
    """The process is gone by then, and the run goes on."""
    async with served(HANG) as server:
        url = server.url
    scraper = await Scraper.launch(Target(base_url=url), None, CONNECT_S)
    assert "refused" in (scraper.absent or "")
    assert await scraper.end() == scraper.absent


async def test_a_secret_that_the_server_echoes_is_masked() -> None:
    """It may come to stand in run.json."""
    async with served(lambda _: reply("sk-very-secret is wrong")) as server:
        (found,) = await found_at(Target(base_url=server.url), api_key="sk-very-secret")
    assert "***" in (found.error or "")
    assert "sk-very" not in (found.error or "")


async def test_who_wants_none_gets_no_process() -> None:
    """Nothing is asked."""
    async with served(Counting()) as server:
        scraper = await Scraper.launch(Target(base_url=server.url, metrics="none"), None, CONNECT_S)
        assert not server.requests
    assert await scraper.end() == "target.metrics is none"


async def test_a_process_that_is_killed_harms_nothing(tmp_path: Path) -> None:
    """What it wrote is there, and why there is no more."""
    async with served(Counting()) as server:
        scraper = await Scraper.launch(Target(base_url=server.url), None, CONNECT_S)
        scraper.start(time.perf_counter_ns(), tmp_path)
        await server.until((tmp_path / "server.jsonl").exists)
        os.kill(_pid(scraper), signal.SIGKILL)
        absent = await scraper.end()
    assert absent is not None
    assert "lost" in absent
    assert [scrape.values["output_tokens"] for scrape in server_log.read(tmp_path).scrapes] == [10]


async def test_a_process_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ended, whatever it was at."""
    monkeypatch.setattr(run_side, "END_S", 0.05)
    async with served(Counting()) as server:
        scraper = await Scraper.launch(Target(base_url=server.url), None, CONNECT_S)
        pid = _pid(scraper)
        os.kill(pid, signal.SIGSTOP)
        assert "lost" in (await scraper.end() or "")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def _pid(scraper: Scraper) -> int:
    assert scraper._process is not None
    return scraper._process.pid


async def test_of_several_servers_each_has_its_line_at_every_look(tmp_path: Path) -> None:
    """One without metrics says why, and the other is looked at all the same."""
    async with served(Counting()) as one, served(lambda _: reply("no", 404)) as other:
        found = await looked(tmp_path, Target(base_url=one.url, more_urls=(other.url,)))
    assert [scrape.target for scrape in found[:4]] == [one.url, other.url] * 2
    assert found[0].error is None
    assert "404" in (found[1].error or "")


def test_metrics_of_the_users_own_are_looked_at_where_he_says() -> None:
    """A host alone gets the usual path; as many as servers are theirs, one by one."""
    target = Target(
        base_url="http://a:8000", more_urls=("http://b:8000",), metrics=("http://a:8002", "http://b:8002/m")
    )
    found = [(place.name, place.urls) for place in places(target)]
    assert found == [
        ("http://a:8000", ("http://a:8002/metrics",)),
        ("http://b:8000", ("http://b:8002/m",)),
    ]


def test_a_strange_host_is_told_no_secret() -> None:
    """Neither the key nor the headers that the load carries."""
    target = Target(base_url="http://a:8000", headers={"x": "secret"}, metrics=("http://b:9090/metrics",))
    (place,) = places(target)
    assert not place.is_ours
    assert place.target.headers == {}


async def test_a_strange_host_is_asked_without_the_key_and_the_headers() -> None:
    """By what it was really asked: `localhost` is not the host that the target is at."""
    async with served(Counting()) as load, served(Counting()) as strange:
        metrics = strange.url.replace("127.0.0.1", "localhost")
        await found_at(
            Target(base_url=load.url, headers={"x-team": "a"}, metrics=(metrics,)), api_key="sk-secret"
        )
        (asked,) = strange.requests
    assert {"authorization", "x-team"}.isdisjoint(asked.headers)
    assert "sk-secret" not in str(asked.headers)


async def test_names_are_kept_without_secrets_and_control_characters() -> None:
    """A label may echo the key, or hold what a terminal obeys."""
    page = 'foo{x="sk-very-secret",y="a\x1b[31m"} 3\nvllm:num_requests_running 2\n'
    async with served(lambda _: reply(page)) as server:
        (found,) = await found_at(Target(base_url=server.url), api_key="sk-very-secret")
    (name,) = found.raw
    assert name.startswith('foo{x="***"')
    assert name.isprintable()
    assert found.values == {"running": 2}


async def test_of_very_many_series_some_are_kept_and_that_is_said() -> None:
    """Those without a name known here; a known one is always read."""
    page = "".join(f"a{i} 1\n" for i in range(MOST_RAW + 7)) + "vllm:num_requests_running 2\n"
    async with served(lambda _: reply(page)) as server:
        (found,) = await found_at(Target(base_url=server.url))
    assert len(found.raw) == MOST_RAW
    assert found.left_out == f"7 of {MOST_RAW + 7:,} series that have no name known here"
    assert found.values == {"running": 2}


async def test_a_page_without_end_is_read_so_far_and_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of so many bytes is; one more is too many."""
    monkeypatch.setattr(scrape, "MOST_BYTES", 20)
    async with served(lambda _: reply("a 1\n" * 5)) as server:
        assert (await found_at(Target(base_url=server.url)))[0].error is None
    async with served(lambda _: reply("a 1\n" * 5 + "\n")) as server:
        assert "MB of them" in ((await found_at(Target(base_url=server.url)))[0].error or "")


async def test_figures_that_cannot_be_are_left_out_and_named() -> None:
    """The rest of the page counts."""
    page = (
        "vllm:num_requests_running -5\nvllm:kv_cache_usage_perc -7\nvllm:num_requests_waiting 3\n"
        'vllm:generation_tokens_total{a="1"} 1e308\nvllm:generation_tokens_total{a="2"} 1e308\n'
    )
    async with served(lambda _: reply(page)) as server:
        (found,) = await found_at(Target(base_url=server.url))
    assert found.values == {"waiting": 3}
    assert found.left_out == "running of -5, kv_share of -7, output_tokens of inf"


class FakeServer:
    """Answers at once, but hangs from the second look on where `hangs`."""

    def __init__(self, *, hangs: bool) -> None:
        self.hangs, self.looks = hangs, 0
        self.seen_often = asyncio.Event()

    async def look(self) -> tuple[int, Scrape]:
        self.looks += 1
        if self.looks == 5:
            self.seen_often.set()
        if self.hangs and self.looks > 1:
            await asyncio.Event().wait()
        return time.perf_counter_ns(), Scrape(at_s=0.0, took_s=0.0, values={"running": 1.0})


async def test_a_server_that_hangs_keeps_no_other_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is looked at on a clock of its own."""
    monkeypatch.setattr(scrape, "QUICK_S", 0.001)
    well, ill = FakeServer(hangs=False), FakeServer(hangs=True)
    pipe, (inner, outer) = asyncio.StreamReader(), os.pipe()
    pipe.feed_data(framed(Start(time.perf_counter_ns(), tmp_path)))
    watching = asyncio.create_task(_Watch([well, ill], pipe, outer).run())  # type: ignore[list-item]
    try:
        await asyncio.wait_for(well.seen_often.wait(), 5)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        os.close(inner)
        os.close(outer)
    assert ill.looks == 2


async def test_the_first_seconds_are_looked_at_more_often(tmp_path: Path) -> None:
    """To the next tenth of a second at first, later to the next second."""
    watch = _Watch([], asyncio.StreamReader(), -1)
    assert watch._pause_s() == server_log.EVERY_S
    for ago_s, most_s in ((0.55, 0.1), (5.25, 0.75)):
        watch._start = Start(time.perf_counter_ns() - round(ago_s * 1e9), tmp_path)
        assert most_s / 2 - 0.03 < watch._pause_s() <= most_s
