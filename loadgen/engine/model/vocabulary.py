"""A model's words: ids of a prompt's tokens, and the text of an answer's."""

from __future__ import annotations

import json
from importlib.util import find_spec
from typing import TYPE_CHECKING

from loadgen.engine.dialect import Prompt, Refusal
from loadgen.engine.model.shape import Shape
from loadgen.engine.text import MAX_WORDS, words
from loadgen.engine.tokens import token_ids
from loadgen.scenario import ScenarioError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_BEFORE = 8  # tokens before the new ones that are decoded with them: a character may begin there
_UNFINISHED = "\ufffd"


class Vocabulary:
    """The folder's tokenizer.json, where there is one and the package `tokenizers`. Otherwise a token of
    prompt is four bytes, its id taken round the vocabulary, and one of answer a space and its id in base 62.

    Raises ScenarioError for ids that three digits cannot tell.
    """

    def __init__(self, shape: Shape) -> None:
        self._size = shape.vocabulary
        self._tokenizer: Tokenizer | None = None
        path = shape.folder and shape.folder / "tokenizer.json"
        if path and path.is_file() and find_spec("tokenizers"):
            from tokenizers import Tokenizer

            self._tokenizer = Tokenizer.from_file(str(path))
        elif self._size > MAX_WORDS:
            raise ScenarioError(
                f"engine.model: {self._size} tokens need their tokenizer.json, "
                "and the package: pip install 'loadgen[tokenizers]'"
            )

    def ids(self, prompt: Prompt) -> list[int]:
        """At least one. Raises Refusal for an id that the model has not."""
        if isinstance(prompt, bytes):
            if self._tokenizer is not None and (found := self._tokenizer.encode(prompt.decode()).ids):
                return list(found)
            return [token % self._size for token in token_ids(prompt)]
        if (highest := max(prompt)) >= self._size:
            message = f"the model has token ids below {self._size}, not {highest}"
            raise Refusal(400, message, param="prompt")
        return prompt

    def text(self, ids: list[int], start: int) -> bytes:
        """What `ids` from `start` on add to the text of those before, as it stands inside of a JSON string.
        A character's last byte brings all of it.
        """
        if self._tokenizer is None:
            return b"".join([words(token, token + 1) for token in ids[start:]])
        window = ids[max(0, start - _BEFORE) :]
        before = self._decoded(window[: min(start, _BEFORE)])
        return json.dumps(self._decoded(window)[len(before) :])[1:-1].encode()

    def _decoded(self, ids: list[int]) -> str:
        assert self._tokenizer is not None
        return self._tokenizer.decode(ids).removesuffix(_UNFINISHED)
