"""A real model served over HTTP: its tokens, how answers end, and what its runs are called."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install '.[torch]'")

import torch
from safetensors.torch import save_file

from loadgen.engine.batching import Sequence
from loadgen.engine.model import weights
from loadgen.engine.model.compute import Model
from loadgen.engine.model.shape import NAMED
from loadgen.knobs import Engine
from loadgen.run_folder import load
from tests.engine.driving import served
from tests.model.test_tokens import drive, engine

pytestmark = pytest.mark.torch

PROMPTS = [[7 * i + j for j in range(5 + 9 * i)] for i in range(6)]


async def completed(client: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await client.post("/v1/completions", json=body)
    found: dict[str, Any] = answer.json()
    return found


def greedy(of: Engine, prompt: list[int], tokens: int) -> list[int]:
    """The model's tokens, computed by hand."""
    alone = Sequence(0, len(prompt), tokens)
    alone.tokens = list(prompt)
    drive(of, Model(of), [alone])
    return alone.tokens[len(prompt) :]


@pytest.mark.parametrize(
    "knobs",
    [
        {},
        {"token_budget": 9, "max_sequences": 3},
        {"batching": "static", "max_sequences": 4, "max_wait": "20ms"},
        {"kv": {"tokens": 128, "block_tokens": 8}, "max_length": 128, "max_sequences": 6},
    ],
)
async def test_served_tokens_are_the_models(knobs: dict[str, Any]) -> None:
    """Six at once, streamed or whole, however they are batched: what each prompt's tokens are alone."""
    asked = engine(**knobs)
    async with served(asked) as (url, _), httpx.AsyncClient(base_url=url) as client:
        every = [completed(client, prompt=ids, max_tokens=12, ignore_eos=True) for ids in PROMPTS]
        answers = await asyncio.gather(*every)
        streamed = await client.post(
            "/v1/completions",
            json={"prompt": PROMPTS[2], "max_tokens": 12, "ignore_eos": True, "stream": True},
        )
    words = Model(asked).vocabulary
    expected = [words.text(greedy(asked, ids, 12), 0).decode() for ids in PROMPTS]
    assert [answer["choices"][0]["text"] for answer in answers] == expected
    assert [answer["usage"]["prompt_tokens"] for answer in answers] == [len(ids) for ids in PROMPTS]
    events = [json.loads(line[6:]) for line in streamed.text.splitlines() if line.startswith("data: {")]
    assert "".join(event["choices"][0]["text"] for event in events) == expected[2]
    assert len(events) == 12


async def test_a_folders_own_end_of_sequence_ends_its_answer(tmp_path: Path) -> None:
    """Its config calls the fourth greedy token an end: the answer has four, unless told to ignore it, or to
    say more first.
    """
    made, prompt = NAMED["llama-1m"], PROMPTS[3]
    known = greedy(engine(), prompt, 20)
    end = known[3]
    assert known.index(end) == 3
    save_file(weights.load(made, 0, torch.float32), tmp_path / "model.safetensors")
    config = {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": made.vocabulary,
        "hidden_size": made.hidden,
        "intermediate_size": made.inner,
        "num_hidden_layers": made.layers,
        "num_attention_heads": made.heads,
        "num_key_value_heads": made.kv_heads,
        "max_position_embeddings": made.context,
        "rms_norm_eps": made.norm_epsilon,
        "eos_token_id": end,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    asked = engine(model=f"torch:{tmp_path}")
    async with served(asked) as (url, _), httpx.AsyncClient(base_url=url) as client:
        ended = await completed(client, prompt=prompt, max_tokens=20)
        ignored = await completed(client, prompt=prompt, max_tokens=20, ignore_eos=True)
        later = await completed(client, prompt=prompt, max_tokens=20, min_tokens=5)
    assert (ended["usage"]["completion_tokens"], ended["choices"][0]["finish_reason"]) == (4, "stop")
    assert (ignored["usage"]["completion_tokens"], ignored["choices"][0]["finish_reason"]) == (20, "length")
    assert later["usage"]["completion_tokens"] > 4


async def test_what_it_cannot_do_is_answered_in_openais_words() -> None:
    """Stop strings, ids that it has not, more than its context, and more than its queue holds."""
    asked = engine(max_queue=0, max_sequences=1, max_length=600)
    async with served(asked) as (url, _), httpx.AsyncClient(base_url=url, timeout=60) as client:
        stop = await client.post("/v1/completions", json={"prompt": "x", "stop": "y"})
        foreign = await client.post("/v1/completions", json={"prompt": [4095, 4096]})
        long = await client.post("/v1/completions", json={"prompt": [1] * 590, "max_tokens": 11})
        body = {"prompt": [1] * 500, "max_tokens": 90, "ignore_eos": True}
        both = await asyncio.gather(*[client.post("/v1/completions", json=body) for _ in range(2)])
        metrics = (await client.get("/metrics")).text
        steps = (await client.get("/debug/steps.csv")).text.split()
    assert stop.status_code == 400
    assert foreign.status_code == 400
    assert foreign.json()["error"]["message"] == "the model has token ids below 4096, not 4096"
    assert long.json()["error"]["code"] == "context_length_exceeded"
    assert sorted(answer.status_code for answer in both) == [200, 429]
    assert 'loadgen_engine_step_seconds_count{model_name="llama-1m"} 90.0' in metrics
    assert "loadgen_engine_rejected_total" in metrics
    assert steps[:1] == ["tokens,contexts,seconds"]
    assert [line.rsplit(",", 1)[0] for line in steps[1:3]] == ["500,0", "1,501"]


async def test_steps_add_up_to_the_time_between_tokens() -> None:
    """However busy the loop is, here for 10 ms at each turn: what a step waited for is in its seconds."""

    async def be_busy() -> None:
        while True:
            until_s = time.perf_counter() + 0.01
            while time.perf_counter() < until_s:
                pass
            await asyncio.sleep(0)

    async with served(engine()) as (url, _), httpx.AsyncClient(base_url=url, timeout=60) as client:
        busy = asyncio.create_task(be_busy())
        body = {"prompt": [1] * 8, "max_tokens": 30, "ignore_eos": True}
        await client.post("/v1/completions", json=body, headers={"X-Request-ID": "own"})
        busy.cancel()
        stamps = (await client.get("/debug/requests")).json()["requests"]["own"]
        steps = (await client.get("/debug/steps.csv")).text.split()[1:]
    assert len(steps) == 30
    between_s = (stamps["last_token_ns"] - stamps["first_token_ns"]) / 1e9
    assert sum(float(line.rsplit(",", 1)[1]) for line in steps[1:]) == pytest.approx(between_s, rel=0.1)


def test_a_run_on_it_is_measured_and_says_where_it_was_computed(tmp_path: Path) -> None:
    """`loadgen run` serves it in a process of its own: source http, every token counted."""
    scenario = tmp_path / "own.yaml"
    scenario.write_text(
        "engine: {model: 'torch:llama-1m', compute: {device: cpu, threads: 1}}\n"
        "load: {arrivals: {kind: burst}, num_requests: 8, prompt_tokens: 40, output_tokens: 10}\n"
    )
    command = [sys.executable, "-m", "loadgen", "run", str(scenario), "--out", str(tmp_path / "out")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert ended.returncode in (0, 4), ended.stderr  # 4: the machine was too busy to measure on
    run = load(tmp_path / "out")
    assert (run.header.source, run.header.target) == ("http", "bundled engine, torch:llama-1m on cpu")
    assert run.records.output_tokens.tolist() == [10] * 8
