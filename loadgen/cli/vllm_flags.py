"""What users of vLLM's serving benchmark type, and what does it here."""

from __future__ import annotations

_EVERY_RUN = "not needed: every run is kept in a folder (--out)"
_EVERY_METRIC = "not needed: every metric is given, with its percentiles"
_BODY = '--extra-body, a JSON object, such as \'{"temperature": 0, "top_p": 0.9}\''
_OUTPUT = "--output-len: every answer of so many tokens, instead of the file's"
_LATER = "not there yet"
_TEXT_ALONE = "not there: requests hold text or token ids alone"
_OTHER_FILE = "--dataset-name custom --dataset-path FILE, a line a request with its prompt and output_tokens"
_PREFIX = "a scenario file: prompts: {prefix: {kind: groups, groups: 10, tokens: 256}}"
_COLUMNS = "a scenario file: trace: {file: F, format: jsonl, columns: {due: TIME, prompt_tokens: LENGTH}}"

# Of each remedy, the flags that it is for.
_FLAGS = {
    "--warmup N": ("--num-warmups",),
    "--wait-ready 60s": ("--ready-check-timeout-sec",),
    "--quiet": ("--disable-tqdm",),
    "--name": ("--label", "--metadata", "--request-id-prefix"),
    "--endpoint /v1/completions": ("--skip-chat-template",),
    "--out FOLDER; vllm.json in it has vLLM's keys": ("--result-dir", "--result-filename"),
    "not needed: a file's rows are never sent twice unless a scenario asks for it": ("--no-oversample",),
    "not needed: no tokenizer is loaded unless a scenario names one": (
        *("--skip-tokenizer-init", "--trust-remote-code"),
    ),
    "not needed: --dataset-name timed_trace is timed by its file, unless --request-rate is given": (
        *("--self-timed", "--no-self-timed"),
    ),
    "a scenario file: classes, of which a rare one asks for little, with figures of its own": (
        "--probe-request-rate",
    ),
    "a scenario file: trace: {file: F, format: sharegpt, order: file}": ("--disable-shuffle",),
    "a scenario file: prompts: {prefix: {kind: shared, tokens: 64}}": ("--random-prefix-len",),
    "a scenario file: prompts: {kind: tokenizer, tokenizer: tokenizer.json}": (
        *("--tokenizer", "--tokenizer-mode"),
    ),
    _EVERY_RUN: ("--save-result", "--save-detailed", "--append-result"),
    _EVERY_METRIC: ("--percentile-metrics", "--metric-percentiles"),
    _OUTPUT: ("--sharegpt-output-len", "--custom-output-len", "--hf-output-len"),
    _BODY: (
        *("--temperature", "--top-p", "--top-k", "--min-p", "--logprobs", "--frequency-penalty"),
        *("--presence-penalty", "--repetition-penalty", "--use-beam-search", "--chat-template-kwargs"),
    ),
    _LATER: ("--profile", "--plot-timeline", "--timeline-itl-thresholds", "--plot-dataset-stats"),
    _COLUMNS: (
        *("--timed-trace-chunk-hash-size", "--timed-trace-label-hash-ids", "--timed-trace-sec-multiplier"),
        *("--timed-trace-label-timestamp", "--timed-trace-label-input-length"),
        "--timed-trace-label-output-length",
    ),
    _PREFIX: (
        *("--prefix-repetition-num-prefixes", "--prefix-repetition-prefix-len"),
        *("--prefix-repetition-suffix-len", "--prefix-repetition-output-len"),
    ),
    _OTHER_FILE: (
        *("--hf-name", "--hf-split", "--hf-subset", "--no-stream", "--bfcl-categories"),
        *("--blazedit-min-distance", "--blazedit-max-distance", "--spec-bench-category"),
        *("--spec-bench-output-len", "--speed-bench-category", "--speed-bench-dataset-subset"),
        "--speed-bench-output-len",
    ),
    _TEXT_ALONE: (
        *("--asr-min-audio-len-sec", "--asr-max-audio-len-sec", "--custom-ensure-client-side-data"),
        *("--enable-multimodal-chat", "--no-reranker", "--random-batch-size"),
        *("--random-mm-base-items-per-request", "--random-mm-bucket-config"),
        *("--random-mm-limit-mm-per-prompt", "--random-mm-num-mm-items-range-ratio"),
    ),
}
REMEDIES = {flag: remedy for remedy, flags in _FLAGS.items() for flag in flags}
TRANSLATED = ("--host", "--port", "--served-model-name")
_FIRING = ("run", "capacity", "check")


def refuse_foreign(argv: list[str]) -> None:
    """Raises ScenarioError that names every flag which only vLLM's benchmark has, and what to do instead."""
    if argv[:1] not in (["run"], ["plan"]):
        return
    flags = dict.fromkeys(word.split("=")[0] for word in argv if word.startswith("--"))
    found = [f"\n  {flag}: {REMEDIES[flag]}" for flag in flags if flag in REMEDIES]
    if found:
        from loadgen.scenario import ScenarioError

        raise ScenarioError(
            "vLLM's benchmark has these flags; loadgen has not. Leave them out:" + "".join(found)
        )


def translated(argv: list[str]) -> list[str]:
    """`--host H --port P` as `--base-url http://H:P`, which wins where it is given too; and the name that a
    model is served under as the model. Other words, and other commands, as they are.
    """
    if argv[:1] not in ([name] for name in _FIRING):
        return argv
    kept, given = _parted(argv)
    has = {word.split("=")[0] for word in kept}
    if {"--host", "--port"} & given.keys() and not {"--base-url", "--url"} & has:
        host, port = given.get("--host", "127.0.0.1"), given.get("--port", "8000")
        kept += ["--base-url", f"http://{f'[{host}]' if ':' in host else host}:{port}"]
    if name := given.get("--served-model-name"):
        kept += ["--model", name]  # of two the last one counts
    return kept


def _parted(argv: list[str]) -> tuple[list[str], dict[str, str]]:
    """The words without the flags of TRANSLATED, and their values."""
    kept, given = list[str](), dict[str, str]()
    words = iter(argv)
    for word in words:
        flag, is_joined, value = word.partition("=")
        if flag in TRANSLATED:
            given[flag] = value if is_joined else next(words, "")
        else:
            kept.append(word)
    return kept, given
