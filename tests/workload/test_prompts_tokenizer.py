"""Prompts of an exact number of tokens, by tokenizers that are trained here."""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from loadgen.plan import PromptRecipe, Row
from loadgen.prompts import Prompts
from loadgen.scenario import ScenarioError
from loadgen.workload.prompts import prompt_maker
from loadgen.workload.words import _WORDS, census

SPACES = ("bytes", "marks", "pieces", "unigram", "spanning")
TEXTS = [census(2, str(k)) for k in range(60)] + _WORDS.split() * 20


def trained(kind: str) -> Tokenizer:
    """A small tokenizer that knows spaces as GPT-2, Llama 2, BERT or T5 do; or that reaches over some."""
    if kind == "spanning":
        return spanning(trained("bytes"))
    trainer: Any = trainers.BpeTrainer(vocab_size=900, show_progress=False)
    if kind == "pieces":
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        trainer = trainers.WordPieceTrainer(vocab_size=300, special_tokens=["[UNK]"], show_progress=False)
    elif kind == "unigram":
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        unknown = {"special_tokens": ["<unk>"], "unk_token": "<unk>"}
        trainer = trainers.UnigramTrainer(vocab_size=300, show_progress=False, **unknown)
    elif kind == "marks":
        tokenizer = Tokenizer(models.BPE())
        spaces = [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        tokenizer.normalizer = normalizers.Sequence(spaces)
        tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    else:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def spanning(tokenizer: Tokenizer, melting: int = 40) -> Tokenizer:
    """The same, but not split at spaces, and each word melts with so many of those that follow it here."""
    plain = json.loads(tokenizer.to_str())
    plain["pre_tokenizer"]["use_regex"] = False
    vocabulary, words = plain["model"]["vocab"], _WORDS.split()
    for k, word in enumerate(words):
        for follower in (words * 2)[k + 1 : k + 1 + melting]:
            plain["model"]["merges"] += [[word, f"Ġ{follower}"], [f"Ġ{word}", f"Ġ{follower}"]]
            for pair in (f"{word}Ġ{follower}", f"Ġ{word}Ġ{follower}"):
                vocabulary[pair] = len(vocabulary)
    return Tokenizer.from_str(json.dumps(plain))


@cache
def at(folder: Path, kind: str) -> Path:
    path = folder / f"{kind}.json"
    trained(kind).save(str(path))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokenizers")


def recipe(path: Path, **style: Any) -> PromptRecipe:
    asked = {"kind": "tokenizer", "tokenizer": str(path)} | style
    return PromptRecipe(seed=1, styles=(Prompts.model_validate(asked),))


def row(index: int, tokens: int, **more: Any) -> Row:
    return Row(index=index, due_ns=0, prompt_tokens=tokens, output_tokens=1, phase=1, priority=0, **more)


def ids(path: Path, text: Any) -> list[int]:
    return Tokenizer.from_file(str(path)).encode(text).ids


@pytest.mark.parametrize("kind", SPACES)
def test_a_prompt_has_exactly_the_tokens_asked(folder: Path, kind: str) -> None:
    """Counted by encoding it, as a server does; whatever becomes of spaces."""
    prompt = prompt_maker(recipe(at(folder, kind)), "run")

    @given(index=st.integers(0, 2**40), tokens=st.integers(1, 600))
    def check(index: int, tokens: int) -> None:
        assert len(ids(at(folder, kind), prompt(row(index, tokens)))) == tokens

    check()


@pytest.mark.parametrize("kind", SPACES)
def test_a_prefix_is_the_same_tokens_for_all_rows_of_a_group(folder: Path, kind: str) -> None:
    """Exactly 40 of 60 tokens, joined without a seam; another group has others."""
    prefix = {"kind": "groups", "groups": 2, "tokens": 40}
    prompt = prompt_maker(recipe(at(folder, kind), prefix=prefix), "run")
    encoded = [ids(at(folder, kind), prompt(row(index, 60, group=index % 2))) for index in range(40)]
    assert {len(one) for one in encoded} == {60}
    assert {len({tuple(one[:40]) for one in encoded[group::2]}) for group in (0, 1)} == {1}
    assert encoded[0][:8] != encoded[1][:8]
    assert len({one[40] for one in encoded}) > 1


def test_a_tokenizer_that_reaches_over_spaces_does_so_at_first(folder: Path) -> None:
    """So that the two tests above see words give way to others: plain words would not have been exact."""
    text = prompt_maker(PromptRecipe(seed=1), "run")(row(1, 400))
    assert len(ids(at(folder, "spanning"), text)) < 400


def test_special_tokens_are_counted_and_so_are_cut_and_filled_texts(folder: Path, tmp_path: Path) -> None:
    """The file puts a token before each text, and asks to cut and to fill to 32: a prompt of 50 is 50, of
    which 49 are words; the shortest is a word and that token.
    """
    tokenizer = Tokenizer.from_file(str(at(folder, "bytes")))
    tokenizer.add_special_tokens(["<s>"])
    start = tokenizer.token_to_id("<s>")
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", start)])
    path = tmp_path / "special.json"
    tokenizer.save(str(path))
    cutting = tmp_path / "cutting.json"
    tokenizer.enable_truncation(32)
    tokenizer.enable_padding(length=32)
    tokenizer.save(str(cutting))
    prompt = prompt_maker(recipe(cutting), "run")
    encoded = [ids(path, prompt(row(1, tokens))) for tokens in (50, 2, 1)]
    assert [len(one) for one in encoded] == [50, 2, 2]
    assert encoded[0][0] == start


def test_a_missing_library_is_told_with_what_to_install(folder: Path, monkeypatch: Any) -> None:
    """The extra's name, quoted for a shell."""
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ScenarioError, match=r"pip install 'loadgen\[tokenizers\]'$"):
        prompt_maker(recipe(at(folder, "bytes")), "run")


@pytest.mark.parametrize(
    ("content", "said"), [(None, "cannot be read: No such file"), (b"{}", "is no tokenizer.json: ")]
)
def test_a_file_that_is_no_tokenizer(tmp_path: Path, content: bytes | None, said: str) -> None:
    """One line with its path."""
    path = tmp_path / "t.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ScenarioError) as caught:
        prompt_maker(recipe(path), "run")
    assert str(caught.value).startswith(f"prompts.tokenizer: {path} {said}")
    assert str(caught.value).isprintable()


def test_a_tokenizer_without_words_of_one_token_is_refused(tmp_path: Path) -> None:
    """Letter by letter, no word is one token: other kinds of prompts are named."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.train_from_iterator(["abc def"], trainers.BpeTrainer(vocab_size=5, show_progress=False))
    tokenizer.save(str(tmp_path / "letters.json"))
    with pytest.raises(ScenarioError, match="has 0 plain words of one token each, 16 are needed: use kind"):
        prompt_maker(recipe(tmp_path / "letters.json"), "run")


def test_a_tokenizer_whose_words_cannot_be_kept_apart_is_refused(tmp_path: Path) -> None:
    """Each word melts with every other: nothing but one word over and over would be exact."""
    path = tmp_path / "melting.json"
    spanning(trained("bytes"), melting=127).save(str(path))
    prompt = prompt_maker(recipe(path), "run")
    with pytest.raises(
        ScenarioError, match=r"makes no text of exactly 50 tokens, since its tokens reach over"
    ):
        prompt(row(1, 50))
