"""A tokenizer made on the spot: byte-level BPE, learned from invented words. The same on every machine."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

SPECIAL = ("<pad>", "<s>", "</s>", "<|user|>", "<|assistant|>", "<|system|>", "<unk>")
PAD, BEGIN, END, UNKNOWN = (SPECIAL.index(name) for name in ("<pad>", "<s>", "</s>", "<unk>"))
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
VOCABULARY = 4096
SYLLABLES = [
    "ba",
    "co",
    "di",
    "fe",
    "gu",
    "la",
    "mi",
    "no",
    "pre",
    "qui",
    "ro",
    "sta",
    "ter",
    "un",
    "ver",
    "zi",
]


def tokenizer() -> dict[str, Any]:
    """As tokenizer.json has it."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE(unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[AddedToken(name, special=True) for name in SPECIAL],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    made.train_from_iterator(_sentences(), trainer)
    found: dict[str, Any] = json.loads(made.to_str())
    return found


def _sentences() -> list[str]:
    """Invented words, the more frequent ones first in their list, as in a language."""
    chance = np.random.default_rng(0)
    words = ["".join(chance.choice(SYLLABLES, chance.integers(1, 5))) for _ in range(10_000)]
    ranks = np.minimum(chance.zipf(1.1, 100_000) - 1, len(words) - 1)
    return [" ".join(words[rank] for rank in part) for part in ranks.reshape(-1, 20)]
