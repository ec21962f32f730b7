"""Flags laid over a scenario, and alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadgen.cli import argv, flags, main
from loadgen.laws import Burst, Constant, Fixed, Gamma, Poisson
from loadgen.scenario import ScenarioError
from loadgen.target import Target

YAML = """\
load:
  arrivals: {kind: poisson, rate: 8/s}
  num_requests: 100
  output_tokens: {kind: uniform, min: 1, max: 9}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "mine.yaml"
    path.write_text(YAML)
    return str(path)


def test_flags_alone_make_a_scenario() -> None:
    """A vLLM user's flags, and no file, are a whole scenario."""
    asked = flags.overlay(
        None,
        {
            "base_url": "http://127.0.0.1:8000",
            "model": "m",
            "endpoint": "/v1/completions",
            "request_rate": "8",
            "num_prompts": 200,
            "input_len": 512,
            "output_len": 64,
            "max_concurrency": 4,
            "seed": 9,
            "goodput": ["ttft:500", "tpot:50", "e2el:10000"],
            "header": ["X-A=1", "X-B: two=2"],
            "extra_body": '{"temperature": 0}',
        },
    )
    assert asked.target == Target(
        base_url="http://127.0.0.1:8000",
        model="m",
        endpoint="/v1/completions",
        headers={"X-A": "1", "X-B": "two=2"},
        extra_body={"temperature": 0},
    )
    assert asked.load.arrivals == Poisson(kind="poisson", rate_rps=8)
    assert asked.load.prompt_tokens == Fixed(tokens=512)
    assert (asked.load.num_requests, asked.load.max_concurrency, asked.seed) == (200, 4, 9)
    assert asked.goodput is not None
    assert (asked.goodput.ttft, asked.goodput.tpot_s, asked.goodput.e2e_s) == ((0.5, 0.0), 0.05, 10.0)


def test_a_flag_changes_only_what_it_names(file: str) -> None:
    """An overlaid rate leaves the file's lengths and count as they were."""
    before, after = flags.overlay(file, {}), flags.overlay(file, {"request_rate": "12"})
    assert after.load.arrivals == Poisson(kind="poisson", rate_rps=12)
    assert after.load.output_tokens == before.load.output_tokens
    assert after.load.num_requests == 100


def test_duration_replaces_the_files_count(file: str) -> None:
    """--duration is another way to stop than num_requests, so it takes its place."""
    asked = flags.overlay(file, {"duration": "30s"})
    assert (asked.load.duration_s, asked.load.num_requests) == (30.0, None)


@pytest.mark.parametrize(
    ("given", "arrivals"),
    [
        ({"request_rate": "inf"}, Burst(kind="burst")),
        ({"arrival": "burst"}, Burst(kind="burst")),
        ({"arrival": "constant"}, Constant(kind="constant", rate_rps=8)),
        ({"burstiness": 0.25}, Gamma(kind="gamma", rate_rps=8, burstiness=0.25)),
        ({"arrival": "constant", "request_rate": "90/min"}, Constant(kind="constant", rate_rps=1.5)),
    ],
)
def test_arrival_flags(file: str, given: dict[str, object], arrivals: object) -> None:
    """Rate, burstiness and kind together name one arrival process."""
    assert flags.overlay(file, given).load.arrivals == arrivals


@pytest.mark.parametrize(("text", "seconds", "count"), [("10s", 10.0, 0), ("20", 0.0, 20)])
def test_warmup_is_a_duration_or_a_count(file: str, text: str, seconds: float, count: int) -> None:
    """--warmup 10s is time, --warmup 20 is requests."""
    load = flags.overlay(file, {"warmup": text}).load
    assert (load.warmup_s, load.warmup_requests) == (seconds, count)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"request_rate": "-1"}, "above zero"),
        ({"request_rate": "0"}, "above zero"),
        ({"request_rate": "fast"}, "not a rate"),
        ({"model": "m"}, "--base-url"),
        ({"arrival": "burst", "request_rate": "3"}, "contradict"),
        ({"burstiness": 0.5, "arrival": "constant"}, "needs --arrival gamma"),
        ({"goodput": ["itl:3"]}, "ttft"),
        ({"base_url": "http://x", "header": ["novalue"]}, "NAME=VALUE"),
        ({"base_url": "http://x", "extra_body": "{"}, "not JSON"),
        ({"base_url": "http://u:secret@x"}, "user name or password"),
        ({"duration": "3"}, "unit"),
    ],
)
def test_a_wrong_flag_is_one_clear_line(file: str, given: dict[str, object], words: str) -> None:
    """What is wrong with a flag is said in one line."""
    with pytest.raises(ScenarioError, match=words) as told:
        flags.overlay(file, given)
    assert "\n" not in str(told.value)
    assert "secret" not in str(told.value)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "say when requests arrive: give --request-rate, or a scenario"),
        ({"request_rate": "8"}, "say when the load ends: give --num-prompts or --duration"),
        ({"arrival": "poisson"}, "poisson arrivals need --request-rate"),
        ({"request_rate": "8", "num_prompts": 0}, "--num-prompts: must be at least 1, not 0"),
        ({"request_rate": "-8", "num_prompts": 1}, "--request-rate: must be above zero, not -8"),
        ({"request_rate": "8", "duration": "3"}, "--duration: '3' is not a duration: "),
        ({"request_rate": "8", "num_prompts": 1, "input_len": 0}, "--input-len: must be "),
        (
            {"request_rate": "8", "num_prompts": 1, "input_len": 16_000_001},
            "--input-len: a prompt ",
        ),
        (
            {"request_rate": "8", "num_prompts": 1, "timeout_idle": "x"},
            "--timeout-idle: 'x' is not ",
        ),
        ({"request_rate": "8", "num_prompts": 1, "base_url": "host"}, "--base-url: not a base URL: "),
        ({"request_rate": "8", "num_prompts": 1, "goodput": ["ttft:x"]}, "--goodput: 'x' is not a duration"),
        ({"request_rate": "8", "num_prompts": 1, "warmup": "3x"}, "--warmup: '3x' is not a duration"),
        (
            {"request_rate": "8", "num_prompts": 1, "arrival": "often"},
            "--arrival: unknown kind 'often': choose from poisson, ",
        ),
        (
            {"request_rate": "8", "num_prompts": 1, "arrival": "poisson", "burstiness": 0.5},
            "--burstiness needs --arrival gamma, not poisson",
        ),
    ],
)
def test_who_uses_flags_is_told_in_flags(given: dict[str, object], told: str) -> None:
    """Without a file, every mistake is said with the flag that makes it, never with a key of a scenario."""
    with pytest.raises(ScenarioError) as found:
        flags.overlay(None, given)
    assert str(found.value).startswith(told)
    assert "load." not in str(found.value)


def test_every_mistake_in_the_flags_is_told_in_flags() -> None:
    """Two wrong flags are two lines."""
    with pytest.raises(ScenarioError) as found:
        flags.overlay(None, {"request_rate": "8", "num_prompts": 0, "drain": "x"})
    assert [line.split(":")[0] for line in str(found.value).splitlines()] == ["--num-prompts", "--drain"]


@pytest.mark.parametrize(
    ("named", "told"),
    [
        (
            "quickstrt",
            "quickstrt: no such file or shipped scenario, did you mean quickstart? ",
        ),
        ("z" * 300, f"{'z' * 300}: cannot be read: File name too long"),
        ("zzz", "zzz: no such file or shipped scenario; shipped: azure-code, "),
        ("http://u:pw@h", "a server's address goes to --base-url; "),
    ],
)
def test_what_is_no_scenario_is_met_with_advice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, named: str, told: str
) -> None:
    """A misspelt name shows the names there are; an address goes elsewhere, and is not repeated."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ScenarioError) as found:
        flags.read(named)
    assert str(found.value).startswith(told)
    assert "pw" not in str(found.value)


@pytest.mark.parametrize("text", ["-5s", "0s", "5", "soon"])
def test_a_wait_is_a_duration_above_zero(text: str) -> None:
    """Anything else is the user's mistake, under the flag's name."""
    assert flags.positive_s("--wait-ready", "10m") == 600
    with pytest.raises(ScenarioError, match=r"^--wait-ready: "):
        flags.positive_s("--wait-ready", text)


def test_a_shipped_scenario_goes_by_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`quickstart` is found from any folder."""
    monkeypatch.chdir(tmp_path)
    assert flags.read("quickstart").name == "quickstart"


def test_several_values_after_one_flag_are_split() -> None:
    """vLLM's `--goodput a:1 b:2` reads as two, and what follows stays a positional."""
    given = ["run", "--goodput", "ttft:500", "tpot:50", "s.yaml", "--header", "A=1", "B=2", "--seed", "1"]
    assert argv.joined(given) == [
        *("run", "--goodput", "ttft:500", "--goodput", "tpot:50", "s.yaml"),
        *("--header", "A=1", "--header", "B=2", "--seed", "1"),
    ]


def test_the_key_comes_from_the_named_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unset variable is the user's mistake, named."""
    monkeypatch.setenv("MY_KEY", "sk-1")
    assert flags.api_key("MY_KEY") == "sk-1"
    assert flags.api_key(None) is None
    monkeypatch.delenv("MY_KEY")
    with pytest.raises(ScenarioError, match="MY_KEY is not set"):
        flags.api_key("MY_KEY")


def test_header_values_never_reach_the_kept_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line in run.json masks what headers held."""
    monkeypatch.setattr(
        "sys.argv", ["loadgen", "run", "--header", "Authorization: Bearer sk-9", "--header=K=sk-8"]
    )
    kept = argv.command_line()
    assert kept == ["loadgen", "run", "--header", "Authorization=***", "--header=K=***"]


def test_an_extra_body_never_reaches_the_kept_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may hold a key; the scenario in run.json has the rest of it."""
    monkeypatch.setattr(
        "sys.argv", ["loadgen", "run", "--extra-body", '{"api_key": "sk-9"}', '--extra-body={"x": "sk-8"}']
    )
    assert argv.command_line() == ["loadgen", "run", "--extra-body", "***", "--extra-body=***"]


def test_a_key_in_an_endpoints_query_never_reaches_the_kept_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a query says under another name is kept."""
    words = ["--endpoint", "/chat/completions?v=1&key=sk-9", "--endpoint=/x?api_key=sk-8&v=2"]
    monkeypatch.setattr("sys.argv", ["loadgen", "run", *words])
    kept = argv.command_line()[2:]
    assert kept == ["--endpoint", "/chat/completions?v=1&key=***", "--endpoint=/x?api_key=***&v=2"]


@pytest.mark.parametrize("flag", ["--model", "--salt", "--extra-body"])
def test_a_word_that_is_no_text_is_refused(flag: str) -> None:
    """Bytes that are no UTF-8 reach a program as halves of surrogate pairs; a folder may be named so."""
    with pytest.raises(ScenarioError, match=rf"given to {flag} is not text"):
        argv.refuse_odd(["run", flag, "a\udcff"])
    argv.refuse_odd(["run", "--out", "a\udcff"])


@pytest.mark.parametrize(
    "words", [["--out", ""], ["--baseline="], ["--baseline", "a", "--junit", ""], ["x", ""], ["--host", ""]]
)
def test_an_empty_word_is_refused(words: list[str]) -> None:
    """A variable that is not set means neither the current folder nor, as a host, every address."""
    with pytest.raises(ScenarioError, match=r"^(--out|--baseline|--junit|x|--host): an empty word$"):
        argv.refuse_odd(["gate", *words])
    argv.refuse_odd(["run", "--", "a", "-", "--header=X=", "--slo", "p99(ttft)<=1s"])


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('{"a": 1, "a": 2}', "a key is given twice"),
        ('{"a": "\\ud800"}', "no half of a surrogate pair"),
        ('{"a": ' + "[" * 900 + "]" * 900 + "}", "more than 50 levels deep"),
        ('{"a": ' + "[" * 90_000 + "]" * 90_000 + "}", "is not JSON"),
    ],
    ids=["twins", "half a pair", "deep", "abyss"],
)
def test_a_body_that_cannot_be_sent_is_refused(file: str, body: str, words: str) -> None:
    """Whatever stands in --extra-body is held to what YAML is held to."""
    with pytest.raises(ScenarioError, match=words):
        flags.overlay(file, {"base_url": "http://127.0.0.1:1", "extra_body": body})


@pytest.mark.parametrize("flag", ["--warm", "--num-prompts", "--max-in-flight", "--seed"])
def test_a_count_that_is_no_whole_number_is_refused_as_in_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flag: str
) -> None:
    """In the words that a scenario's counts are refused in."""
    monkeypatch.setattr("sys.argv", ["loadgen", "run", "--base-url", "http://127.0.0.1:1", flag, "1e3"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "must be a whole number, not '1e3'" in capsys.readouterr().err


def test_slos_of_the_command_line_stand_beside_those_of_the_file(file: str) -> None:
    """Those of the file first; sets by their name; --policy how they are judged."""
    Path(file).write_text(YAML + "slos: [p99(e2e) <= 9s]\n")
    asked = flags.overlay(
        file, {"slo": ["p99(ttft) <= 500ms + 0.1ms/token", "distserve-opt-13b-sharegpt"], "policy": "point"}
    )
    assert asked.slos == ("p99(e2e) <= 9s", "p99(ttft) <= 500ms + 0.1ms/token", "distserve-opt-13b-sharegpt")
    assert (asked.policy, flags.overlay(file, {}).policy) == ("point", "interval")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"slo": ["p99(ttf) <= 1s"]}, r"^--slo: unknown metric 'ttf', did you mean ttft\?$"),
        ({"slo": ["p100(ttft) <= 1s"]}, "--slo: p100 is no percentile"),
        ({"slo": ["p99(ttft) <= 5/s"]}, "--slo: '5/s' is not a duration"),
        ({"slo": ["goodput >= 1/s"]}, "--slo: goodput counts good requests: say in goodput what one is"),
        ({"slo": ["share(fluidity>=0.9) >= 99%"]}, "--slo: fluidity counts deadlines"),
        ({"slo": ["mlperf-llama2"]}, "--slo: .* did you mean mlperf-llama2-70b-server"),
        ({"policy": "pont"}, "--policy: unknown value 'pont', did you mean point"),
        ({"goodput": ["ttft:500ms + 1/token"]}, "--goodput: '1' is not a duration"),
    ],
)
def test_what_is_wrong_with_a_promise_is_told_with_its_flag(
    file: str, given: dict[str, object], words: str
) -> None:
    """In one line."""
    with pytest.raises(ScenarioError, match=words) as told:
        flags.overlay(file, given)
    assert "\n" not in str(told.value)


def test_a_goodput_flag_may_grow_with_the_prompt(file: str) -> None:
    """As in a scenario."""
    asked = flags.overlay(file, {"goodput": ["ttft:500ms+0.2ms/token", "tpot:50"]})
    assert asked.goodput is not None
    assert asked.goodput.ttft == (0.5, 0.0002)


def test_several_slos_may_follow_one_flag() -> None:
    """What has a sign is an SLO, and a scenario's name is none."""
    words = [
        "run",
        "--slo",
        "p99(ttft) <= 1s",
        "goodput>=1/s",
        "mine.yaml",
        "--slo",
        "mlperf-llama2-70b-server",
    ]
    assert argv.joined(words) == [
        "run",
        "--slo",
        "p99(ttft) <= 1s",
        "--slo",
        "goodput>=1/s",
        "mine.yaml",
        "--slo",
        "mlperf-llama2-70b-server",
    ]


def test_several_servers_may_be_named_by_flags(file: str) -> None:
    """They take the place of all that the file names; a wrong one is the flag's mistake."""
    urls = ["http://a", "http://b"]
    target = flags.overlay(file, {"base_url": urls, "balance": "random"}).target
    assert target is not None
    assert (target.urls, target.balance) == (("http://a", "http://b"), "random")
    again = flags.laid(flags.overlay(file, {"base_url": urls}), {"base_url": ["http://c"]}).target
    assert again is not None
    assert again.urls == ("http://c",)
    with pytest.raises(ScenarioError, match=r"^--base-url: not a base URL: "):
        flags.overlay(file, {"base_url": ["http://a", "b"]})


def test_a_backend_or_an_endpoint_takes_the_place_of_both(file: str) -> None:
    """They go together in a file, and either of them tells which API is spoken."""
    base = flags.overlay(file, {"base_url": ["http://a"], "backend": "tgi"})
    found = [
        target and (target.dialect, target.endpoint)
        for target in (
            base.target,
            flags.laid(base, {"backend": "openai"}).target,
            flags.laid(base, {"endpoint": "/v1/chat/completions"}).target,
            flags.laid(base, {"endpoint": "/mine"}).target,
        )
    ]
    assert found == [
        ("tgi", "/generate_stream"),
        ("completions", "/v1/completions"),
        ("chat", "/v1/chat/completions"),
        ("tgi", "/mine"),
    ]


def test_a_backend_that_is_none_is_one_line() -> None:
    """It says nothing of an endpoint, which nobody gave."""
    with pytest.raises(ScenarioError) as told:
        flags.overlay(
            None,
            {"base_url": ["http://127.0.0.1:9"], "backend": "vlm", "request_rate": "1", "num_prompts": 1},
        )
    assert str(told.value) == "--backend: unknown value 'vlm', did you mean vllm?"
