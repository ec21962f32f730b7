"""Every reader of what a stranger wrote: files that it is given whole, and the seeds that they grow from."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from io import StringIO
from pathlib import Path

import msgspec
from rich.console import Console

from loadgen import baseline, calibrate, capacity, plan_file, server_log
from loadgen.backends import DIALECTS, DialectName
from loadgen.cli.reporting import reported
from loadgen.client import metric_names
from loadgen.client.dialects import dialect
from loadgen.client.stream import Stream
from loadgen.engine import dialect as asked
from loadgen.engine import fit
from loadgen.imports.vllm import bring_in
from loadgen.probe import Probe
from loadgen.run_folder import RunWriter
from loadgen.run_folder import load as load_run
from loadgen.scenario import ScenarioError, build
from loadgen.scenario import load as load_scenario
from loadgen.server_log import Scrape
from loadgen.shipped import folder as shipped
from loadgen.stats import summarize
from loadgen.stats.truth import read_truth
from loadgen.strict_json import as_json
from loadgen.trace_source import TraceSource
from loadgen.workload import column, draw
from loadgen.workload.traces import Trace
from loadgen.workload.traces import read as read_trace
from tests.calibrations import rung
from tests.records import failed, header, ok

TESTS = Path(__file__).parents[1]
LIMIT_S = 10  # for one input: each takes milliseconds
MOST_CHARACTERS = 600  # of a line of a refusal, which may name all keys that there are; the folder aside


class TooLongError(Exception):
    """A reader was at one input for longer than any of them takes."""


@dataclass(frozen=True, slots=True)
class Door:
    """`read`: the reader, given a folder that has `rest` and, by its `name`, the file in question. Raises one
    of `refusals`. What it reads it writes and reads again, where there is a way to: it is the same.
    """

    name: str
    seeds: tuple[bytes, ...]
    read: Callable[[Path], object]
    rest: tuple[tuple[str, bytes], ...] = ()
    refusals: tuple[type[Exception], ...] = (ScenarioError,)
    words: tuple[bytes, ...] = ()


@contextmanager
def watched(seconds: int = LIMIT_S) -> Iterator[None]:
    """Raises TooLongError in what hangs."""

    def ring(*_: object) -> None:
        raise TooLongError(f"still at it after {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def through(door: Door, content: bytes) -> Exception | None:
    """The refusal, or None where the content was taken. What else is raised is a bug."""
    with tempfile.TemporaryDirectory() as at, watched():
        folder = Path(at)
        for name, rest in door.rest:
            (folder / name).write_bytes(rest)
        (folder / door.name).write_bytes(content)
        try:
            door.read(folder)
        except door.refusals as refusal:
            check(refusal, at)
            return refusal
        return None


def check(refusal: Exception, folder: str) -> None:
    """It is lines to be printed as they are: one, but of a scenario one for each mistake."""
    said = str(refusal).replace(folder, "")
    lines = said.split("\n")
    assert said
    assert len(lines) <= 11
    for line in lines:
        assert line.isprintable(), line
        assert len(line) <= MOST_CHARACTERS, line


# --- seeds --------------------------------------------------------------------------------------------------


def _run() -> dict[str, bytes]:
    """The files of a small run of every kind of row."""
    with tempfile.TemporaryDirectory() as at:
        folder = Path(at)
        with RunWriter(folder) as writer:
            writer.write_header(header(plan_rows=4, rows_due=4, rows_not_sent=0))
            writer.append(ok(0, 0.5))
            writer.append(ok(1, 1.5, class_="chat", session="s", turn=1, event_tokens=[1, 2, 1, 3]))
            writer.append(failed(2, 2.5, error="no room", status=429, retry_after_s=1.5))
            writer.append(ok(3, 3.5, warnings=["odd_chunk"], gaps_us=[0, 7]))
        return {file.name: file.read_bytes() for file in folder.iterdir()}


def _plans() -> dict[str, bytes]:
    load = {"arrivals": {"kind": "poisson", "rate": "8/s"}, "num_requests": 3, "extra_body": {"top_k": 2}}
    scenario = build({"name": "kept", "load": load})
    with tempfile.TemporaryDirectory() as at:
        for ending in plan_file.ENDINGS:
            plan_file.write(draw(scenario), scenario, Path(at, f"plan{ending}"))
        return {file.suffix: file.read_bytes() for file in Path(at).iterdir()}


def _looks() -> bytes:
    looks = [
        Scrape(at_s=i / 2, took_s=0.01, kind="vLLM", values={"running": 1.0, "kv_share": 0.5}, raw={"a": 1.0})
        for i in range(3)
    ]
    return b"".join(msgspec.json.encode(look) + b"\n" for look in looks)


def _capacity() -> bytes:
    probe = Probe(load=1.0, folders=["001-1"], verdict="PASS", excess=-0.5, served_rps=1.0)
    found = capacity.Capacity(
        name="n", over="rate", unit="req/s", slos=["p99(ttft) <= 1s"], resolution=0.02, probes=[probe]
    )
    return as_json(found)


_AZURE = b"""TIMESTAMP,ContextTokens,GeneratedTokens
2031-05-04 10:00:00.5,100,20
2031-05-04 10:00:01,9,4
"""
_BURSTGPT = b"""Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,GPT-4,100,20,120,API log
7.5,ChatGPT,9,4,13,API log
"""
_MOONCAKE = b"""{"timestamp":0,"input_length":700,"output_length":9,"hash_ids":[1,2]}
{"timestamp":50,"input_length":1100,"output_length":9,"hash_ids":[1,2,3]}
"""
_BAILIAN = b"""\
{"chat_id":1,"parent_chat_id":-1,"timestamp":0.1,"input_length":20,"output_length":3,"hash_ids":[7,8]}
{"chat_id":2,"parent_chat_id":1,"timestamp":4,"input_length":40,"output_length":3,"hash_ids":[]}
"""
_SHAREGPT = """[{"id":"a","conversations":[
{"from":"human","value":"h\u00e9"},{"from":"gpt","value":"you"},{"from":"human","value":"so"}]}]
""".encode()
_BATCH = b"""{"custom_id":"c1","body":{"messages":[{"role":"user","content":"hi"}],"max_tokens":5}}
{"custom_id":"c2","body":{"prompt":"hi","max_completion_tokens":5,"temperature":0.5}}
"""
_TRACES = {
    "azure": _AZURE,
    "burstgpt": _BURSTGPT,
    "mooncake": _MOONCAKE,
    "timed_trace": b'{"timestamp":0.5,"input_length":20,"output_length":9,"hash_ids":[1,2]}\n',
    "bailian": _BAILIAN,
    "sharegpt": _SHAREGPT,
    "vllm_custom": b'{"prompt":"a line","output_tokens":12,"request_id":"r1"}\n{"prompt":"and more"}\n',
    "openai_batch": _BATCH,
    "csv": b'due,prompt,prompt_tokens,output_tokens,id\n0.5,"a, ""b""\nc",7,3,x1\n1e1,d,8,,x2\n',
    "jsonl": b'{"due":0.5,"prompt":"a b","output_tokens":3,"id":"x1"}\n{"due":2,"prompt_tokens":8}\n',
    "text": b"write a line\n\xef\xbb\xbfand another\r\n",
}
_LENGTHS = b'{"0": {"input_tokens": "{100: 0.25, 300: 0.75}", "output_tokens": "{7: 1.0}"}}'
_SERVEGEN = {
    "chunk-1-trace.csv": b"0,2,1,Gamma,1,0.5\n600,0,0,,0,0\n1200,0.5,2,Weibull,0.5,1\n",
    "chunk-1-dataset.json": _LENGTHS,
}
_TRUTH = b"""xid,status,outcome,t_request_read,t_first_token,t_last_token,n_chunks,offsets_ns
r0,200,ok,1000,2000,3000,2,1000;2000
r1,200,ok,5000,,,0,
"""
_STEPS = b"tokens,contexts,seconds\n1,10,0.01\n2,20,0.02\n4,10,0.03\n8,40,0.05\n16,10,0.09\n"
_CHAT = b"""{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":5,"stream":true,
"stream_options":{"include_usage":true},"stop":["x"],"n":2,"seed":7,"deadline_ms":1.5}"""
_BODIES = (
    _CHAT,
    b'{"prompt":"hi","max_tokens":5,"min_tokens":1,"ignore_eos":true,"priority":-3}',
    b'{"prompt":[1,2,3]}',
    b'{"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]}',
)


# --- doors --------------------------------------------------------------------------------------------------


def _scenario(folder: Path) -> None:
    asked = load_scenario(folder / "scenario.yaml").as_asked()
    assert build(asked).as_asked() == asked


def _plan(folder: Path, name: str) -> None:
    kept = plan_file.read(folder / name)
    plan_file.write(kept.plan, kept.scenario, folder / f"again-{name}")
    again = plan_file.read(folder / f"again-{name}")
    assert again.plan.digest() == kept.plan.digest()
    assert not again.is_edited


def _baseline_read(folder: Path) -> None:
    written = baseline.encoded(baseline.read(folder / "it.baseline"))
    assert baseline.encoded(baseline.decoded(written, "again")) == written


def _report(folder: Path) -> None:
    """All that is said of it in words, none of which a terminal obeys."""
    found, shown = reported([folder]), StringIO()
    found.show(Console(file=shown, force_terminal=False, width=120))
    for line in (shown.getvalue() + found.markdown({})).split("\n"):
        assert line.isprintable(), repr(line)
    as_json(found.document)


def _run_read(folder: Path) -> object:
    """The run, and what it means: what can be loaded can be summed up."""
    run = load_run(folder)
    return run, summarize(run)


def _trace(form: str, name: str | None = None) -> Callable[[Path], Trace]:
    def read(folder: Path) -> Trace:
        sessions = form in ("mooncake", "bailian", "sharegpt")
        file = str(folder / name) if name else str(folder)
        return read_trace(
            TraceSource.model_validate({"file": file, "format": form, "sessions": sessions}), seed=1
        )

    return read


def _stream(name: DialectName) -> Callable[[Path], object]:
    """In one read and in reads of 7 bytes: they differ in nothing."""

    def read(folder: Path) -> object:
        body = (folder / "stream").read_bytes()
        whole, parted = Stream(dialect(name), keeps_text=True), Stream(dialect(name), keeps_text=True)
        whole.feed(body, 7)
        for at in range(0, len(body), 7):
            parted.feed(body[at : at + 7], 7)
        seen = []
        for stream in (whole, parted):
            stream.end(7)
            assert len(stream.gaps_us) == max(0, stream.events - 1)
            seen.append((stream.events, stream.error, stream.finish_reason, stream.texts, stream.usage))
        assert seen[0] == seen[1]
        return None

    return read


def _asked(folder: Path) -> None:
    body = (folder / "body").read_bytes()
    for read in (asked.read_chat, asked.read_completion, asked.read_tokenize):
        with suppress(asked.Refusal):
            read(body)


@cache
def doors() -> dict[str, Door]:
    """By name."""
    run, plans = _run(), _plans()
    rest = tuple(run.items())
    taken = as_json(calibrate.concluded([rung(1000.0), rung(2000.0, limit="client")], 0.1))
    result = (TESTS / "imports" / "completions.json").read_bytes()
    found = {
        "scenario": Door(
            "scenario.yaml",
            tuple(path.read_bytes() for path in sorted(shipped().glob("*.yaml"))),
            _scenario,
            words=(b"load:", b"- ", b"\n  ", b"*a", b"&a ", b"!!python/object:os.system ", b"<<: *a", b"'"),
        ),
        "records": Door("records.jsonl", (run["records.jsonl"],), _run_read, rest=rest),
        "header": Door("run.json", (run["run.json"],), _run_read, rest=rest),
        "server_log": Door("server.jsonl", (_looks(),), server_log.read, refusals=()),
        "report": Door("records.jsonl", (run["records.jsonl"],), _report, rest=rest),
        "report header": Door("run.json", (run["run.json"],), _report, rest=rest),
        "vllm": Door(
            "result.json", (result,), lambda folder: bring_in(folder / "result.json", folder / "run")
        ),
        "baseline": Door("it.baseline", (_baseline(run),), _baseline_read),
        "metrics": Door(
            "metrics",
            _expositions(),
            lambda folder: metric_names.read((folder / "metrics").read_text(errors="replace")),
            refusals=(metric_names.NotMetricsError,),
        ),
        "calibration": Door("c.json", (taken,), lambda folder: calibrate.load(folder / "c.json")),
        "capacity": Door("capacity.json", (_capacity(),), capacity.load),
        "truth": Door("log.csv", (_TRUTH,), lambda folder: read_truth(folder / "log.csv")),
        "steps": Door("steps.csv", (_STEPS,), lambda folder: fit.read(folder / "steps.csv")),
        "column": Door(
            "lengths.csv",
            (b"id,tokens\na,7\nb,12.0\nc,\n",),
            lambda folder: column.read(str(folder / "lengths.csv"), "tokens"),
        ),
        "request": Door("body", _BODIES, _asked),
    }
    for ending, content in plans.items():
        name = f"plan{ending}"
        found[f"plan{ending}"] = Door(
            name,
            (content,),
            partial(_plan, name=name),
        )
    for form, content in _TRACES.items():
        found[f"trace {form}"] = Door("trace", (content,), _trace(form, "trace"))
    for name, content in _SERVEGEN.items():
        found[f"trace servegen {name}"] = Door(
            name, (content,), _trace("servegen"), rest=tuple(_SERVEGEN.items())
        )
    for spoken in DIALECTS:
        found[f"stream {spoken}"] = Door("stream", _streams(spoken), _stream(spoken))
    return found


def _expositions() -> tuple[bytes, ...]:
    files = sorted((TESTS / "client" / "expositions").glob("*[!s].txt"))
    iterations = b'[{"numActiveRequests":1,"kvCacheStats":{"maxNumBlocks":4,"usedNumBlocks":1}}]'
    return (*(file.read_bytes()[:6000] for file in files), iterations)


def _streams(spoken: DialectName) -> tuple[bytes, ...]:
    """What real servers said in it."""
    folder = TESTS / "client" / "dialects"
    files = sorted([*folder.glob("*.sse"), *folder.glob("*.ndjson")])
    own = [file for file in files if spoken.replace(".", "-") in file.name]
    return tuple(file.read_bytes()[:4000] for file in own or files)


def _baseline(run: dict[str, bytes]) -> bytes:
    with tempfile.TemporaryDirectory() as at:
        for name, content in run.items():
            Path(at, name).write_bytes(content)
        return baseline.encoded(baseline.of_run(Path(at)).sample)
