"""What users of vLLM's serving benchmark type, and what does it here."""

from __future__ import annotations

_EVERY_RUN = "not needed: every run is kept in a folder (--out)"
_EVERY_METRIC = "not needed: every metric is given, with its percentiles"
_BODY = '--extra-body, a JSON object, such as \'{"temperature": 0, "top_p": 0.9}\''
_OUTPUT = "--output-len: every answer of so many tokens, instead of the file's"
_LATER = "not there yet"

_REMEDIES = {
    "--backend": "--endpoint /v1/chat/completions (default; for openai-chat) or /v1/completions",
    **dict.fromkeys(("--host", "--port"), "--base-url http://HOST:PORT"),
    "--served-model-name": "--model",
    "--num-warmups": "--warmup N",
    "--ready-check-timeout-sec": "--wait-ready 60s",
    "--disable-tqdm": "--quiet",
    **dict.fromkeys(("--sharegpt-output-len", "--custom-output-len", "--hf-output-len"), _OUTPUT),
    "--random-prefix-len": "a scenario file: prompts: {prefix: {kind: shared, tokens: 64}}",
    "--disable-shuffle": "a scenario file: trace: {file: F, format: sharegpt, order: file}",
    "--no-oversample": "not needed: a file's rows are never sent twice unless a scenario asks for it",
    "--skip-chat-template": "--endpoint /v1/completions",
    **dict.fromkeys(("--save-result", "--save-detailed", "--append-result"), _EVERY_RUN),
    **dict.fromkeys(("--result-dir", "--result-filename"), "--out FOLDER; vllm.json in it has vLLM's keys"),
    **dict.fromkeys(("--percentile-metrics", "--metric-percentiles"), _EVERY_METRIC),
    **dict.fromkeys(("--label", "--metadata", "--request-id-prefix"), "--name"),
    **dict.fromkeys(
        ("--tokenizer", "--tokenizer-mode"),
        "a scenario file: prompts: {kind: tokenizer, tokenizer: tokenizer.json}",
    ),
    **dict.fromkeys(
        ("--skip-tokenizer-init", "--trust-remote-code"),
        "not needed: no tokenizer is loaded unless a scenario names one",
    ),
    **dict.fromkeys(("--temperature", "--top-p", "--top-k", "--min-p", "--logprobs"), _BODY),
    **dict.fromkeys(("--frequency-penalty", "--presence-penalty", "--repetition-penalty"), _BODY),
    **dict.fromkeys(("--use-beam-search", "--chat-template-kwargs"), _BODY),
    **dict.fromkeys(("--lora-modules", "--lora-assignment"), "a scenario file: classes, each with its model"),
    "--profile": _LATER,
    **dict.fromkeys(("--plot-timeline", "--timeline-itl-thresholds", "--plot-dataset-stats"), _LATER),
}


def refuse_foreign(argv: list[str]) -> None:
    """Raises ScenarioError that names every flag which only vLLM's benchmark has, and what to do instead."""
    if argv[:1] not in (["run"], ["plan"]):
        return
    flags = dict.fromkeys(word.split("=")[0] for word in argv if word.startswith("--"))
    found = [f"\n  {flag}: {_REMEDIES[flag]}" for flag in flags if flag in _REMEDIES]
    if found:
        from loadgen.scenario import ScenarioError

        raise ScenarioError(
            "vLLM's benchmark has these flags; loadgen has not. Leave them out:" + "".join(found)
        )
