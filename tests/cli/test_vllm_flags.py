"""A command line of vLLM's benchmark, word for word."""

from __future__ import annotations

import shlex

import pytest

from loadgen.cli.vllm_flags import refuse_foreign
from loadgen.scenario import ScenarioError
from tests.cli.commands import flags_of

SERVE = """\
--backend openai-chat --base-url http://127.0.0.1:8000 --endpoint /v1/chat/completions --model mini-engine \
--dataset-name random --random-input-len 128 --random-output-len 64 --num-prompts 50 --request-rate 10 \
--burstiness 1.0 --max-concurrency 64 --ignore-eos --seed 1 --percentile-metrics ttft,tpot,itl,e2el \
--metric-percentiles=50,99 --goodput ttft:500 tpot:50 --save-result"""


def test_one_message_names_every_flag_that_is_not_ours() -> None:
    """Each stands on a line of its own with what to do instead; the flags that work here are not named."""
    with pytest.raises(ScenarioError) as told:
        refuse_foreign(["run", *shlex.split(SERVE)])
    _, *lines = str(told.value).splitlines()
    assert [line.split(": ")[0].strip() for line in lines] == [
        *("--backend", "--percentile-metrics", "--metric-percentiles", "--save-result")
    ]
    assert all(line.split(": ", 1)[1] for line in lines)


def test_what_is_left_is_ours() -> None:
    """Every flag that the message passes over is one of `run`'s."""
    given = {word.split("=")[0] for word in shlex.split(SERVE) if word.startswith("--")}
    with pytest.raises(ScenarioError) as told:
        refuse_foreign(["run", *shlex.split(SERVE)])
    assert {flag for flag in given if f"  {flag}:" not in str(told.value)} <= flags_of("run")


def test_our_own_flags_are_never_refused() -> None:
    """No flag of `run` or `plan` is taken for a foreign one."""
    for command in ("run", "plan"):
        refuse_foreign([command, *sorted(flags_of(command))])


def test_other_commands_are_left_alone() -> None:
    """`serve --host --port` is ours."""
    refuse_foreign(["serve", "--host", "127.0.0.1", "--port", "0"])
