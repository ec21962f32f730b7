"""A relay beside a worker, and the link to it, over a network that loses answers and repeats questions."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.client.job import Share
from loadgen.client.pipes import framed
from loadgen.cluster import relay as relays
from loadgen.cluster.far import KILLED, GoneError, Relayed
from loadgen.cluster.relay import Heard, Relay, lines_from, salvage, sweep
from loadgen.whole_file import WriteError
from tests.virtual_loop import run_virtual

EXIT = 3
Act = tuple[str, Any]


class Scripted:
    """A worker process that does as it is told, an act a millisecond, into the folder it is given."""

    def __init__(self, acts: list[Act], folder: Path) -> None:
        self.acts, self.folder = iter(acts), folder
        self.facts: dict[str, Any] = {"pid": 2**22 + 1}  # nobody's
        self.heard = b""

    def write(self, frames: bytes) -> None:
        self.heard += frames

    async def hear(self) -> object | None:
        for kind, what in self.acts:
            await asyncio.sleep(0.001)
            if kind == "says":
                return what
            if kind == "breaks":
                self.acts = iter(())
                raise what
            with (self.folder / "records.jsonl").open("ab") as file:
                file.write(what)
        return None

    async def ended(self) -> int:
        return EXIT

    def kill(self) -> None:
        self.acts = iter(())


class Network:
    """A Far. `fates`: of each question in turn: answered; its answer lost, so that it is asked again; asked
    twice, and once more much later; or the relay is dead from then on, perhaps with its node.
    """

    def __init__(self, relay: Relay, fates: Iterator[str]) -> None:
        self.relay, self.fates = relay, fates
        self.dead: str | None = None
        self.killed = False
        self.late: set[asyncio.Task[Any]] = set()

    async def _asked(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        fate = next(self.fates, "answered") if self.dead is None else self.dead
        if fate in ("relay dies", "node dies"):
            self.dead = fate
            raise GoneError(fate)
        if fate == "answer lost":
            await ask()
        elif fate == "late":
            self.late.add(asyncio.ensure_future(self._later(ask)))
        return await ask()

    async def _later(self, ask: Callable[[], Awaitable[Any]]) -> None:
        await asyncio.sleep(0.005)
        await ask()

    async def about(self) -> dict[str, Any]:
        return {"host": "there"}

    async def begin(self, share: Share, sealed: Any) -> dict[str, Any]:
        return await self._asked(lambda: self.relay.begin(share, sealed, None))  # type: ignore[arg-type]

    async def now_ns(self) -> int:
        return await self.relay.now_ns()

    async def say(self, number: int, frame: bytes) -> None:
        await self._asked(lambda: self.relay.say(number, frame))

    async def hear(self, have: int, at: int) -> Heard:
        found: Heard = await self._asked(lambda: self.relay.hear(have, at))
        return found

    async def clear(self) -> None:
        await self._asked(self.relay.clear)

    async def salvage(self, facts: dict[str, Any], at: int) -> bytes:
        if self.dead == "node dies":
            raise GoneError("no node")
        return salvage(Path(facts["folder"]), facts["pid"], at)

    def kill(self) -> None:
        self.killed = True


class Sealed:
    """What becomes a job."""

    api_key = None

    def __init__(self, **_: object) -> None: ...


@contextmanager
def scripted(acts: list[Act], at_once_bytes: int = relays.AT_ONCE_BYTES) -> Iterator[list[Scripted]]:
    """Relays start a worker that does these; the list has each that was."""
    started: list[Scripted] = []
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:

        async def start(_share: Share, _key: str | None = None) -> Any:
            started.append(Scripted(acts, Path(folder) / relays.SPOOL))
            return started[-1]

        def mkdtemp(prefix: str) -> str:
            (made := Path(folder) / prefix).mkdir()
            return str(made)

        patch.setattr(relays, "start", start)
        patch.setattr(relays, "mkdtemp", mkdtemp)
        patch.setattr(relays, "gettempdir", lambda: folder)
        patch.setattr(relays, "AT_ONCE_BYTES", at_once_bytes)
        yield started
        if started:
            relays.shutil.rmtree(started[0].folder, ignore_errors=True)
        assert [*Path(folder).iterdir()] == []


class Heeded:
    """All that came by a link until its worker's end."""

    def __init__(self, link: Relayed, lines: list[bytes], worker: Scripted, exit_code: int) -> None:
        self.link, self.lines, self.worker, self.exit_code = link, b"".join(lines), worker, exit_code
        self.words: list[object] = []
        self.was_left = worker.folder.exists()


def heeded(acts: list[Act], fates: list[str], telling: list[str] = [], at_once_bytes: int = 16) -> Heeded:  # noqa: B006
    async def main(_: object) -> Heeded:
        lines: list[bytes] = []
        network = Network(Relay(), iter(["answered", *fates]))
        link = Relayed(Share(0, 1), network, lines.append)
        await link.meet()
        await link.begin(Sealed)
        words = []
        for one in telling:
            link.say(one)
        while (word := await link.hear()) is not None:
            words.append(word)
        found = Heeded(link, lines, started[0], await link.ended())
        found.words = words
        assert network.killed
        assert len(started) == 1
        await asyncio.gather(*network.late, return_exceptions=True)
        if link._telling is not None:
            await link._telling
        await asyncio.sleep(1)  # whatever the worker still does
        return found

    with scripted(acts, at_once_bytes) as started:
        return run_virtual(main)


LINE = st.binary(max_size=40).map(lambda some: some.replace(b"\n", b"") + b"\n")


@st.composite
def scripts(draw: st.DrawFn) -> tuple[list[Act], list[str], bytes]:
    """What a worker does: words, and lines that may take several writes. The last may be half a line."""
    written = b"".join(draw(st.lists(LINE, max_size=8))) + draw(st.sampled_from([b"", b"half"]))
    cuts = sorted(draw(st.lists(st.integers(0, len(written)), max_size=6)))
    pieces = [written[a:b] for a, b in zip([0, *cuts], [*cuts, len(written)], strict=True)]
    said = [str(k) for k in range(draw(st.integers(0, 6)))]
    acts: list[Act] = [("writes", piece) for piece in pieces]
    for place, word in zip(
        sorted(draw(st.lists(st.integers(0, len(acts)), min_size=6, max_size=6))), said, strict=False
    ):
        acts.insert(place + int(word), ("says", word))
    return acts, said, written


FATES = ["answered", "answer lost", "late"]


@given(scripts(), st.lists(st.sampled_from(FATES), max_size=40), st.lists(st.text(max_size=3), max_size=4))
def test_every_line_is_recorded_once_and_every_word_heard_once(
    script: tuple[list[Act], list[str], bytes], fates: list[str], telling: list[str]
) -> None:
    """In order, whatever is asked again; in whole lines, however long; the worker is told each word once."""
    acts, said, written = script
    found = heeded(acts, fates, telling)
    assert found.words == said
    assert found.lines == written[: written.rfind(b"\n") + 1]
    assert found.exit_code == EXIT
    assert found.worker.heard.endswith(b"".join(map(framed, telling)))
    assert found.worker.heard.count(framed(Share(0, 1))) == 1
    assert len(found.worker.heard) == len(framed(Share(0, 1)) + framed(Sealed())) + sum(
        len(framed(one)) for one in telling
    )
    assert not found.was_left
    assert found.link.clock.by == "measured"
    assert found.link.facts["clock_error_s"] == found.link.clock.error_ns / 1e9


@given(scripts(), st.lists(st.sampled_from(FATES), max_size=15))
def test_a_relay_that_dies_takes_no_record_with_it(
    script: tuple[list[Act], list[str], bytes], fates: list[str]
) -> None:
    """What the worker recorded by its end is read by another on the node; it counts as killed."""
    acts, said, written = script
    quick = [act for act in acts if act[0] == "writes"] + [act for act in acts if act[0] == "says"]
    found = heeded(quick, [*fates, "relay dies"])
    if found.exit_code == EXIT:  # it had ended before
        return
    assert found.exit_code == KILLED
    assert found.link.facts["lost"] == "relay dies"
    assert found.words == said[: len(found.words)]
    assert found.lines == written[: len(found.lines)]
    assert found.lines.endswith(b"\n") or not found.lines
    assert not found.was_left


@given(scripts(), st.lists(st.sampled_from(FATES), max_size=15))
def test_what_a_dead_node_had_sent_stands(
    script: tuple[list[Act], list[str], bytes], fates: list[str]
) -> None:
    """A beginning of what its worker recorded, in whole lines; the rest is lost with it."""
    acts, said, written = script
    found = heeded(acts, [*fates, "node dies"])
    assert found.exit_code in (EXIT, KILLED)
    assert found.words == said[: len(found.words)]
    assert written.startswith(found.lines)
    assert found.lines.endswith(b"\n") or not found.lines


def test_a_dead_relay_is_salvaged_of_all_that_its_worker_wrote() -> None:
    """Three lines were written, of which one had been heard."""
    lines = [b"one\n", b"two\n", b"three\n", b"ha"]

    async def main(_: object) -> None:
        got: list[bytes] = []
        network = Network(Relay(), iter(["answered", "answered"]))
        link = Relayed(Share(0, 1), network, got.append)
        await link.meet()
        await link.begin(Sealed)
        await link._hear()
        assert got == [b"one\n"]
        await asyncio.sleep(0.1)
        network.dead = "relay dies"
        assert [await link.hear(), await link.hear()] == ["a", None]
        assert b"".join(got) == b"one\ntwo\nthree\n"
        assert not started[0].folder.exists()

    acts: list[Act] = [("writes", lines[0]), ("says", "a"), *(("writes", line) for line in lines[1:])]
    with scripted(acts) as started:
        run_virtual(main)


def test_a_full_disk_here_breaks_the_run_as_if_a_worker_had_said_so() -> None:
    """The words that came with the lines are heard too, and the worker is followed to its end."""

    async def main(_: object) -> None:
        def refuse(_: bytes) -> None:
            raise WriteError("cannot write r/records.jsonl: No space left on device")

        link = Relayed(Share(0, 1), Network(Relay(), iter([])), refuse)
        await link.begin(Sealed)
        heard = [await link.hear() for _ in range(3)]
        assert [str(one) for one in heard] == [
            "cannot write r/records.jsonl: No space left on device",
            "a",
            "None",
        ]
        assert await link.ended() == EXIT

    with scripted([("writes", b"line\n"), ("says", "a")]):
        run_virtual(main)


def test_a_bug_of_a_relay_that_is_told_something_breaks_the_run() -> None:
    """It does not leave all others waiting for a start that never comes."""

    class Broken(Network):
        async def say(self, number: int, frame: bytes) -> None:
            raise RuntimeError("a bug there")

    async def main(_: object) -> None:
        link = Relayed(Share(0, 1), Broken(Relay(), iter([])), lambda _: None)
        await link.begin(Sealed)
        link.say("start")
        assert str(await link.hear()) == "a bug there"
        await link.ended()

    with scripted([("writes", b"line\n")] * 3):
        run_virtual(main)


def test_a_bug_while_a_worker_is_listened_to_is_heard_and_ends_it() -> None:
    """Such as words that cannot be read: the relay says so, and that the worker is over."""
    found = heeded([("breaks", EOFError("cut short")), ("says", "never heard")], [])
    [word] = found.words
    assert isinstance(word, EOFError)


def test_a_full_disk_there_is_told_with_its_node() -> None:
    """Which of many is to be looked at."""
    found = heeded([("says", WriteError("cannot write /tmp/x: No space left on device"))], [])
    [word] = found.words
    assert isinstance(word, WriteError)
    assert str(word) == f"{relays.platform.node()}: cannot write /tmp/x: No space left on device"


def test_lines_longer_than_is_read_at_once_come_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the end of one is still to be written."""
    monkeypatch.setattr(relays, "AT_ONCE_BYTES", 4)
    assert lines_from(tmp_path, 0) == b""
    (tmp_path / "records.jsonl").write_bytes(b"a\nlonger than four\nb\nhalf of anoth")
    at, found = 0, []
    while some := lines_from(tmp_path, at):
        found.append(some)
        at += len(some)
    assert found == [b"a\n", b"longer than four\n", b"b\n"]


def test_only_what_nobody_has_written_to_for_a_day_is_swept(tmp_path: Path) -> None:
    """Of our own spools: one that is in use may be as old."""
    for name, folder_h, records_h in (("old", 30, 30), ("used", 30, 1), ("new", 1, None)):
        folder = tmp_path / f"{relays.SPOOL}{name}"
        folder.mkdir()
        if records_h is not None:
            (folder / "records.jsonl").touch()
            _age(folder / "records.jsonl", records_h)
        _age(folder, folder_h)
    (tmp_path / "someone-elses").mkdir()
    _age(tmp_path / "someone-elses", 30)
    sweep(tmp_path)
    left = {path.name.removeprefix(relays.SPOOL) for path in tmp_path.iterdir()}
    assert left == {"used", "new", "someone-elses"}


def _age(path: Path, hours: float) -> None:
    then_s = relays.time.time() - hours * 3600
    os.utime(path, (then_s, then_s))


def test_a_clock_that_moved_meanwhile_was_that_far_off() -> None:
    """By a second between the comparison before the run and the one after it; the run went by the first."""

    class Moves(Network):
        moved_ns = 0

        async def now_ns(self) -> int:
            return await super().now_ns() + self.moved_ns

        async def hear(self, have: int, at: int) -> Heard:
            self.moved_ns = 10**9
            return await super().hear(have, at)

    async def main(_: object) -> tuple[Relayed, int]:
        link = Relayed(Share(0, 1), Moves(Relay(), iter([])), lambda _: None)
        await link.begin(Sealed)
        ahead_ns = link.clock.ahead_ns
        assert await link.ended() == EXIT
        return link, ahead_ns

    with scripted([]):
        link, ahead_ns = run_virtual(main)
    assert link.clock.ahead_ns == ahead_ns
    assert link.facts["clock_error_s"] == pytest.approx(1, abs=0.1)


def test_what_could_not_be_fetched_is_told_with_its_reason() -> None:
    """The node is gone: a reader of workers.json sees why records are missing."""
    found = heeded([("writes", b"line\n")], ["node dies"])
    assert (found.exit_code, found.link.facts["not_fetched"]) == (KILLED, "no node")


def test_a_worker_that_begins_sweeps_what_was_left_long_ago() -> None:
    """Nobody else does."""

    async def main(_: object) -> None:
        link = Relayed(Share(0, 1), Network(Relay(), iter([])), lambda _: None)
        await link.begin(Sealed)
        await link.ended()

    with scripted([]):
        (old := Path(relays.gettempdir(), f"{relays.SPOOL}old")).mkdir()
        _age(old, 30)
        run_virtual(main)
        assert not old.exists()
