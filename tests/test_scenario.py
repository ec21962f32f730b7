"""Scenarios: what may be asked, and what is said, in one line a mistake, of everything else."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen import scenario, strict_yaml
from loadgen.scenario import Scenario, ScenarioError, build, is_secret, load, parse
from loadgen.units import show_duration, show_rate

GOOD = """\
load:
  arrivals: {kind: poisson, rate: 8/s}
  num_requests: 10
"""


def refusal(ask: Callable[[], Scenario]) -> str:
    """What the ScenarioError says; nothing where there is none."""
    try:
        ask()
    except ScenarioError as error:
        return str(error)
    return ""


def fault(text: str) -> str:
    return refusal(lambda: parse(text, "f.yaml"))


def load_fault(keys: str) -> str:
    """What is said of `load: {...}` with a sound burst and these further keys."""
    return fault(f"load: {{arrivals: {{kind: burst}}, {keys}}}").removeprefix("f.yaml:1: ")


def test_a_scenario_holds_base_units_and_defaults() -> None:
    """Durations are seconds and rates are per second, whatever unit they were written in."""
    asked = parse(GOOD + "  warmup: 500ms\ntimeouts: {total: 2m}\ndrain: 0s\n", "chat.yaml")
    assert asked.load.arrivals.rate_rps == 8.0  # type: ignore[union-attr]
    assert asked.load.warmup_s == 0.5
    assert (asked.timeouts.total_s, asked.timeouts.connect_s, asked.drain_s) == (120.0, 10.0, 0.0)
    assert asked.engine.batching == "continuous"
    assert asked.load.prompt_tokens.kind == "fixed"


def test_a_bare_number_of_tokens_is_a_fixed_length() -> None:
    """`output_tokens: 7` and `{kind: fixed, tokens: 7}` are the same."""
    short, long = (parse(GOOD + f"  output_tokens: {how}", "f") for how in ("7", "{kind: fixed, tokens: 7}"))
    assert short == long


def test_the_name_defaults_to_the_files_stem(tmp_path: Path) -> None:
    """A stem that cannot be a name leaves `run`; a name in the file wins."""
    path = tmp_path / "chat-8.yaml"
    path.write_text(GOOD)
    assert load(path).name == "chat-8"
    assert load(str(path)).name == "chat-8"
    assert parse(GOOD, "<standard input>").name == "run"
    assert parse("name: mine\n" + GOOD, "chat.yaml").name == "mine"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "f.yaml: the file is empty"),
        ("{}", "f.yaml:1: nothing is asked: give a load, "),
        ("seed: 1\n", "f.yaml:1: load: required key missing"),
        ("- load\n", "f.yaml:1: must hold keys and values (key: value), not a list"),
        ("load: : 5", "f.yaml:1: not YAML: "),
        ("load: 5", "f.yaml:1: load: must hold keys and values, not 5"),
        (
            "load: {}",
            "f.yaml:1: load: say when requests arrive: give arrivals, or the rows themselves as requests",
        ),
        ("# top\nlaod: {}\n", "f.yaml:2: laod: unknown key, did you mean load?"),
        (
            "load:\n  arrivals:\n    kind: poisson\n    raate: 8\n",
            "f.yaml:4: load.arrivals.raate: unknown key, did you mean rate?",
        ),
        (
            "load:\n  arrivals:\n    kind: poisson\n    rate_rps: 8\n",
            "f.yaml:4: load.arrivals.rate_rps: unknown key, did you mean rate?",
        ),
        (
            "load:\n  arrivals:\n    kind: gamma\n    gamma: 8\n    rate: 1\n",
            "f.yaml:4: load.arrivals.gamma: unknown key: choose from kind, rate, burstiness, cv",
        ),
        (
            "load:\n  tail: true\n  arrivals:\n    kind: poisson\n",
            "f.yaml:3: load.arrivals.rate: required key missing",
        ),
        (
            "load:\n  arrivals:\n    rate: 8\n",
            "f.yaml:2: load.arrivals.kind: required key missing: one of poisson, constant, ",
        ),
        (
            "load:\n  arrivals:\n    rate: 8\n    kind: poison\n",
            "f.yaml:4: load.arrivals.kind: unknown kind 'poison', did you mean poisson?",
        ),
        (
            "load:\n  arrivals: {kind: 5}\n",
            "f.yaml:2: load.arrivals.kind: unknown kind '5': choose from poisson, constant, ",
        ),
        ("load:\n  arrivals: poisson\n", "f.yaml:2: load.arrivals: must hold keys and values, not 'poisson'"),
        ("load: {a: 1}\nload: {}\n", "f.yaml:2: load: key given twice, first on line 1"),
        (GOOD + "seed: x\ndrain: 3\n", "f.yaml:4: seed: must be a whole number, not 'x'\nf.yaml:5: drain: "),
        (GOOD + "seed: -1\n", "f.yaml:4: seed: must be at least 0, not -1"),
        (GOOD + f"seed: {10**30}\n", "f.yaml:4: seed: a whole number of more than 64 bits"),
        (
            GOOD + "name: a b\n",
            "f.yaml:4: name: must be 1 to 64 letters, digits, dots, _ or -, the first a letter or digit",
        ),
        (GOOD + "name: 7\n", "f.yaml:4: name: must be text, not 7"),
        (
            GOOD + "engine:\n  batching: dynamik\n",
            "f.yaml:5: engine.batching: unknown value 'dynamik', did you mean dynamic?",
        ),
        (
            GOOD + "engine: {max_sequences: 64, token_budget: 32}\n",
            "f.yaml:4: engine: token_budget 32 is below max_sequences 64: ",
        ),
        (
            GOOD + "engine: {cost: {kind: fixed, step: 5}}\n",
            "f.yaml:4: engine.cost.step: 5 is not a duration: ",
        ),
        (GOOD + "timeouts: {idle: 0s}\n", "f.yaml:4: timeouts.idle: must be above zero, not 0"),
        (GOOD + "drain: -1s\n", "f.yaml:4: drain: must not be negative, as -1 is"),
        (GOOD + "drain: 9000h\n", "f.yaml:4: drain: must be at most 8760h, a year, not 9000h"),
        (GOOD + "variants: [a]\n", "f.yaml:4: variants: must hold keys and values, not a list"),
        (
            GOOD + "variants: {a: {engine: {}, target: {}}}\n",
            "f.yaml:4: variants.a.target.base_url: required key missing",
        ),
        (GOOD + "variants: {a b: {}}\n", "f.yaml:4: variants.'a b': must be 1 to 64 letters, "),
    ],
)
def test_a_mistake_is_one_line_with_its_place_path_and_rule(text: str, words: str) -> None:
    """File and line, the key path as in the YAML, the rule, and the nearest thing that would be right."""
    said = fault(text)
    assert said == words or (words[-1] in " /" and said.startswith(words))


@pytest.mark.parametrize(
    ("arrivals", "words"),
    [
        ("kind: poisson, rate: 0", "rate: must be above zero, not 0"),
        ("kind: poisson, rate: -2/s", "rate: must be above zero, not -2"),
        ("kind: constant, rate: .nan", "rate: not a finite number"),
        ("kind: constant, rate: .inf", "rate: not a finite number"),
        (
            "kind: poisson, rate: nan",
            "rate: 'nan' is not a rate: write requests per second, such as 8/s or 90/min",
        ),
        (
            "kind: poisson, rate: 5s",
            "rate: '5s' is not a rate: write requests per second, such as 8/s or 90/min",
        ),
        (
            "kind: poisson, rate: true",
            "rate: true is not a rate: write requests per second, such as 8/s or 90/min",
        ),
        ("kind: poisson, rate: 1e9", "rate: must be from 0.000001/s to 1000000/s, not 1000000000/s"),
        ("kind: gamma, rate: 1, burstiness: 0", "burstiness: must be at least 0.001, not 0"),
        ("kind: gamma, rate: 1, burstiness: -1.5", "burstiness: must be at least 0.001, not -1.5"),
        ("kind: gamma, rate: 1, burstiness: true", "burstiness: must be a number, not true"),
        (
            "kind: burst, size: 3",
            ": size and every belong together: give both for groups, neither for one burst",
        ),
        ("kind: burst, size: 0, every: 1s", "size: must be at least 1, not 0"),
    ],
)
def test_impossible_arrivals_are_refused(arrivals: str, words: str) -> None:
    """Rates and shapes that no process has are refused when the file is read, not in mid-run."""
    dot = "" if words.startswith(":") else "."
    assert (
        fault(f"load: {{arrivals: {{{arrivals}}}, num_requests: 3}}")
        == f"f.yaml:1: load.arrivals{dot}{words}"
    )


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("tail: true", "load: give num_requests or duration, or both"),
        ("duration: 3s", "load: one burst has no duration: give num_requests"),
        (
            "duration: 30",
            "load.duration: 30 is not a duration: write a number with a unit, such as 30s or 30ms",
        ),
        ("num_requests: 3, warmup: 1s", "load: one burst has no warm-up: every request is due at once"),
        ("num_requests: 0", "load.num_requests: must be at least 1, not 0"),
        ("num_requests: 12.0", "load.num_requests: must be a whole number, not 12.0"),
        ("num_requests: 1e3", "load.num_requests: must be a whole number, not 1000.0"),
        ("num_requests: true", "load.num_requests: must be a whole number, not true"),
        ("num_requests: '3'", "load.num_requests: must be a whole number, not '3'"),
        ("num_requests: 010", "load.num_requests: must be a whole number, not '010'"),
        ("num_requests: 3000000000", "load.num_requests: must be at most 2147483647, not 3000000000"),
        (f"num_requests: {10**30}", "load.num_requests: a whole number of more than 64 bits"),
        ("num_requests: 3, tail: yes", "load.tail: must be true or false, not 'yes'"),
        ("num_requests: 3, tail: 1", "load.tail: must be true or false, not 1"),
        (f"num_requests: 3, tail: {'y' * 70}", f"load.tail: must be true or false, not '{'y' * 59}..."),
        (
            "num_requests: 3, prompt_tokens: 0",
            "load.prompt_tokens: must be from 1 to 2147483647 tokens, not 0",
        ),
        (
            "num_requests: 3, prompt_tokens: 16000001",
            "load.prompt_tokens: a prompt has at most 16,000,000 tokens, not 16,000,001",
        ),
        (
            "num_requests: 3, prompt_tokens: {kind: uniform, min: 1, max: 20000000}",
            "load.prompt_tokens: a prompt has at most 16,000,000 tokens, not 20,000,000",
        ),
        (
            "num_requests: 3, prompt_tokens: {kind: truncated_exponential, mean: 9, cap: 20000000}",
            "load.prompt_tokens: a prompt has at most 16,000,000 tokens, not 20,000,000",
        ),
        (
            "num_requests: 3, prompt_tokens: 1.5",
            "load.prompt_tokens: must be a whole number of tokens, or a kind of length ",
        ),
        (
            "num_requests: 3, prompt_tokens: {tokens: 5}",
            "load.prompt_tokens.kind: required key missing: one of fixed, uniform, vllm_range, ",
        ),
        (
            "num_requests: 3, prompt_tokens: {kind: fixed, tokens: a}",
            "load.prompt_tokens.tokens: must be a whole number, not 'a'",
        ),
        (
            "num_requests: 3, output_tokens: {kind: uniform, min: 9, max: 3}",
            "load.output_tokens: min 9 is above max 3",
        ),
        (
            "num_requests: 3, output_tokens: {kind: truncated_exponential, mean: 5, cap: 3, min: 9}",
            "load.output_tokens: min 9 is above cap 3",
        ),
        (
            "num_requests: 3, output_tokens: {kind: truncated_exponential, mean: 0, cap: 3}",
            "load.output_tokens.mean: must be above 0, not 0",
        ),
        (
            "num_requests: 1, prompt_tokens: {kind: truncated_exponential, mean: 9e9, cap: 9}",
            "load.prompt_tokens.mean: must be at most 1000000000, not 9000000000.0",
        ),
    ],
)
def test_an_impossible_load_is_refused(keys: str, words: str) -> None:
    """Both or neither stop, counts that are no counts, lengths that cannot be drawn."""
    said = load_fault(keys)
    assert said == words or (words[-1] in " /" and said.startswith(words))


@pytest.mark.parametrize("mean", [1e-3, 1, 1e8])
def test_any_positive_mean_is_possible_with_ceil(mean: float) -> None:
    """The mean is that before truncation, so no cap is too small for it."""
    lengths = {"kind": "truncated_exponential", "mean": mean, "cap": 2}
    assert build({"load": {"arrivals": {"kind": "burst"}, "num_requests": 1, "output_tokens": lengths}})


@pytest.mark.parametrize("cap", [9, 10, 11, 12])
def test_redraw_is_refused_below_one_kept_draw_in_a_thousand(cap: int) -> None:
    """P(exponential of mean m rounds to at most cap) = 1 - exp(-(cap + 1/2)/m): 1e-3 at a cap of 10 here."""
    lengths = {"kind": "truncated_exponential", "mean": 10_500, "cap": cap, "rounding": "redraw"}
    data = {"load": {"arrivals": {"kind": "burst"}, "num_requests": 1, "output_tokens": lengths}}
    if 1 - math.exp(-(cap + 0.5) / 10_500) >= 1e-3:
        build(data)
    else:
        with pytest.raises(ScenarioError, match="redraw would keep"):
            build(data)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("[]", "load: requests is empty"),
        ("5", "load.requests: must be a list, not 5"),
        ("[5]", "load.requests.0: must hold keys and values, not 5"),
        ("[{prompt: 5}]", "load.requests.0.output: required key missing"),
        (
            "[{prompt: '', output: 1}]",
            "load.requests.0.prompt: must be a text, or a whole number of tokens, not ''",
        ),
        (
            "[{prompt: 1.5, output: 1}]",
            "load.requests.0.prompt: must be a text, or a whole number of tokens, not 1.5",
        ),
        (
            "[{prompt: 16000001, output: 1}]",
            "load.requests.0.prompt: a prompt has at most 16,000,000 tokens, not 16,000,001",
        ),
        ("[{prompt: 0, output: 1}]", "load.requests.0.prompt: must be from 1 to 2147483647 tokens, not 0"),
        ("[{prompt: 1, output: '1'}]", "load.requests.0.output: must be a whole number, not '1'"),
        ("[{prompt: 1, output: 1, due: 3}]", "load.requests.0.due: 3 is not a duration: "),
        ("[{prompt: 1, output: 1, id: a b}]", "load.requests.0.id: must be 1 to 128 printable ASCII "),
        (
            "[{prompt: 1, output: 1, id: '7'}]",
            "load.requests.0.id: must not be digits alone: it would be taken for another row's number",
        ),
        (
            "[{prompt: 1, output: 1, id: a}, {prompt: 1, output: 1, id: a}]",
            "load.requests.1.id: 'a' is already the id of requests.0",
        ),
        (
            "[{prompt: 1, output: 1}], num_requests: 3, warmup: 1s",
            "load: requests is the whole plan: num_requests, warmup cannot stand beside it",
        ),
    ],
)
def test_rows_that_cannot_be_sent_are_refused(rows: str, words: str) -> None:
    """Rows written out are checked one by one; nothing drawn may stand beside them."""
    said = fault(f"load: {{requests: {rows}}}").removeprefix("f.yaml:1: ")
    assert said == words or (words[-1] in " /" and said.startswith(words))


BURST = "load: {arrivals: {kind: burst}, num_requests: 1}\n"


def test_servers_may_be_a_list() -> None:
    """Each is a target of its own, alike but for its URL; one alone is no list of servers."""
    text = BURST + "target: {base_url: [http://a, 'https://b/v1'], model: m, insecure: true}"
    target = parse(text, "f.yaml").target
    assert target is not None
    assert target.urls == ("http://a", "https://b/v1")
    assert [(one.base_url, one.more_urls, one.model) for one in target.each()] == [
        ("http://a", (), "m"),
        ("https://b/v1", (), "m"),
    ]
    again = build(parse(text, "f.yaml").as_asked()).target
    assert again is not None
    assert again.urls == target.urls


def test_who_pays_is_a_header_like_any_other() -> None:
    """A header of that name that is written out wins; neither is kept."""
    payers = "organization: org-1, project: p-1, headers: {OpenAI-Project: p-2}"
    asked = parse(BURST + f"target: {{base_url: http://a, {payers}}}", "f.yaml")
    assert asked.target is not None
    assert asked.target.headers == {"OpenAI-Organization": "org-1", "OpenAI-Project": "p-2"}
    assert {"org-1", "p-1", "p-2"}.isdisjoint(str(asked.as_asked()).replace("'", " ").split())


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("{}", "target.base_url: required key missing"),
        (
            "{base_url: localhost:8000}",
            "target.base_url: not a base URL: write http://host:port or https://host",
        ),
        (
            "{base_url: [http://a, h]}",
            "target.base_url: not a base URL: write http://host:port or https://host",
        ),
        ("{base_url: [http://a, 3]}", "target.base_url: must be text, or a list of texts"),
        ("{base_url: [http://a, http://a/]}", "target.base_url: names a server twice"),
        (
            "{base_url: [http://a, http://b], unix_socket: s}",
            "target: a unix_socket is one server: give one base_url",
        ),
        ("{base_url: http://a, organization: 5}", "target.organization: must be text, not 5"),
        ("{base_url: 'http://h:99999'}", "target.base_url: a port is a number from 1 to 65535"),
        ("{base_url: 'http://h:0'}", "target.base_url: a port is a number from 1 to 65535"),
        (
            "{base_url: 'http://h/v1/chat/completions'}",
            "target.base_url: leave /v1/chat/completions off the base URL: the path is the endpoint's",
        ),
        ("{base_url: 'http://h?a=1'}", "target.base_url: a base URL has no query and no fragment"),
        ('{base_url: "http://h\\nost"}', "target.base_url: a base URL has no spaces or control characters"),
        (
            "{base_url: 'http://h', endpoint: /v1/chat}",
            (
                "target.endpoint: no API that is known by its path (backend says which it is), "
                "did you mean /v1/chat/completions?"
            ),
        ),
        (
            "{base_url: 'http://h', backend: tgi, endpoint: /v1/completions}",
            (
                "target.endpoint: /v1/completions is not where tgi is spoken: "
                "leave one of endpoint and backend out"
            ),
        ),
        (
            "{base_url: 'http://h', metrics: nope}",
            ("target.metrics: neither auto nor none: not a base URL: write http://host:port or https://host"),
        ),
        (
            "{base_url: 'http://h', metrics: []}",
            "target.metrics: must be auto, none, or a base URL or several",
        ),
        (
            "{base_url: 'http://h', metrics: 9}",
            "target.metrics: must be auto, none, or a base URL or several",
        ),
        (
            "{base_url: 'http://h', api_key: hunter2}",
            "target.api_key: unknown key, did you mean api_key_env?",
        ),
        (
            "{base_url: 'http://h', client_cert: c}",
            "target.client_cert: unknown key, did you mean cert_file?",
        ),
        ("{base_url: 'http://h', warm: 5}", "target.warm: unknown key: it belongs under client"),
        (
            "{base_url: 'http://h', ca_file: c}",
            "target: ca_file is of use with TLS only: write https:// in base_url",
        ),
        (
            "{base_url: 'http://h', insecure: true}",
            "target: insecure is of use with TLS only: write https:// in base_url",
        ),
        (
            "{base_url: 'http://h', headers: {'a b': c}}",
            "target.headers: 'a b' cannot be the name of a header",
        ),
        (
            "{base_url: 'http://h', headers: {Content-Length: '1'}}",
            "target.headers: Content-Length is set by the client",
        ),
    ],
)
def test_an_impossible_target_is_refused(target: str, words: str) -> None:
    """URLs that no client could use, and headers that would break HTTP."""
    said = fault(f"{GOOD}target: {target}").removeprefix("f.yaml:4: ")
    assert said == words or (words[-1] in " /" and said.startswith(words))


@pytest.mark.parametrize(
    "target",
    [
        "{base_url: 'http://user:hunter2@h'}",
        "{base_url: 'ftp://user:hunter2@h'}",
        "{base_url: 'hunter2@h'}",
        "{base_url: [hunter2]}",
        "{base_url: [http://h, hunter2]}",
        "{base_url: http://h, more_urls: [hunter2]}",
        "{base_url: http://h, more_urls: hunter2}",
        '{base_url: http://h, organization: "hunter2\\r\\n"}',
        "{base_url: 'http://h', headers: hunter2}",
        "{base_url: 'http://h', headers: {Authorization: [hunter2]}}",
        '{base_url: "http://h", headers: {Authorization: "hunter2\\r\\nX: y"}}',
        "{base_url: 'http://h', api_key_env: sk-hunter2}",
        "{base_url: 'http://h', api_key: hunter2}",
    ],
)
def test_no_message_holds_a_secret(target: str) -> None:
    """Wherever a key or password was put by mistake, the error does not repeat it."""
    assert "hunter2" not in fault(f"{GOOD}target: {target}")


def test_what_a_run_folder_keeps_of_headers_and_body_holds_no_credential() -> None:
    """Headers keep their names alone; in the body, texts under a name like a secret's are masked."""
    headers = {"Authorization": "hunter2", "X-Api-Key": "hunter2", "Cookie": "hunter2", "X-Route": "hunter2"}
    body = {"user": "b", "max_tokens": 5, "api_key": "hunter2", "x": [{"Password": ["hunter2"], "top_k": 1}]}
    asked = build(
        {
            "load": {"arrivals": {"kind": "burst"}, "num_requests": 1},
            "target": {"base_url": "http://h", "headers": headers, "extra_body": body},
        }
    )
    assert "hunter2" not in str(asked.as_asked())
    assert asked.as_asked()["target"]["headers"] == dict.fromkeys(headers, "***")
    kept = {"user": "b", "max_tokens": 5, "api_key": "***", "x": [{"Password": ["***"], "top_k": 1}]}
    assert asked.as_asked()["target"]["extra_body"] == kept


def test_a_variant_starts_from_the_engine_and_changes_what_it_names() -> None:
    """What the variant does not name is the scenario's; what it names wins."""
    asked = parse(
        GOOD + "engine: {max_sequences: 5}\nvariants: {a: {engine: {batching: static}}, b: {}}", "f"
    )
    engine = asked.variants["a"].engine
    assert engine is not None
    assert (engine.max_sequences, engine.batching) == (5, "static")
    assert asked.variants["b"].engine is None


def test_a_fault_a_variant_inherits_is_found_where_it_was_written() -> None:
    """The line is the base engine's: nothing is wrong on the variant's own."""
    text = "variants:\n  a: {engine: {batching: static}}\nengine:\n  max_queue: x\n" + GOOD
    assert fault(text) == "f.yaml:4: engine.max_queue: must be a whole number, not 'x'"


def test_a_fault_that_only_the_variant_has_is_found_there() -> None:
    """Its line is the variant's, though the base supplies the other half of the contradiction."""
    text = (
        GOOD
        + "engine:\n  token_budget: 4\n  max_sequences: 2\nvariants:\n  a:\n    engine: {max_sequences: 5}\n"
    )
    assert fault(text).startswith("f.yaml:9: variants.a.engine: token_budget 4 is below max_sequences 5")


def test_a_key_of_another_part_is_sent_there() -> None:
    assert fault(GOOD + "client: {connections: fresh}\n").endswith(
        "client.connections: unknown key: it belongs under target"
    )


def test_connections_are_warm_or_fresh() -> None:
    """Warm ones would be opened and never used."""
    target = "target: {base_url: 'http://gpu', connections: %s}\nclient: {warm: 4}\n"
    assert fault(GOOD + target % "keep-alive") == ""
    assert "warm connections are never used" in fault(GOOD + target % "fresh")


@pytest.mark.parametrize("value", [math.nan, [math.inf], {"a": object()}, {"a": {1, 2}}])
def test_an_extra_body_that_json_cannot_carry_is_refused(value: object) -> None:
    """Plain data from flags may hold what YAML cannot: it is refused before it is sent."""
    said = refusal(
        lambda: build(
            strict_yaml.read(GOOD).data | {"target": {"base_url": "http://h", "extra_body": {"x": value}}}
        )
    )
    plain = "must hold plain JSON values, no nan, no inf and no half of a surrogate pair"
    assert said == f"command line: target.extra_body: {plain}"


def test_plain_data_has_the_same_faults_without_lines() -> None:
    """Flags are checked like files; the message names the key path."""
    with pytest.raises(ScenarioError) as refused:
        build({"load": {"arrivals": {"kind": "poisson", "rate": "-1"}, "num_requests": 10**30}})
    assert str(refused.value).splitlines() == [
        "command line: load.arrivals.rate: must be above zero, not -1",
        f"command line: load.num_requests: must be at most 2147483647, not {10**30}",
    ]


def test_every_mistake_is_told_up_to_ten_a_line_each() -> None:
    """Twelve wrong rows: ten lines in the order of the file, then how many more there are."""
    rows = "".join("    - {prompt: 1, output: 0}\n" for _ in range(12))
    with pytest.raises(ScenarioError) as refused:
        parse(f"load:\n  requests:\n{rows}", "f.yaml")
    rule = "must be at least 1, not 0"
    told = [f"f.yaml:{3 + i}: load.requests.{i}.output: {rule}" for i in range(10)]
    assert str(refused.value).splitlines() == [*told, "and 2 more"]


# --- files --------------------------------------------------------------------------------------------------


def test_what_is_no_readable_file_is_one_line(tmp_path: Path) -> None:
    """A folder, nothing, a loop of links and an impossible name are each said as what they are."""
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name, words in [
        ("", "Is a directory"),
        ("none.yaml", "No such file or directory"),
        ("loop", "Too many levels of symbolic links"),
        ("a\0b", "embedded null byte"),
        ("x" * 300, "File name too long"),
    ]:
        with pytest.raises(ScenarioError) as refused:
            load(tmp_path / name)
        assert str(refused.value).endswith(f": cannot be read: {words}")
        assert str(refused.value).startswith(str(tmp_path))


def test_bytes_that_are_not_utf_8_are_refused_with_their_line(tmp_path: Path) -> None:
    """The third line holds a Latin-1 letter; UTF-16 fails on its mark."""
    path = tmp_path / "f.yaml"
    path.write_bytes(b"a: 1\nb: 2\nc: \xe9\n")
    with pytest.raises(ScenarioError, match=r"f.yaml:3: not UTF-8 text: byte 0xe9$"):
        load(path)
    path.write_bytes(GOOD.encode("utf-16"))
    with pytest.raises(ScenarioError, match=r"f.yaml:1: not UTF-8 text: byte 0xff$"):
        load(path)


def test_a_file_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One byte over the limit is refused; the limit itself is read."""
    path = tmp_path / "f.yaml"
    path.write_text(GOOD)
    monkeypatch.setattr(scenario, "MAX_FILE_BYTES", len(GOOD))
    assert load(path).load.num_requests == 10
    monkeypatch.setattr(scenario, "MAX_FILE_BYTES", len(GOOD) - 1)
    with pytest.raises(ScenarioError, match="is larger than"):
        load(path)


def test_a_byte_order_mark_and_crlf_change_nothing(tmp_path: Path) -> None:
    """A file saved by an editor on Windows is the same scenario."""
    path = tmp_path / "f.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert load(path) == parse(GOOD, "f.yaml")


def test_an_error_is_one_printable_line_whatever_the_names() -> None:
    """Line breaks and escape sequences in file names and keys are shown, not obeyed."""
    with pytest.raises(ScenarioError) as refused:
        parse('"a\\n\\e[31m": 1', "f\n\x1b[2J.yaml")
    assert str(refused.value).isprintable()


# --- properties ---------------------------------------------------------------------------------------------

COUNTS = st.integers(1, 2**31 - 1)
RATES = st.floats(1e-6, 1e6).map(show_rate)
DURATIONS = st.floats(1e-9, 31_536_000).map(show_duration)
DURATIONS_OR_ZERO = DURATIONS | st.just(0)
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,9}", fullmatch=True)
PRINTABLE = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=9)


def keys(needed: dict[str, Any], optional: dict[str, Any] | None = None) -> Any:
    return st.fixed_dictionaries(needed, optional=optional or {})


def kind(name: str, needed: dict[str, Any], optional: dict[str, Any] | None = None) -> Any:
    return keys({"kind": st.just(name), **needed}, optional)


ARRIVALS = (
    kind("poisson", {"rate": RATES})
    | kind("constant", {"rate": RATES})
    | kind("gamma", {"rate": RATES}, {"burstiness": st.floats(0.001, 1e6)})
    | kind("burst", {"size": COUNTS, "every": DURATIONS})
)


def lengths(most: int) -> Any:
    return (
        st.integers(1, most)
        | kind("fixed", {"tokens": st.integers(1, most)})
        | kind("uniform", {"min": st.integers(1, 50), "max": st.integers(50, most)})
        | kind(
            "truncated_exponential",
            {"mean": st.floats(1e-3, 1e3), "cap": st.integers(50, most)},
            {"min": st.integers(1, 50), "rounding": st.sampled_from(["ceil", "redraw"])},
        )
    )


ROWS = st.lists(
    keys(
        {"prompt": st.integers(1, 16_000_000) | PRINTABLE, "output": st.integers(1, 16_000_000)},
        {"due": DURATIONS_OR_ZERO, "priority": st.integers(-9, 9)},
    ),
    min_size=1,
    max_size=4,
)
LOADS = (
    keys(
        {"arrivals": ARRIVALS, "num_requests": COUNTS},
        {"prompt_tokens": lengths(16_000_000), "warmup": DURATIONS_OR_ZERO},
    )
    | keys(
        {"arrivals": ARRIVALS, "duration": DURATIONS},
        {"output_tokens": lengths(16_000_000), "warmup_requests": COUNTS},
    )
    | keys(
        {"arrivals": kind("burst", {}), "num_requests": COUNTS},
        {"max_in_flight": COUNTS, "tail": st.booleans()},
    )
    | keys({"requests": ROWS}, {"ignore_eos": st.booleans(), "max_concurrency": COUNTS})
)
COSTS = kind("fixed", {"step": DURATIONS}, {"per_token": DURATIONS_OR_ZERO}) | kind(
    "roofline", {}, {"gpu": NAMES, "model": NAMES, "overhead": DURATIONS_OR_ZERO}
)
ENGINES = keys(
    {},
    {
        "batching": st.sampled_from(["static", "dynamic", "continuous"]),
        "max_sequences": st.integers(1, 64),
        "token_budget": st.integers(64, 9999),
        "prefill_chunk": COUNTS | st.none(),
        "max_queue": COUNTS | st.just(0) | st.none(),
        "max_wait": DURATIONS_OR_ZERO | st.none(),
        "cost": COSTS,
    },
)
TARGETS = keys(
    {"base_url": st.sampled_from(["http://127.0.0.1:8000", "https://h/v1/", "http://[::1]:80"])},
    {
        "model": PRINTABLE,
        "headers": st.dictionaries(st.sampled_from(["X-A", "X-B"]), st.just("***")),  # as they are masked
        "extra_body": st.dictionaries(
            PRINTABLE.filter(lambda name: not is_secret(name)),
            st.none() | st.integers(-(2**63), 2**63) | PRINTABLE | st.lists(st.floats(0, 1)),
            max_size=3,
        ),
        "connections": st.sampled_from(["keep-alive", "fresh"]),
        "insecure": st.booleans(),
        "api_key_env": st.just("KEY"),
    },
).filter(lambda target: target["base_url"].startswith("https:") or not target.get("insecure"))
SCENARIOS = keys(
    {"load": LOADS},
    {
        "name": NAMES,
        "seed": st.integers(0, 2**31 - 1),
        "target": TARGETS,
        "engine": ENGINES,
        "timeouts": keys({}, dict.fromkeys(["connect", "first_token", "idle", "total"], DURATIONS)),
        "goodput": keys({}, dict.fromkeys(["ttft", "tpot", "e2e"], DURATIONS)),
        "drain": DURATIONS_OR_ZERO,
        "variants": st.dictionaries(
            NAMES, keys({"engine": ENGINES}) | keys({"target": TARGETS}) | keys({}), max_size=2
        ),
    },
)


@settings(deadline=None)
@given(SCENARIOS)
def test_what_was_asked_can_be_asked_again(data: dict[str, Any]) -> None:
    """A scenario printed as plain data, and through JSON, is the same scenario."""
    asked = build(data)
    assert Scenario.model_validate(asked.as_asked()) == asked
    assert parse(json.dumps(asked.as_asked()), "f.yaml") == asked


KEYS = [
    "load",
    "arrivals",
    "kind",
    "rate",
    "requests",
    "prompt",
    "output",
    "prompt_tokens",
    "tokens",
    "engine",
    "cost",
    "step",
]
KEYS += [
    "variants",
    "target",
    "headers",
    "base_url",
    "num_requests",
    "burstiness",
    "mean",
    "cap",
    "name",
    "timeouts",
    "idle",
    "tail",
]
KINDS = ["poisson", "gamma", "burst", "fixed", "uniform", "truncated_exponential", "roofline", "static"]
ODD = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(KINDS) | st.text(max_size=9)
SHAPED = st.recursive(
    ODD,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=25,
)


@settings(deadline=None, max_examples=300)
@given(st.dictionaries(st.sampled_from(KEYS), SHAPED, max_size=5))
def test_any_plain_data_is_a_scenario_or_one_line_a_mistake(data: dict[str, Any]) -> None:
    """Whatever stands under whichever key, the answer is a Scenario or a ScenarioError in our own words."""
    said = refusal(lambda: build(data))
    assert all(line.isprintable() for line in said.split("\n"))
    assert "Input should" not in said


@settings(deadline=None)
@given(data=SCENARIOS, cut=st.data())
def test_one_wrong_value_in_a_sound_scenario_is_named_by_its_path(
    data: dict[str, Any], cut: st.DataObject
) -> None:
    """A key that exists nowhere is found wherever it is put, and named by the path it was put at."""
    here, path = data, []
    while inner := [
        k for k, v in here.items() if isinstance(v, dict) and k not in ("headers", "extra_body", "variants")
    ]:
        if cut.draw(st.booleans()):
            break
        path.append(cut.draw(st.sampled_from(inner)))
        here = here[path[-1]]
    here["zzz"] = 1
    with pytest.raises(ScenarioError) as refused:
        build(data)
    assert str(refused.value).startswith(f"command line: {'.'.join([*path, 'zzz'])}: unknown key")


@settings(deadline=None)
@given(st.text(max_size=200) | st.text(st.sampled_from("load:arivskn {}[],-\n&*!|>'\"#?5"), max_size=200))
def test_any_text_is_a_scenario_or_one_line(text: str) -> None:
    """No text makes the reader raise anything but ScenarioError."""
    assert fault(text).isprintable()
