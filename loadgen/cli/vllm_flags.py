"""What users of vLLM's and SGLang's serving benchmarks type, and what does it here."""

from __future__ import annotations

from itertools import pairwise

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
    "--name": ("--label", "--metadata", "--request-id-prefix", "--tag"),
    "--endpoint /v1/completions": ("--skip-chat-template",),
    "--request-rate, which --dataset-name timed_trace then keeps to": ("--no-self-timed",),
    "--dataset-name timed_trace, which is timed by its file": ("--use-trace-timestamps",),
    "--backend sglang-chat: the server applies it": ("--apply-chat-template",),
    "--lora-modules NAME NAME": ("--lora-name",),
    "--lora-assignment random": ("--lora-request-distribution", "--lora-zipf-alpha"),
    "POST /flush_cache to the server before the run": ("--flush-cache",),
    "not there: every answer is a stream": ("--disable-stream",),
    "a scenario file: prompts: {kind: token_ids}": ("--tokenize-prompt",),
    "a scenario file: classes, of which a rare one asks for little, with figures of its own": (
        "--probe-request-rate",
    ),
    "a scenario file: trace: {file: F, format: sharegpt, order: file}": ("--disable-shuffle",),
    "a scenario file: prompts: {prefix: {kind: shared, tokens: 64}}": ("--random-prefix-len",),
    "a scenario file: prompts: {kind: tokenizer, tokenizer: tokenizer.json}": (
        *("--tokenizer", "--tokenizer-mode"),
    ),
    _OUTPUT: ("--sharegpt-output-len", "--custom-output-len", "--hf-output-len"),
    _BODY: (
        *("--temperature", "--top-p", "--top-k", "--min-p", "--logprobs", "--frequency-penalty"),
        *("--presence-penalty", "--repetition-penalty", "--use-beam-search", "--chat-template-kwargs"),
        *("--return-logprob", "--top-logprobs-num"),
    ),
    _LATER: (
        "--profile",
        "--plot-timeline",
        "--timeline-itl-thresholds",
        "--plot-dataset-stats",
        "--pd-separated",
    ),
    _COLUMNS: (
        *("--timed-trace-chunk-hash-size", "--timed-trace-label-hash-ids", "--timed-trace-sec-multiplier"),
        *("--timed-trace-label-timestamp", "--timed-trace-label-input-length"),
        "--timed-trace-label-output-length",
    ),
    _PREFIX: (
        *("--prefix-repetition-num-prefixes", "--prefix-repetition-prefix-len"),
        *("--prefix-repetition-suffix-len", "--prefix-repetition-output-len"),
        *("--gsp-num-groups", "--gsp-prompts-per-group", "--gsp-system-prompt-len", "--gsp-question-len"),
        "--gsp-output-len",
    ),
    _OTHER_FILE: (
        *("--sharegpt-context-len", "--prompt-suffix"),
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
        *("--image-count", "--image-resolution"),
    ),
}
REMEDIES = {flag: remedy for remedy, flags in _FLAGS.items() for flag in flags}

# What changes nothing here: why, and its flags; those that end with = have a value.
_IGNORED = {
    "every run is kept in a folder (--out), in vLLM's keys too": (
        *("--save-result", "--save-detailed", "--append-result", "--result-dir=", "--result-filename="),
        *("--output-file=", "--output-details"),
    ),
    "every metric is given, with its percentiles": ("--percentile-metrics=", "--metric-percentiles="),
    "progress is shown on a terminal alone": ("--disable-tqdm",),
    "a file's rows are sent twice only where a scenario asks for it": ("--no-oversample",),
    "a tokenizer is read only where a scenario names one": ("--skip-tokenizer-init", "--trust-remote-code"),
    "--dataset-name timed_trace is timed by its file": ("--self-timed",),
}
IGNORED = {flag.rstrip("="): why for why, flags in _IGNORED.items() for flag in flags}
_VALUED = {flag.rstrip("=") for flags in _IGNORED.values() for flag in flags if flag.endswith("=")}
RENAMED = {
    "--random-input": "--random-input-len",
    "--random-output": "--random-output-len",
    "--warmup-requests": "--warmup",
    "--extra-request-body": "--extra-body",
    "--disable-ignore-eos": "--no-ignore-eos",
}
TRANSLATED = ("--host", "--port", "--served-model-name")
_COMMANDS = ("run", "plan", "capacity", "check")
_SGLANG = (
    "--backend sglang is /v1/completions, as in vLLM's benchmark; "
    "SGLang's own tool calls its /generate so: that is --backend sglang-native"
)


def refuse_foreign(argv: list[str]) -> None:
    """Raises ScenarioError that names every flag which only those benchmarks have and whose meaning would be
    lost, and what to do instead.
    """
    if not _is_ours(argv):
        return
    flags = dict.fromkeys(word.split("=")[0] for word in argv if word.startswith("--"))
    found = [f"\n  {flag}: {REMEDIES[flag]}" for flag in flags if flag in REMEDIES]
    if found:
        from loadgen.scenario import ScenarioError

        raise ScenarioError(
            "other benchmarks have these flags; loadgen has not. Leave them out:" + "".join(found)
        )


def translated(argv: list[str]) -> tuple[list[str], list[str]]:
    """The words as they are spelt here, and what to say of them.

    `--host H --port P` is `--base-url http://H:P`, which wins where it is given too; the name that a model is
    served under is the model. Other words, and other commands, stay as they are.
    """
    if not _is_ours(argv):
        return argv, []
    kept, given = _parted(argv)
    has = {word.split("=")[0] for word in kept}
    if {"--host", "--port"} & given.keys() and not {"--base-url", "--url"} & has:
        host, port = given.get("--host", "127.0.0.1"), given.get("--port", "8000")
        kept += ["--base-url", f"http://{f'[{host}]' if ':' in host else host}:{port}"]
    if name := given.get("--served-model-name"):
        kept += ["--model", name]  # of two the last one counts
    said: dict[str, list[str]] = {}
    for flag in given.keys() & IGNORED.keys():
        said.setdefault(IGNORED[flag], []).append(flag)
    notes = [f"{', '.join(sorted(flags))}: not needed: {why}" for why, flags in sorted(said.items())]
    is_sglang = "--backend=sglang" in kept or ("--backend", "sglang") in pairwise(kept)
    return kept, [*notes, _SGLANG] if is_sglang else notes


def _is_ours(argv: list[str]) -> bool:
    return argv[:1] in ([name] for name in _COMMANDS)


def _parted(argv: list[str]) -> tuple[list[str], dict[str, str]]:
    """The words without the flags of TRANSLATED and IGNORED, and the values of these."""
    kept, given = list[str](), dict[str, str]()
    words = iter(argv)
    for word in words:
        flag, is_joined, value = word.partition("=")
        if flag in TRANSLATED or flag in _VALUED:
            given[flag] = value if is_joined else next(words, "")
        elif flag in IGNORED:
            given[flag] = ""
        elif word == "--dataset-name=random-ids" or (*kept[-1:], word) == ("--dataset-name", "random-ids"):
            kept.append(word.replace("random-ids", "random"))
        else:
            kept.append(RENAMED.get(flag, flag) + is_joined + value)
    return kept, given
