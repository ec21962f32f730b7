"""What each dialect asks for, to the letter."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from loadgen.backends import ENDPOINTS, OF_IDS, DialectName
from loadgen.client.dialects import Wish, dialect
from loadgen.client.request import body
from loadgen.plan import Prompt
from loadgen.target import Target
from loadgen.terms import AS_ASKED

CHAT = [{"role": "user", "content": "hi"}]
STREAMED = {"stream": True, "stream_options": {"include_usage": True}}

PLAIN: dict[DialectName, dict[str, Any]] = {
    "chat": {"model": "m", "messages": CHAT, "max_tokens": 8} | STREAMED,
    "completions": {"model": "m", "prompt": "hi", "max_tokens": 8} | STREAMED,
    "responses": {"model": "m", "input": "hi", "max_output_tokens": 8, "stream": True},
    "tgi": {"inputs": "hi", "parameters": {"max_new_tokens": 8, "details": True}},
    "sglang": {"text": "hi", "sampling_params": {"max_new_tokens": 8, "ignore_eos": False}, "stream": True},
    "triton": {"text_input": "hi", "max_tokens": 8, "stream": True},
    "ollama": {"model": "m", "messages": CHAT, "options": {"num_predict": 8}, "stream": True},
    "llama.cpp": {"model": "m", "prompt": "hi", "n_predict": 8, "stream": True},
}
FORCED: dict[DialectName, dict[str, Any]] = {
    "chat": {"ignore_eos": True},
    "completions": {"ignore_eos": True},
    "responses": {"ignore_eos": True},
    "tgi": {},
    "sglang": {"sampling_params": {"max_new_tokens": 8, "ignore_eos": True}},
    "triton": {"min_tokens": 8},
    "ollama": {},
    "llama.cpp": {"ignore_eos": True},
}
HEED_PRIORITY = {"chat", "completions", "responses", "sglang"}


def asked(
    name: DialectName, prompt: Prompt = "hi", *, ignore_eos: bool = False, extra: Any = None, **wish: Any
) -> Any:
    target = Target(base_url="http://server", endpoint=ENDPOINTS[name], extra_body=extra or {})
    wished = Wish(model="m", prompt=prompt, output_tokens=8, ignore_eos=ignore_eos, **wish)
    return body(target, AS_ASKED, wished)


@pytest.mark.parametrize("name", PLAIN)
def test_a_request(name: DialectName) -> None:
    """The prompt, the length, a stream, and nothing that was not asked for."""
    assert asked(name) == PLAIN[name]


@pytest.mark.parametrize("name", FORCED)
def test_a_forced_length(name: DialectName) -> None:
    """In each dialect's own words; TGI and Ollama have none."""
    assert asked(name, ignore_eos=True) == PLAIN[name] | FORCED[name]


@pytest.mark.parametrize("name", PLAIN)
def test_a_priority(name: DialectName) -> None:
    """Told to those that heed one."""
    told = {"priority": 5} if name in HEED_PRIORITY else {}
    assert asked(name, priority=5) == PLAIN[name] | told


@pytest.mark.parametrize(
    ("name", "key"), [("completions", "prompt"), ("sglang", "input_ids"), ("llama.cpp", "prompt")]
)
def test_token_ids(name: DialectName, key: str) -> None:
    """Sent as they are, in SGLang under a name of their own."""
    said = asked(name, [1, 2, 3])
    assert said[key] == [1, 2, 3]
    assert "text" not in said


@pytest.mark.parametrize(
    ("name", "key"), [("chat", "messages"), ("ollama", "messages"), ("responses", "input")]
)
def test_a_conversation(name: DialectName, key: str) -> None:
    """Messages are sent as they are."""
    said = [{"role": "system", "content": "be brief"}, *CHAT]
    assert asked(name, said)[key] == said


@pytest.mark.parametrize(
    ("name", "part", "length"),
    [
        ("tgi", "parameters", "max_new_tokens"),
        ("sglang", "sampling_params", "max_new_tokens"),
        ("ollama", "options", "num_predict"),
    ],
)
def test_a_sampling_parameter_of_the_users_leaves_the_length(
    name: DialectName, part: str, length: str
) -> None:
    """One more key in an object of ours takes none of ours away; a null there does."""
    assert asked(name, extra={part: {"temperature": 0}})[part] == PLAIN[name][part] | {"temperature": 0}
    assert length not in asked(name, extra={part: {length: None}})[part]
    assert part not in asked(name, extra={part: None})


def test_usage_with_every_chunk_can_be_asked_for() -> None:
    """And the usage at the end with it."""
    both = {"include_usage": True, "continuous_usage_stats": True}
    extra = {"stream_options": {"continuous_usage_stats": True}}
    assert asked("chat", extra=extra)["stream_options"] == both


DROPPABLE = {
    "stream_options", "include_usage", "ignore_eos", "priority", "deadline_ms", "details", "min_tokens"
}  # fmt: skip


@pytest.mark.parametrize("name", get_args(DialectName))
def test_what_becomes_of_each_key_that_a_server_refuses(name: DialectName) -> None:
    """It is needed, or the length, or may be left out: a dialect is whole when each of its keys is one."""
    spoken = dialect(name)
    prompts: list[Prompt] = ["hi", [1, 2]] if name in OF_IDS else ["hi"]
    bodies = [asked(name, prompt, ignore_eos=True, priority=1, deadline_ms=9) for prompt in prompts]
    keys = {
        key for said in bodies for part in (said, *said.values()) if isinstance(part, dict) for key in part
    }
    assert spoken.needs | {spoken.length_key} <= keys
    assert keys - spoken.needs - {spoken.length_key} <= DROPPABLE
    assert spoken.length_key not in spoken.needs | DROPPABLE
