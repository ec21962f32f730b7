"""Sessions over the client: when a turn is sent, and with which words before it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from loadgen.client.conversation import Conversations, plain_text
from loadgen.plan import Phase, Prompt, Row
from loadgen.scenario import ScenarioError
from tests.client.runs import in_turn, plan_of, run_plan, scenario_of, sessions_of, stopping, writing
from tests.client.streams import DONE, HEAD, LAST_CHUNK, chunk, delta, plain, say, text
from tests.virtual_loop import Link, Peer

ONE_SLOT = {"max_concurrency": 1}


def body_of(request: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(request.partition(b"\r\n\r\n")[2])
    return found


def telling(heard: list[dict[str, Any]], *pieces: bytes, for_s: float = 1.0) -> Peer:
    """Answers every request with these events, the last one so long after it; notes each request's body."""

    async def peer(link: Link) -> None:
        while True:
            heard.append(body_of(await link.request()))
            await link.send(HEAD + b"".join(map(chunk, pieces[:-1])))
            await link.send(chunk(pieces[-1] + DONE) + LAST_CHUNK, for_s)

    return peer


def user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}


def assistant(content: str) -> dict[str, str]:
    return {"role": "assistant", "content": content}


def say_index(row: Row) -> Prompt:
    return f"ask {row.index}"


def test_a_turn_is_sent_when_the_answer_has_ended_and_the_user_has_thought() -> None:
    """Answers take 1 s, thinking 2 s: sent to the microsecond, and recorded as a session's."""
    ran = run_plan(sessions_of(3, think_s=2.0), telling([], say("a"), say("b", "stop")))
    assert [ran.of(i).due_s for i in range(3)] == [0.0, 3.0, 6.0]
    assert [ran.of(i).started_s for i in range(3)] == [0.0, 3.0, 6.0]
    assert [(ran.of(i).session, ran.of(i).turn) for i in range(3)] == [("0", 1), ("0", 2), ("0", 3)]


def test_a_chat_holds_all_that_was_said() -> None:
    """Each turn says again what was asked, and the answers as they came, without their reasoning."""
    heard: list[dict[str, Any]] = []
    peer = telling(
        heard, delta(role="assistant"), delta(reasoning_content="hm"), say("Hé"), say("llo", "stop")
    )
    run_plan(sessions_of(3), peer, prompt=say_index)
    assert [body["messages"] for body in heard] == [
        [user("ask 0")],
        [user("ask 0"), assistant("Héllo"), user("ask 1")],
        [user("ask 0"), assistant("Héllo"), user("ask 1"), assistant("Héllo"), user("ask 2")],
    ]


def test_completions_go_on_with_the_text() -> None:
    """The prompt is one text: what was asked and answered, without anything between."""
    heard: list[dict[str, Any]] = []
    peer = telling(heard, text(" one"), text(" two", "stop"))
    run_plan(
        sessions_of(2),
        peer,
        scenario_of(target={"endpoint": "/v1/completions"}),
        prompt=lambda r: f"<{r.index}>",
    )
    assert [body["prompt"] for body in heard] == ["<0>", "<0> one two<1>"]


def test_sessions_are_not_mixed_up() -> None:
    """Of two at once, each hears its own answers."""
    heard: list[dict[str, Any]] = []
    peers = [telling(heard, say("x"), say(name, "stop"), for_s=s) for name, s in (("A", 1.0), ("B", 1.3))]
    ran = run_plan(sessions_of(2, 2, start_s=[0.0, 0.5]), in_turn(*peers), prompt=say_index)
    turns = {body["messages"][-1]["content"]: body["messages"] for body in heard}
    assert turns["ask 1"] == [user("ask 0"), assistant("xA"), user("ask 1")]
    assert turns["ask 3"] == [user("ask 2"), assistant("xB"), user("ask 3")]
    assert ran.outcomes == {0: "ok", 1: "ok", 2: "ok", 3: "ok"}


def test_messages_that_were_written_out_are_sent_as_they_are() -> None:
    """A system prompt stands before the first question, and stays there; completions join what they hold."""
    heard: list[dict[str, Any]] = []
    system = {"role": "system", "content": "be brief"}

    def prompt(row: Row) -> Prompt:
        return [system, user("why?")] if row.turn == 1 else "and?"

    run_plan(sessions_of(2), telling(heard, say("so", "stop")), prompt=prompt)
    assert heard[1]["messages"] == [system, user("why?"), assistant("so"), user("and?")]
    parts = [system, {"role": "user", "content": [{"type": "text", "text": "why?"}]}]
    assert plain_text(parts) == "be brief\nwhy?"
    with pytest.raises(ScenarioError, match="takes text alone"):
        plain_text([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}])


def test_token_ids_are_sent_as_they_are() -> None:
    """A prompt of numbers goes to /v1/completions as numbers."""
    heard: list[dict[str, Any]] = []
    run_plan(
        plan_of([0.0]),
        telling(heard, text("a", "stop")),
        scenario_of(target={"endpoint": "/v1/completions"}),
        prompt=lambda _: [5, 6, 7],
    )
    assert heard[0]["prompt"] == [5, 6, 7]


def test_a_turn_waits_for_its_own_answer_alone() -> None:
    """It is sent at 1 s, though another session's answer takes until 5 s and no other row is due before."""
    peers = [telling([], say("a", "stop"), for_s=for_s) for for_s in (1.0, 5.0)]
    assert run_plan(sessions_of(2, 1), in_turn(*peers)).of(1).started_s == 1.0


def test_a_failed_turn_ends_its_session() -> None:
    """The second of four turns is refused: two never fall due, and are counted; another session goes on."""
    refusing = writing((0.5, plain(500)))
    peer = in_turn(*[telling([], say("a", "stop"))] * 2, refusing)
    ran = run_plan(sessions_of(4, 1, start_s=[0.0, 0.5]), peer, scenario_of(target={"connections": "fresh"}))
    assert ran.outcomes == {0: "ok", 1: "http_error", 4: "ok"}
    assert (ran.counters.dropped, ran.counters.due) == (2, 3)


def test_a_turn_that_our_own_end_cut_short_drops_none() -> None:
    """The run ends with its one row at 1 s; a session of the tail, in its first turn, is aborted."""
    later = sessions_of(2, start_s=[0.5], first_index=1)
    tail = replace(later, phase=np.full(2, Phase.TAIL, np.uint8))
    plan = replace(sessions_of(1), more=lambda: iter([tail]))
    ran = run_plan(plan, in_turn(*[telling([], say("a", "stop"), for_s=for_s) for for_s in (1.0, 5.0)]))
    assert ran.outcomes == {0: "ok", 1: "aborted"}
    assert ran.counters.dropped == 0


def test_turns_wait_for_a_slot_like_any_row() -> None:
    """Two sessions share one slot: each turn is due by its own session, and waits for the other's answer."""
    ran = run_plan(sessions_of(2, 1), telling([], say("a", "stop")), scenario_of(load=ONE_SLOT))
    assert [ran.of(i).due_s for i in range(3)] == [0.0, 1.0, 0.0]
    assert [ran.of(i).started_s for i in range(3)] == [0.0, 2.0, 1.0]


def test_an_unsent_turn_ends_its_session() -> None:
    """At `max_in_flight` a turn is unsent: its answer will never come."""
    plan = sessions_of(1, 2, start_s=[0.0, 0.5])
    ran = run_plan(plan, telling([], say("a", "stop")), scenario_of(load={"max_in_flight": 1}))
    assert ran.outcomes == {0: "ok", 1: "unsent"}
    assert ran.counters.dropped == 1


def test_turns_that_wait_leave_no_record_when_the_run_is_stopped() -> None:
    """A turn whose user still thinks has not fallen due."""
    ran = run_plan(sessions_of(3, think_s=5.0), telling([], say("a", "stop")), before=stopping(2.0))
    assert ran.outcomes == {0: "ok"}
    assert ran.ended_s == 2.0


def test_a_turn_is_written_while_its_user_thinks() -> None:
    """A prompt that takes 100 ms to make delays no turn that left time for it, nor another row."""
    plan = plan_of(
        [0.0, 0.2, 4.0], session=[7, 7, -1], turn=[1, 2, 0], after=[-1, 0, -1], think_ns=[0, 10**9, 0]
    )
    ran = run_plan(plan, telling([], say("a", "stop")), prompt_s=0.1)
    assert [ran.of(i).started_s for i in range(3)] == [ran.of(i).due_s for i in range(3)]
    assert ran.of(1).due_s == (ran.of(0).ended_s or 0) + 1.0


def test_what_was_said_is_kept_no_longer_than_it_is_needed() -> None:
    """It is let go as the next turn is written."""
    said = Conversations(is_chat=True)
    first, second = Row(0, 0, 1, 1, 1, 0), Row(1, 0, 1, 1, 1, 0, after=0)
    said.heard(first, said.prompt(first, "a"), "b")
    assert len(said) == 1
    assert said.prompt(second, "c") == [user("a"), assistant("b"), user("c")]
    assert len(said) == 0
