"""A relay by itself: what it answers when it is asked again, and what it reads of a file still written to."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.client.job import Share
from loadgen.client.pipes import framed
from loadgen.cluster import relay as relays
from loadgen.cluster.relay import Heard, Relay, lines_from, salvage
from tests.cluster.test_far import EXIT, Act, Scripted, Sealed, scripted
from tests.virtual_loop import run_virtual

TWO_OF_EACH: list[Act] = [("writes", b"one\n"), ("says", "a"), ("writes", b"two\nha"), ("says", "b")]


def relayed(acts: list[Act], steps: Callable[[Relay, Scripted], Awaitable[None]]) -> None:
    """`steps` with a relay whose worker does `acts`; what is recorded is cleared at the end."""

    async def main(_: object) -> None:
        relay = Relay()
        await relay.begin(Share(0, 1), Sealed, None)  # type: ignore[arg-type]
        await steps(relay, started[0])
        await relay.clear()

    with scripted(acts) as started:
        run_virtual(main)


def test_the_same_question_has_the_same_answer_until_more_is_had() -> None:
    """An answer that was lost is given again, whole; what the asker has is not."""

    async def steps(relay: Relay, _: Scripted) -> None:
        await asyncio.sleep(0.1)
        everything = Heard(["a", "b"], b"one\ntwo\n", None)
        assert [await relay.hear(0, 0) for _ in range(3)] == [everything] * 3
        assert [await relay.hear(1, 4) for _ in range(2)] == [Heard(["b"], b"two\n", None)] * 2

    relayed(TWO_OF_EACH, steps)


def test_a_question_from_before_forgets_nothing_more() -> None:
    """It arrives late, nobody waits for its answer, and the next one finds all that is new."""

    async def steps(relay: Relay, _: Scripted) -> None:
        await asyncio.sleep(0.1)
        assert await relay.hear(1, 4) == Heard(["b"], b"two\n", None)
        await relay.hear(0, 0)
        assert await relay.hear(1, 4) == Heard(["b"], b"two\n", None)

    relayed(TWO_OF_EACH, steps)


def test_the_exit_code_comes_after_all_else() -> None:
    """As often as it is asked for, and with no half line, which nobody will end."""

    async def steps(relay: Relay, _: Scripted) -> None:
        await asyncio.sleep(0.1)
        assert (await relay.hear(0, 0)).exit_code is None
        assert (await relay.hear(2, 4)).exit_code is None
        assert [await relay.hear(2, 8) for _ in range(2)] == [Heard([], b"", EXIT)] * 2

    relayed(TWO_OF_EACH, steps)


def test_lines_are_not_kept_waiting_for_a_word() -> None:
    """A worker that says nothing for long is heard of by what it records."""

    async def steps(relay: Relay, worker: Scripted) -> None:
        asked_s = asyncio.get_running_loop().time()
        (worker.folder / "records.jsonl").write_bytes(b"line\n")
        assert await relay.hear(0, 0) == Heard([], b"line\n", None)
        assert asyncio.get_running_loop().time() - asked_s <= relays.LOOK_S
        await asyncio.sleep(1)  # the worker's end

    relayed([("writes", b"")] * 500, steps)


def test_a_worker_is_begun_once_and_told_each_word_once() -> None:
    """Also where two ask at the same time."""

    async def main(_: object) -> None:
        relay = Relay()
        facts = await asyncio.gather(*(relay.begin(Share(0, 1), Sealed, None) for _ in range(3)))  # type: ignore[arg-type]
        assert facts == [facts[0]] * 3
        assert len(started) == 1
        told = len(started[0].heard)
        for number in (0, 0, 1, 0, 1, 2):
            await relay.say(number, framed(number))
        assert started[0].heard[told:] == b"".join(map(framed, range(3)))
        await relay.clear()

    with scripted([]) as started:
        run_virtual(main)


WRITTEN = st.lists(st.sampled_from([b"a", b"bc", b"\n", b"long" * 5]), max_size=20)


@given(WRITTEN, st.integers(1, 9))
def test_a_file_that_grows_is_read_in_whole_lines_and_once(pieces: list[bytes], at_once_bytes: int) -> None:
    """Whatever was written between two looks: half of a line, several, or one longer than is read at once."""
    with TemporaryDirectory() as temporary, pytest.MonkeyPatch.context() as patch:
        patch.setattr(relays, "AT_ONCE_BYTES", at_once_bytes)
        (folder := Path(temporary) / "spool").mkdir()
        found = b""
        for piece in pieces:
            with (folder / "records.jsonl").open("ab") as file:
                file.write(piece)
            lines = lines_from(folder, len(found))
            assert lines == b"" or lines.endswith(b"\n")
            found += lines
        found += salvage(folder, 2**22 + 1, len(found))
        assert not folder.exists()
    written = b"".join(pieces)
    assert found == written[: written.rfind(b"\n") + 1]


def test_what_an_orphan_writes_before_it_ends_is_salvaged(tmp_path: Path) -> None:
    """It is awaited; then nothing stays of its folder."""
    folder = tmp_path / "spool"
    folder.mkdir()
    writes = (
        f"import time; time.sleep(0.5); open({str(folder / 'records.jsonl')!r}, 'w').write('x\\nlast\\n')"
    )
    # A child of ours would stay in the list of processes until we ask: this one is a child of one that ends.
    starts = (
        "from subprocess import DEVNULL, Popen; import sys\n"
        f"print(Popen([sys.executable, '-c', {writes!r}], stdout=DEVNULL, stderr=DEVNULL).pid)"
    )
    told = subprocess.run([sys.executable, "-c", starts], capture_output=True, check=True, timeout=20)
    assert salvage(folder, int(told.stdout), 2) == b"last\n"
    assert not folder.exists()


def test_a_number_that_another_users_process_has_by_now_is_not_awaited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker has ended, or we could signal it."""

    def refuse(*_: object) -> None:
        raise PermissionError

    waits: list[float] = []
    monkeypatch.setattr(relays.os, "kill", refuse)
    monkeypatch.setattr(relays.time, "sleep", waits.append)
    (tmp_path / "records.jsonl").write_bytes(b"x\n")
    assert salvage(tmp_path, 1, 0) == b"x\n"
    assert waits == []
