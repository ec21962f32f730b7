"""A command line of vLLM's benchmark, word for word."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from loadgen.cli.argv import joined
from loadgen.cli.flags import overlay
from loadgen.cli.vllm_flags import IGNORED, REMEDIES, RENAMED, TRANSLATED, refuse_foreign, translated
from loadgen.scenario import ScenarioError
from tests.cli.commands import flags_of

SERVE = """\
--backend openai-chat --base-url http://127.0.0.1:8000 --endpoint /v1/chat/completions --model m \
--random-input-len 128 --random-output-len 64 --num-prompts 50 --request-rate 10 --temperature 0 \
--dataset-name random --max-concurrency 64 --ignore-eos --seed 1 --percentile-metrics ttft,tpot,itl,e2el \
--metric-percentiles=50,99 --goodput ttft:500 tpot:50 --save-result --top-p=0.9"""
THEIRS = set((Path(__file__).parent / "vllm_bench_flags.txt").read_text().split())  # vLLM 0.32's
SGLANGS = {
    *(
        "--random-input",
        "--random-output",
        "--warmup-requests",
        "--extra-request-body",
        "--disable-ignore-eos",
    ),
    *("--output-file", "--output-details", "--tag", "--use-trace-timestamps", "--apply-chat-template"),
    *("--lora-name", "--lora-request-distribution", "--lora-zipf-alpha", "--flush-cache", "--disable-stream"),
    *("--tokenize-prompt", "--return-logprob", "--top-logprobs-num", "--pd-separated", "--gsp-num-groups"),
    *("--gsp-prompts-per-group", "--gsp-system-prompt-len", "--gsp-question-len", "--gsp-output-len"),
    *("--sharegpt-context-len", "--prompt-suffix", "--image-count", "--image-resolution"),
}


def test_one_message_names_every_flag_that_is_not_ours() -> None:
    """Each stands on a line of its own with what to do instead; the flags that work here are not named."""
    with pytest.raises(ScenarioError) as told:
        refuse_foreign(["run", *shlex.split(SERVE)])
    _, *lines = str(told.value).splitlines()
    assert [line.split(": ")[0].strip() for line in lines] == [*("--temperature", "--top-p")]
    assert all(line.split(": ", 1)[1] for line in lines)


def test_each_flag_of_vllm_is_known() -> None:
    """It is one of ours, is translated, ignored, or has a remedy; so is SGLang's, and no other one."""
    ours = flags_of("run")
    known = [*REMEDIES, *TRANSLATED, *IGNORED, *RENAMED]
    assert {*known} == (THEIRS | SGLANGS) - ours
    assert len(known) == len({*known})
    assert {*RENAMED.values()} <= ours


def test_our_own_flags_are_never_refused() -> None:
    """No flag of a command that shares them is taken for a foreign one."""
    for command in ("run", "plan", "capacity", "check"):
        refuse_foreign([command, *sorted(flags_of(command))])


def test_other_commands_are_left_alone() -> None:
    """`serve --host --port` is ours."""
    words = ["serve", "--host", "127.0.0.1", "--port", "0"]
    refuse_foreign(words)
    assert translated(words) == (words, [])


@pytest.mark.parametrize("command", ["run", "plan", "capacity", "check"])
def test_every_command_that_shares_flags_knows_theirs(command: str) -> None:
    """What would be lost is refused; what is not needed is left out and said, a line for each reason."""
    with pytest.raises(ScenarioError, match="--temperature: --extra-body"):
        refuse_foreign([command, "--temperature", "0"])
    given = "--save-result --seed 1 --result-dir out --metric-percentiles=50 --disable-tqdm --random-input 8"
    words, said = translated([command, *given.split()])
    assert words == [command, "--seed", "1", "--random-input-len", "8"]
    assert [line.split(": not needed: ")[0] for line in said] == [
        *("--metric-percentiles", "--result-dir, --save-result", "--disable-tqdm")
    ]


def test_sglang_means_something_else_there() -> None:
    """Which is said where it is given, and only then."""
    for words in (["--backend", "sglang"], ["--backend=sglang"]):
        [note] = translated(["run", *words])[1]
        assert "--backend sglang-native" in note
    assert translated(["run", "--backend", "sglang-native"])[1] == []


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("--host 10.0.0.1 --port=9000", "--base-url http://10.0.0.1:9000"),
        ("--port 9000", "--base-url http://127.0.0.1:9000"),
        ("--host ::1", "--base-url http://[::1]:8000"),
        ("--host h --base-url http://x:1", "--base-url http://x:1"),
        ("--model org/big --served-model-name big", "--model org/big --model big"),
        ("--seed 1", "--seed 1"),
        ("--dataset-name random-ids --output-file x --seed 1", "--dataset-name random --seed 1"),
        ("--warmup-requests=3 --disable-ignore-eos", "--warmup=3 --no-ignore-eos"),
    ],
)
def test_a_server_is_named_as_there(given: str, meant: str) -> None:
    """With vLLM's defaults; of several spellings, the one that wins there."""
    assert translated(["run", *given.split()])[0] == ["run", *meant.split()]


PARAMS: dict[str, Any] = {"base_url": ["http://127.0.0.1:1"], "request_rate": "1", "num_prompts": 9}


def test_loras_share_the_requests() -> None:
    """As many classes, equally likely, each with its model; words that are no name of a class get one."""
    words = joined(["run", "--lora-modules", "a", "org/b", "--seed", "1"])
    assert words == ["run", "--lora-modules", "a", "--lora-modules", "org/b", "--seed", "1"]
    asked = overlay(None, PARAMS | {"lora_modules": ["a", "org/b"], "lora_assignment": "random"})
    assert [(name, own.weight, own.model) for name, own in asked.load.classes.items()] == [
        *(("a", 1, "a"), ("lora-2", 1, "org/b"))
    ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"lora_modules": ["a"], "lora_assignment": "round-robin"}, "must be random, not round-robin"),
        ({"lora_assignment": "random"}, "--lora-assignment needs --lora-modules"),
    ],
)
def test_loras_in_turn_are_refused(given: dict[str, Any], said: str) -> None:
    """In one line."""
    with pytest.raises(ScenarioError, match=said):
        overlay(None, PARAMS | given)
