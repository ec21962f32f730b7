"""One Scenario becomes one run folder: fired over HTTP on the wall clock, or simulated in virtual time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loadgen.bundled import BUNDLED, Bundled
from loadgen.iterations import ITERATIONS, IterationWriter, draw
from loadgen.order import Order
from loadgen.records import RequestRecord
from loadgen.run import Run, RunHeader
from loadgen.run_folder import RunWriter, load
from loadgen.scenario import ScenarioError
from loadgen.stats.summary import Summary
from loadgen.strict_json import as_json
from loadgen.target import Target
from loadgen.terms import AS_ASKED
from loadgen.units import argument
from loadgen.whole_file import write_whole

if TYPE_CHECKING:
    from loadgen.client.appointed import Appointed
    from loadgen.client.control import Counters, Stop
    from loadgen.client.fleet import Fared
    from loadgen.client.job import Job
    from loadgen.client.preflight import Preflight
    from loadgen.cluster.nodes import Cluster
    from loadgen.looks import Look, Looks


def simulate(
    order: Order,
    interrupted: Callable[[], bool] = lambda: False,
    *,
    trace: bool = False,
    looks: Looks | None = None,
) -> Run:
    """The plan on the bundled engine in virtual time, until `interrupted` says so, or `looks` have told.

    `trace`: keep what each iteration did in iterations.jsonl, and draw it in trace.json.
    """
    from loadgen.engine import simulate as in_virtual_time
    from loadgen.workload import prompt_maker

    engine, load_asked = order.scenario.engine, order.scenario.load
    if load_asked.max_concurrency or load_asked.max_in_flight:
        raise ScenarioError("load: max_concurrency and max_in_flight bound the client; a simulation has none")
    header = order.header("virtual", BUNDLED, engine.model_name)
    kept_iterations = IterationWriter(order.folder / ITERATIONS)
    records = in_virtual_time(
        order.plan,
        engine,
        run_id=order.run_id,
        ignore_eos=load_asked.ignore_eos,
        tail=load_asked.tail,
        classes=tuple(load_asked.mixture.values()),
        prompt=prompt_maker(order.plan.prompts, order.salt or order.run_id),
        first_token_s=order.scenario.timeouts.first_token_s,
        total_s=order.scenario.timeouts.total_s,
        observe=kept_iterations.append if trace else None,
    )
    due = planned = 0
    last_planned = order.last_planned
    with ExitStack() as stack:
        writer = _opened(stack, order.folder, header)
        if trace:
            stack.enter_context(kept_iterations)
        for record in records:
            if interrupted():
                header.interrupted = True
                break
            writer.append(record)
            due += 1
            planned += record.index <= last_planned
            if looks is not None and (look := looks.after(record)) is not None:
                header.ended_early = look.tell(header)
                if header.ended_early is not None:
                    break
        header.rows_due, header.rows_not_sent = due, len(order.plan) - planned
        header.rows_dropped = records.dropped
        header.complete = True
    if trace:
        with kept(order.folder):
            draw(order.folder, f"{order.run_id}, simulated")
    return load(order.folder)


async def fire(
    order: Order,
    target: Target,
    *,
    preflight: Preflight | None,
    api_key: str | None,
    counters: Counters,
    stop: Stop,
    is_bundled: bool = False,
    notes: Sequence[str] = (),
    looks: Looks | None = None,
    cluster: Cluster | None = None,
    appointed: Appointed | None = None,
) -> Run:
    """The plan over HTTP at `target`. The folder is made as the run starts; what was measured is in it then.

    `notes`: what is known of the run beforehand and kept with it. `looks`: may end it early, where the client
    is one process. `cluster`: whose nodes send the plan, instead of this one. `appointed`: when to start.

    Raises what broke the run on our own side, after the records were saved.
    """
    from loadgen.client import fleet
    from loadgen.client.job import Share
    from loadgen.client.link import beside
    from loadgen.client.lost import loss
    from loadgen.client.scraper import Scraper

    shares = (
        fleet.shares(order.plan, order.scenario, order.shard or Share())
        if cluster is None
        else Share().split(cluster.processes(order.plan, order.scenario))
    )
    target = (preflight.target if preflight else None) or target
    header = _header(order, target, preflight, api_key, is_bundled=is_bundled)
    header.source = "http" if cluster is None else "merged"
    header.notes += notes
    job = _job(order, target, preflight, api_key)
    scraper = await Scraper.launch(target, api_key, order.scenario.timeouts.connect_s)
    with ExitStack() as stack:
        writer: RunWriter

        def started(origin_ns: int) -> None:
            nonlocal writer
            ahead = timedelta(microseconds=(origin_ns - time.perf_counter_ns()) / 1000)
            header.started_at = (datetime.now(UTC) + ahead).isoformat()
            header.clock_origin_monotonic_ns = counters.origin_ns = origin_ns
            writer = _opened(stack, order.folder, header)
            scraper.start(origin_ns, order.folder)

        looking = _Looking(looks, header, stop)

        def append(record: RequestRecord) -> None:
            writer.append(record)
            looking.at(record)

        async def sent() -> Fared:
            told: Any = {"on_start": started, "counters": counters, "stop": stop}
            if cluster is None and len(shares) == 1:
                health = await job.run(shares[0], append=append, peers=appointed, **told)
                return fleet.Fared(health, [], counters.due)
            links = (
                cluster.links(job, shares, lambda lines: writer.append_lines(lines))
                if cluster
                else beside(job, shares)
            )
            start_ns = appointed.start_ns if appointed else fleet.soon
            return await fleet.run(links, start_ns=start_ns, **told)

        try:
            fared = await sent()
            ended_ns = stop.asked_ns or time.perf_counter_ns()
            header.health = fared.health
            if appointed is not None and order.shard is not None:
                header.health.start_by, header.health.start_error_s = appointed.by, appointed.error_s
        except BaseException as problem:
            header.crashed = type(problem).__name__
            raise
        finally:
            header.server_absent = await scraper.end()
            await looking.over()
            header.interrupted = stop.asked and (header.ended_early is None or stop.cutting)
            header.rows_due, header.rows_not_sent = counters.due, len(order.part) - counters.planned
            header.rows_dropped = counters.dropped
        if fared.lost:  # what these told last was not the last that they did
            lost = loss(job, fared.lost, ended_ns - counters.origin_ns)
            for record in lost.records:
                writer.append(record)
            header.rows_lost, header.rows_not_sent = len(lost.records), len(order.part) - lost.sent
            header.rows_due = None if lost.due is None else fared.due + lost.due
        if fared.each:
            writer.write("workers.json", as_json(fared.each))
        header.complete = True
    return load(order.folder)


def _header(
    order: Order, target: Target, preflight: Preflight | None, api_key: str | None, *, is_bundled: bool
) -> RunHeader:
    from loadgen.client.secrets import Secrets
    from loadgen.client.unreachable import one_line

    model = target.model or (preflight.model if preflight else None)
    shown = model and one_line(model, Secrets.of(target, api_key))
    bundled = target.about if isinstance(target, Bundled) else BUNDLED
    header = order.header("http", bundled if is_bundled else ", ".join(target.urls), shown)
    if preflight is not None:
        header.preflight, words = preflight.facts, preflight.calibration
        header.notes += preflight.notes
        header.calibration = None if words is None else asdict(words)
    return header


def _job(order: Order, target: Target, preflight: Preflight | None, api_key: str | None) -> Job:
    from loadgen.client.job import Job

    return Job(
        plan=order.plan,
        scenario=order.scenario,
        target=target,
        model=target.model or (preflight.model if preflight else None),
        api_key=api_key,
        run_id=order.run_id,
        salt=order.salt or order.run_id,
        words=preflight.calibration if preflight else None,
        folder=order.folder,
        last_planned=order.last_planned,
        terms=preflight.terms if preflight else AS_ASKED,
    )


class _Looking:
    """Takes looks at a run over HTTP while it goes on: in a thread, so that answers are read meanwhile."""

    def __init__(self, looks: Looks | None, header: RunHeader, stop: Stop) -> None:
        self._looks, self._header, self._stop = looks, header, stop
        self._task: asyncio.Task[None] | None = None

    def at(self, record: RequestRecord) -> None:
        if self._looks is None or self._stop.asked or (look := self._looks.after(record)) is None:
            return
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._take(look))

    async def _take(self, look: Look) -> None:
        early = await asyncio.to_thread(look.tell, self._header)
        if early is not None and self._looks is not None and not self._stop.asked:
            self._header.ended_early = early
            self._stop.drain()

    async def over(self) -> None:
        """The run has ended, however a look that is still taken would come out."""
        self._looks = None
        if self._task is not None:
            await self._task


def _opened(stack: ExitStack, folder: Path, header: RunHeader) -> RunWriter:
    """A new run folder. As `stack` unwinds, its header is written once more, and the folder is closed."""
    writer = RunWriter(folder)
    stack.enter_context(kept(folder))
    stack.enter_context(writer)
    writer.write_header(header)
    stack.callback(writer.write_header, header)
    return writer


@contextmanager
def kept(folder: Path) -> Iterator[None]:
    """Whatever fails meanwhile carries a note that says where the records are."""
    try:
        yield
    except ScenarioError:  # nothing was sent, and what is in the folder is another run's
        raise
    except BaseException as trouble:
        if (folder / "run.json").is_file() and not getattr(trouble, "__notes__", []):
            trouble.add_note(f"what was recorded is kept: loadgen report {argument(folder)}")
        raise


def conclude(run: Run, folder: Path) -> Summary:
    """Summarise a run and write summary.json and vllm.json beside its records. Raises WriteError.

    Of a shard no vllm.json, which has no word for it: it would be read as a server that bears a part.
    """
    from loadgen.stats import summarize, vllm_result

    summary = summarize(run)
    write_whole(folder / "summary.json", as_json(summary))
    if run.header.shard is None:
        write_whole(folder / "vllm.json", as_json(vllm_result(run, summary)))
    return summary
