"""The APIs that servers speak, each a Dialect: a request's body, and the reading of what comes."""

from __future__ import annotations

from loadgen.backends import DialectName
from loadgen.client.dialects.dialect import Dialect, Reader, Wish
from loadgen.client.dialects.llama_cpp import LLAMA_CPP
from loadgen.client.dialects.ollama import OLLAMA
from loadgen.client.dialects.openai import CHAT, COMPLETIONS
from loadgen.client.dialects.responses import RESPONSES
from loadgen.client.dialects.sglang import SGLANG
from loadgen.client.dialects.tgi import TGI
from loadgen.client.dialects.triton import TRITON

__all__ = ["CHAT", "Dialect", "Reader", "Wish", "dialect"]

_ALL = (CHAT, COMPLETIONS, RESPONSES, TGI, SGLANG, TRITON, OLLAMA, LLAMA_CPP)
_DIALECTS: dict[DialectName, Dialect] = {one.name: one for one in _ALL}


def dialect(name: DialectName) -> Dialect:
    return _DIALECTS[name]
