"""Around a real model: what is known, checked and refused before torch is asked for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from loadgen.engine import simulate
from loadgen.engine.check import check
from loadgen.engine.dialect import Refusal
from loadgen.engine.model import shape
from loadgen.engine.model.pages import Pages
from loadgen.engine.model.vocabulary import Vocabulary
from loadgen.knobs import Engine
from loadgen.scenario import ScenarioError
from tests.engine.driving import plan

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 259,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
}


@pytest.fixture(autouse=True)
def _torch_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shape, "find_spec", lambda _name: object())


def folder(path: Path, **more: Any) -> str:
    (path / "config.json").write_text(json.dumps(CONFIG | more))
    return f"torch:{path}"


# --- what it is ---------------------------------------------------------------------------------------------


def test_a_folder_is_what_its_config_says(tmp_path: Path) -> None:
    """Older files: theta beside; heads of keys and a head's size follow from others where not given."""
    found = shape.find(folder(tmp_path, rope_theta=500_000.0, eos_token_id=[3, 5]))
    assert (found.kv_heads, found.head_size, found.rope_theta, found.ends) == (4, 8, 500_000.0, (3, 5))
    assert not found.is_tied


def test_a_newer_config_has_its_theta_inside(tmp_path: Path) -> None:
    rope = {"rope_theta": 123.0, "rope_type": "default"}
    assert shape.find(folder(tmp_path, rope_parameters=rope)).rope_theta == 123.0


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "RoPE is scaled (llama3)"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "RoPE is scaled (yarn)"),
        ({"architectures": ["MistralForCausalLM"]}, "MistralForCausalLM"),
        ({"attention_bias": True}, "attention_bias is true"),
        ({"hidden_act": "gelu"}, "hidden_act is gelu"),
        ({"vocab_size": None, "num_attention_heads": "x"}, "cannot be read"),
    ],
)
def test_another_family_is_refused_in_a_line(tmp_path: Path, more: dict[str, Any], says: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        shape.find(folder(tmp_path, **more))
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_name_that_is_none_is_told_the_nearest() -> None:
    with pytest.raises(ScenarioError, match=r"did you mean llama-144m\?"):
        shape.find("torch:llama-14m4")


@pytest.mark.parametrize(("name", "parameters"), [("llama-144m", 143_680_512), ("llama-1m", 1_442_432)])
def test_a_name_says_its_size(name: str, parameters: int) -> None:
    """By hand: layers x (q, o, k, v, three of the MLP, two norms), two embeddings, a norm."""
    assert shape.NAMED[name].parameters == parameters


# --- what is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("knobs", "says"),
    [
        ({"kv": {}}, "kv.tokens is needed"),
        ({"kv": {"tokens": 4096, "prefix_cache": True}}, "kv.prefix_cache"),
        ({"kv": {"tokens": 4096}, "restore": "swap"}, "restore must be recompute"),
        ({"preempt": "priority", "restore": "keep"}, "restore must be recompute"),
        ({"eos": {"kind": "fixed", "tokens": 3}}, "a model ends its own"),
        ({"jitter": {"step": 0.1}}, "jitter is noise"),
        ({"padded_context": True}, "padded_context"),
    ],
)
def test_what_a_model_cannot_do_is_said_at_once(knobs: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Engine.model_validate({"model": "torch:llama-1m"} | knobs)


def test_it_answers_to_its_own_name_unless_told() -> None:
    assert Engine.model_validate({"model": "torch:/models/mine"}).model_name == "mine"
    assert Engine.model_validate({"model": "torch:llama-1m", "model_name": "x"}).model_name == "x"


def test_it_cannot_be_simulated() -> None:
    with pytest.raises(ScenarioError, match="cannot be simulated"):
        simulate(plan([(0.0, 1, 1)]), Engine(model="torch:llama-1m"), run_id="r")


def test_without_torch_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shape, "find_spec", lambda _name: None)
    with pytest.raises(ScenarioError, match=r"pip install 'loadgen\[torch\]'"):
        check(Engine(model="torch:llama-1m"))


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--model", "torch:llama-2m"], "no model of ours"),
        (["--model", "torch:llama-1m", "--speed", "2"], "takes the time it takes"),
        (["--model", "torch:llama-1m", "--step", "2ms"], "takes the time it takes"),
    ],
)
def test_the_command_refuses_with_one_line_and_exit_2(flags: list[str], says: str) -> None:
    command = [sys.executable, "-m", "loadgen", "serve", "--port", "0", *flags]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert says in ended.stderr
    assert "Traceback" not in ended.stderr


# --- pages and words ----------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 40), st.booleans()), max_size=40))
def test_no_block_has_two_holders(moves: list[tuple[int, int, bool]]) -> None:
    """Whatever grows and goes: blocks of all are distinct, and all free again when nobody is kept."""
    pages, held = Pages(4 * 10, 4), dict[int, list[int]]()
    for sequence, positions, goes in moves:
        if goes:
            pages.free(sequence)
            held.pop(sequence, None)
            continue
        before = held.get(sequence, [])
        found = pages.blocks(sequence, positions)
        assert len(found) == -(-positions // 4)
        assert found == before[: len(found)] or found[: len(before)] == before
        held[sequence] = max(list(found), before, key=len)
        taken = [block for blocks in held.values() for block in blocks]
        assert len(set(taken)) == len(taken) == 40 - pages.free_blocks
    pages.keep([])
    assert pages.free_blocks == 40


def test_without_a_tokenizer_bytes_go_round_and_tokens_are_three_digits() -> None:
    """By hand: "abcd" is 0x64636261 = 1684234849, and 609 of 4096; 609 in base 62 is 9 x 62 + 51 (p)."""
    words = Vocabulary(shape.NAMED["llama-1m"])
    assert words.ids(b"abcd") == [609]
    with pytest.raises(Refusal, match="token ids below 4096, not 4097"):
        words.ids([1, 4097])
    assert words.text([609, 0, 3844], 1) == b" 000 100"
    assert words.text([609], 0) == b" 09p"


def test_a_tokenizers_characters_come_whole(tmp_path: Path) -> None:
    """A token a byte: an é comes with its second byte, a quote as JSON has it; pieces make the whole."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    words = Vocabulary(shape.find(folder(tmp_path)))
    said = 'a "é€𝄞" b' + "\n" * 9
    ids = words.ids(said.encode())
    assert len(ids) == len(said.encode())
    pieces = [words.text(ids[: i + 1], i) for i in range(len(ids))]
    assert b"".join(pieces) == json.dumps(said)[1:-1].encode()
    assert words.text(ids, 0) == b"".join(pieces)
    assert pieces[said.encode().index("é".encode())] == b""
