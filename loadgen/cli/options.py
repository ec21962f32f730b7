"""The flags that several commands share, declared once: their names, types and help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"must be a whole number, not {text[:60]!r}") from None


# --- the server -----------------------------------------------------------------------------------

BaseUrl = Annotated[
    list[str] | None,
    typer.Option(
        "--base-url",
        "--url",
        help="The server; repeat it for several that share the load. Without one the bundled engine answers.",
    ),
]
Balance = Annotated[
    str | None,
    typer.Option(help="Of several servers: round_robin (default), random or least_in_flight."),
]
Model = Annotated[str | None, typer.Option(help="Model name; picked when the server has only one.")]
Backend = Annotated[
    str | None,
    typer.Option(
        help="Which API, as in vLLM's benchmark: openai-chat (default), openai ...; loadgen schema has all."
    ),
]
Endpoint = Annotated[
    str | None, typer.Option(help="Its path, such as /v1/chat/completions; it tells which API, too.")
]
ApiKeyEnv = Annotated[
    str | None,
    typer.Option(
        help="Name of the variable that holds the API key. Default OPENAI_API_KEY, if set; none: no key."
    ),
]
Metrics = Annotated[
    str | None,
    typer.Option(help="URL of the server's Prometheus metrics; auto (default): its /metrics; none."),
]

Header = Annotated[list[str] | None, typer.Option(help="NAME=VALUE, sent with every request; repeatable.")]
ExtraBody = Annotated[str | None, typer.Option(help="JSON object merged into every request body.")]
Connections = Annotated[str | None, typer.Option(help="keep-alive (default) or fresh.")]
CaFile = Annotated[str | None, typer.Option(help="PEM file of the authority that signed the server.")]
Insecure = Annotated[bool | None, typer.Option("--insecure", help="Do not verify the certificate.")]
CertFile = Annotated[
    str | None, typer.Option(help="PEM file of our own certificate, where the server wants one.")
]
KeyFile = Annotated[str | None, typer.Option(help="PEM file of its key, where --cert-file does not hold it.")]
UnixSocket = Annotated[
    str | None, typer.Option(help="Connect to this socket rather than to the base URL's host.")
]
Proxy = Annotated[
    str | None,
    typer.Option(help="http://HOST:PORT to go through; none overrides HTTP_PROXY and HTTPS_PROXY."),
]
TimeoutConnect = Annotated[str | None, typer.Option(help="Longest wait for a connection. Default 10s.")]
WaitReady = Annotated[
    str | None, typer.Option(help="Wait at most so long for the server to be ready, such as 10m.")
]

LoraModules = Annotated[
    list[str] | None,
    typer.Option(help="Names of LoRAs on the server, each for its share of the requests; several."),
]
LoraAssignment = Annotated[
    str | None, typer.Option(help="random (default): each request draws one, all as likely.")
]

# --- the load -------------------------------------------------------------------------------------

Seed = Annotated[
    int | None,
    typer.Option(
        "--seed", parser=_whole, metavar="INTEGER", help="Same seed, same plan. Default 0, or the file's."
    ),
]
RequestRate = Annotated[
    str | None,
    typer.Option("--request-rate", "--rate", help="Requests per second, or 90/min; inf is a burst."),
]
Arrival = Annotated[
    str | None, typer.Option("--arrival", help="poisson (default), constant, gamma or burst.")
]
Burstiness = Annotated[
    float | None, typer.Option("--burstiness", help="Shape of gamma gaps; 1 is Poisson, less is burstier.")
]
Cv = Annotated[float | None, typer.Option("--cv", help="Of gamma gaps, instead: standard deviation / mean.")]
RampUpStrategy = Annotated[
    str | None,
    typer.Option(
        help="linear: Poisson whose rate goes straight from start to end, in time, until the load ends."
    ),
]
RampUpStartRps = Annotated[float | None, typer.Option(help="Requests per second at first.")]
RampUpEndRps = Annotated[float | None, typer.Option(help="Requests per second at last.")]
NumPrompts = Annotated[
    int | None,
    typer.Option(
        "--num-prompts",
        "--num-requests",
        parser=_whole,
        metavar="INTEGER",
        help="Number of measured requests.",
    ),
]
Duration = Annotated[str | None, typer.Option("--duration", help="Length of the measured part, such as 60s.")]
Warmup = Annotated[
    str | None,
    typer.Option(
        "--warmup",
        help="Load before it: a duration (10s) or a count (20); auto: none, but leave out what is unsettled.",
    ),
]
InputLen = Annotated[
    int | None,
    typer.Option(
        "--input-len",
        "--isl",
        "--random-input-len",
        parser=_whole,
        metavar="INTEGER",
        help="Tokens of every prompt. Default 256.",
    ),
]
OutputLen = Annotated[
    int | None,
    typer.Option(
        "--output-len",
        "--osl",
        "--random-output-len",
        parser=_whole,
        metavar="INTEGER",
        help="Tokens of every answer. Default 128.",
    ),
]
RangeRatio = Annotated[
    float | None,
    typer.Option("--random-range-ratio", help="vLLM's: both lengths from 1 - R to 1 + R times as many."),
]
DatasetName = Annotated[
    str | None,
    typer.Option(
        help="random (default), or what --dataset-path is: sharegpt, custom, burstgpt, timed_trace."
    ),
]
DatasetPath = Annotated[
    str | None, typer.Option(help="A file of prompts, or of requests that happened: load.trace.")
]
IgnoreEos = Annotated[
    bool | None,
    typer.Option("--ignore-eos/--no-ignore-eos", help="Ask for exactly the output length. Default on."),
]
MaxConcurrency = Annotated[
    int | None,
    typer.Option(
        "--max-concurrency",
        "--concurrency",
        parser=_whole,
        metavar="INTEGER",
        help="Delay requests above it: partly closed loop.",
    ),
]
MaxInFlight = Annotated[
    int | None,
    typer.Option(
        "--max-in-flight", parser=_whole, metavar="INTEGER", help="Record requests above it as unsent."
    ),
]
NoTail = Annotated[
    bool | None, typer.Option("--no-tail", help="Exactly the planned rows; no load after them.")
]

PlanFile = Annotated[
    str | None,
    typer.Option(
        "--plan", help="Replay the plan in a file that loadgen plan --export wrote: its load as it is."
    ),
]

# --- what must hold -------------------------------------------------------------------------------

Slo = Annotated[
    list[str] | None,
    typer.Option(
        "--slo",
        help="What must hold, such as 'p99(ttft) <= 500ms', or a named set (see loadgen slos), "
        "beside what the file says; repeatable.",
    ),
]
Goodput = Annotated[
    list[str] | None,
    typer.Option(
        "--goodput", help="Limits of a good request, in ms or with a unit, such as ttft:500 tpot:50 e2el:10s."
    ),
]
Policy = Annotated[
    str | None,
    typer.Option(
        "--policy", help="interval (default): an SLO is judged by its bounds; point: by the figure alone."
    ),
]

# --- how ------------------------------------------------------------------------------------------

Warm = Annotated[
    int | None,
    typer.Option(
        "--warm", parser=_whole, metavar="INTEGER", help="Connections to open before the start. Default none."
    ),
]
Clock = Annotated[
    str | None,
    typer.Option("--clock", help="Whose instant a read has: kernel, user, or auto (default)."),
]
Processes = Annotated[
    str | None, typer.Option("--processes", help="That share the plan: a number, or auto (default).")
]
Ray = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="auto|ADDRESS",
        help="Send from the nodes of this Ray cluster; auto: this machine's, or one that is started here.",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers", parser=_whole, metavar="INTEGER", help="Of --ray, in all. Default one a node or more."
    ),
]
Shard = Annotated[
    str | None,
    typer.Option(
        "--shard",
        metavar="K/N",
        help="Send only the K-th of N parts; N hosts send the rest. Then: loadgen merge.",
    ),
]
StartAt = Annotated[
    str | None,
    typer.Option(
        "--start-at",
        metavar="TIME",
        help="Start then, by this host's clock: 2026-12-01T10:00:00Z, or Unix seconds.",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FOLDER",
        help="An empty or new folder. Default a new one under runs/.",
    ),
]
Repeats = Annotated[
    int | None,
    typer.Option(
        "--repeats",
        parser=_whole,
        metavar="INTEGER",
        help="Run the plan so often, one run after another. Default 1, or the file's.",
    ),
]
Virtual = Annotated[bool, typer.Option("--virtual", help="Simulate on the bundled engine; nothing is sent.")]
Trace = Annotated[
    bool, typer.Option("--trace", help="With --virtual: show and keep what the engine did, step by step.")
]
NoPreflight = Annotated[
    bool, typer.Option("--no-preflight", help="Skip the look at the server before the load.")
]
Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Draw it: a page with pictures, that needs no network."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the figures as JSON, alone on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no remarks.")]
