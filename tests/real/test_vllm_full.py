"""Against vLLM's OpenAI server with two slots, a queue that is not endless, and classes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from loadgen.records import Outcome
from tests.real.fired import fire, scenario
from tests.real.installed import missing
from tests.real.server import Server
from tests.real.vllm import vllm

pytestmark = [
    pytest.mark.real,
    pytest.mark.real_vllm,
    pytest.mark.skipif(missing("vllm") is not None, reason=missing("vllm") or ""),
]
PROMPT = "once upon a time"
REFUSED = "vllm:admission_rejections_total"
MOST = 12  # running and waiting


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    flags = ("--max-num-seqs", "2", "--max-num-queued-reqs", str(MOST), "--scheduling-policy", "priority")
    with vllm(tmp_path_factory.mktemp("vllm"), *flags) as server:
        yield server


def test_what_a_full_server_refuses_is_counted_as_it_counts(server: Server, tmp_path: Path) -> None:
    """Sixty at once: each is answered or refused, and as many are refused as it says. It refuses with 503, or
    in the first event of a 200, where it had begun to answer before its engine was asked.
    """
    before = server.metrics(REFUSED)
    rows = scenario(tmp_path, [{"prompt": PROMPT, "output": 64}] * 60)
    fired = fire(server, tmp_path, rows)
    outcomes = fired.outcomes()
    assert set(outcomes) == {Outcome.OK, Outcome.REJECTED}
    assert outcomes[Outcome.REJECTED] == server.metrics(REFUSED) - before
    assert outcomes[Outcome.OK] >= MOST
    refused = [record for record in fired.records if record.outcome is Outcome.REJECTED]
    assert {record.status for record in refused} <= {200, 503}
    assert all("busy" in (record.error or "") for record in refused)
    assert not any(record.retry_after_s or record.output_tokens for record in refused)


def test_a_class_of_more_urgent_ones_overtakes(server: Server, tmp_path: Path) -> None:
    """Eleven at once for two slots, the three urgent ones last: these begin before four of the eight, at
    least, though two of them run already and two more may be let in meanwhile.
    """
    rows = [{"prompt": PROMPT, "output": 400, "priority": 10}] * 8
    rows += [{"prompt": PROMPT, "output": 8, "priority": 0}] * 3
    fired = fire(server, tmp_path, scenario(tmp_path, rows))
    assert fired.outcomes() == {Outcome.OK: 11}
    begun_s = [record.first_token_s for record in fired.records]
    assert max(begun_s[8:]) < sorted(begun_s[:8])[4]
