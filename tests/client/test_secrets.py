"""Keys reach no record and no screen, however a server spells them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from html import escape
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.client.answer import KEPT_CHARACTERS
from loadgen.client.secrets import NO_SECRETS, Secrets
from loadgen.target import Target
from tests.client.runs import plan_of, run_plan, scenario_of
from tests.client.streams import DONE, HEAD, LAST_CHUNK, chunk, delta, plain
from tests.fakes import event
from tests.virtual_loop import Link

KEY = 'sk-PLANTED/0"1\\2+3'
BARE = "sk-PLANTED-0123456789"


def escaped(text: str) -> str:
    return "".join(f"\\u{ord(char):04X}" for char in text)


@pytest.mark.parametrize(
    "spelt",
    [
        KEY,
        json.dumps(KEY)[1:-1],
        json.dumps(json.dumps(KEY)[1:-1])[1:-1],
        json.dumps(KEY).replace("/", "\\/")[1:-1],
        escaped(KEY),
        escaped(KEY).lower(),
        json.dumps(escaped(KEY))[1:-1],
        quote(KEY),
        escape(KEY),
        quote(KEY, safe="").lower(),
        "sk-" + escaped("PLANTED") + quote(KEY[10:]),
    ],
)
def test_every_spelling_of_a_secret_is_masked(spelt: str) -> None:
    """JSON's escapes, also twice over, and percent-encoding hide nothing."""
    assert Secrets([KEY]).masked(f"<{spelt}>") == "<***>"
    assert Secrets([KEY]).kept(f"<{spelt}>", 300) == "<***>"


@pytest.mark.parametrize("entity", ["&#{};", "&#{}", "&#0{};", "&#x{:x};", "&#X{:02X};", "&#x00{:x}"])
def test_a_secret_in_numbers_of_html_is_masked(entity: str) -> None:
    """Any browser turns them back, with and without the semicolon."""
    spelt = "".join(entity.format(ord(char)) for char in KEY)
    assert Secrets([KEY]).masked(f"<{spelt}>") == "<***>"


def test_a_letter_of_latin_1_is_masked_however_it_was_read() -> None:
    """A server may echo a header's byte as UTF-8, as itself (which reads as U+FFFD), or escaped."""
    secrets = Secrets(["caf\xe9-key"])
    for spelt in ("caf\xe9-key", "caf\ufffd-key", "caf\\u00e9-key", "caf%C3%A9-key", "caf%e9-key"):
        assert secrets.masked(spelt) == "***"


@given(st.binary(max_size=4), st.binary(max_size=4), st.booleans())
def test_base64_hides_no_secret(before: bytes, after: bytes, for_urls: bool) -> None:
    """Whatever is encoded with it, no more is left than the letters that stand for its neighbours too."""
    encode = base64.urlsafe_b64encode if for_urls else base64.b64encode
    masked = Secrets([KEY]).masked(encode(before + KEY.encode() + after).decode())
    alone, _, tail = masked.partition("***")
    assert "***" in masked
    assert len(alone) <= len(before) * 4 / 3 + 1
    assert len(tail) <= len(after) * 4 / 3 + 4


def test_what_counts_as_a_secret() -> None:
    """The key; headers' values, with and without a scheme, and their long words; named ones in the body and
    in the endpoint's query.
    """
    target = Target(
        base_url="http://h",
        endpoint="/chat/completions?api-version=2024-01-31&api-key=hidden%2Dthree",
        headers={"Authorization": "Bearer abc123", "Cookie": "session=0123456789; theme=dark", "X-Team": "b"},
        extra_body={"api_key": "hidden-one", "route": {"token": ["hidden-two", 5]}, "user": "shown"},
    )
    masked = Secrets.of(target, "the-key").masked
    named = ("the-key", "abc123", "Bearer abc123", "0123456789")
    for secret in (*named, "hidden-one", "hidden-two", "hidden%2Dthree", "hidden-three"):
        assert masked(f"<{secret}>") == "<***>"
    assert masked("Bearer a, b, dark, 2024-01-31, 5") == "Bearer a, b, dark, 2024-01-31, 5"


def test_a_value_too_short_to_be_a_secret_is_left() -> None:
    """Masking three letters or fewer wherever they stand would garble every text."""
    assert Secrets(["abc"]).masked("abc abcd") == "abc abcd"
    assert Secrets(["abcd"]).masked("abc abcd") == "abc ***"


@given(st.text(max_size=60), st.integers(0, 80), st.text(max_size=60), st.integers(1, 100))
def test_no_part_of_a_secret_survives_the_cut(before: str, repeats: int, after: str, limit: int) -> None:
    """Wherever the cut falls, no four letters of the secret are left, nor more than the limit of the rest."""
    kept = Secrets(["QXZJ" * 4]).kept(before + "QXZJ" * 4 * repeats + after, limit)
    assert "QXZJ" not in kept or "QXZJ" in before + after
    assert len(kept) <= limit


@given(st.text(st.characters(exclude_categories=()), max_size=80), st.integers(1, 80))
def test_what_is_kept_is_valid_unicode_and_otherwise_unchanged(text: str, limit: int) -> None:
    """Half a surrogate pair becomes U+FFFD; all else stays, up to the limit."""
    expected = "".join("\ufffd" if 0xD800 <= ord(char) < 0xE000 else char for char in text)[:limit]
    assert NO_SECRETS.kept(text, limit) == expected
    expected.encode()


# --- in records ---------------------------------------------------------------------------------------------


def streaming(*events: bytes) -> bytes:
    return HEAD + chunk(b"".join(events)) + LAST_CHUNK


ECHOES: dict[str, Callable[[str], bytes]] = {
    "without the scheme": lambda key: plain(401, {"error": f"Incorrect API key provided: {key}"}),
    "across the cut": lambda key: plain(400, b"x" * (KEPT_CHARACTERS - 9) + key.encode() + b"tail"),
    "across the cut after others": lambda key: plain(400, (key * 200).encode()),
    "in JSON's escapes": lambda key: plain(400, ('{"error": "' + escaped(key) + '"}').encode()),
    "in a location": lambda key: plain(302, location=f"http://x/?k={quote(key)}"),
    "in a content type": lambda key: plain(200, content_type=f"{key}+json"),
    "in a finish reason": lambda key: streaming(delta(f"k {key}", content="a"), DONE),
    "in a finish reason across its cut": lambda key: streaming(delta("k" * 60 + key, content="a"), DONE),
    "in an error event": lambda key: streaming(event({"error": {"message": f"bad {key}"}})),
    "in something that is no chunk": lambda key: streaming(event("oops " + "y" * 180 + key), DONE),
}


@pytest.mark.parametrize("how", ECHOES)
@pytest.mark.parametrize("given_by", ["key", "header"])
def test_an_echoed_key_reaches_no_record(how: str, given_by: str) -> None:
    """Not even its first letters do, given by variable or by a header of the user's own."""

    async def echo(link: Link) -> None:
        await link.request()
        await link.send(ECHOES[how](BARE))
        await link.request()

    headers = {"Authorization": f"Bearer {BARE}"} if given_by == "header" else {}
    ran = run_plan(
        plan_of([0.0]),
        echo,
        scenario_of(target={"headers": headers}),
        api_key=BARE if given_by == "key" else None,
    )
    kept = f"{ran.of(0).error} {ran.of(0).finish_reason}"
    assert "sk-P" not in kept
    assert "0123" not in kept
    assert escaped("sk") not in kept
    assert "*" in kept
