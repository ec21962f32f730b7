"""Folders that cannot be made, disks that fill up, a folder that goes away: one line, and what is kept."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from loadgen.run_folder import load
from tests.end_to_end.process import Ended, loadgen, running, serving

SHORT = ("run", "--rate", "200", "--num-prompts", "30", "--output-len", "4", "--no-tail", "--quiet")
SEARCH = ("capacity", "quickstart", "--virtual", "--slo", "p50(ttft) <= 1s", "--quiet")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        sys.platform != "linux" or os.geteuid() != 0, reason="mounts file systems: needs root"
    ),
]


@contextmanager
def mounted(at: Path, options: str) -> Iterator[Path]:
    """A file system in memory."""
    at.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", at], check=True)
    try:
        yield at
    finally:
        subprocess.run(["umount", at], check=True)


@pytest.mark.parametrize("size_kb", [4, 8, 36, 52, 64])
@pytest.mark.parametrize("how", ["virtual", "one process", "two processes"])
def test_whatever_file_the_disk_is_too_full_for_what_was_measured_is_kept(
    tmp_path: Path, how: str, size_kb: int
) -> None:
    """From the header to the last file beside it: one line that names the file, exit 4, and a report reads
    what is there; where even the header found no room, it says so.
    """
    with ExitStack() as stack:
        disk = stack.enter_context(mounted(tmp_path / "disk", f"size={size_kb}k"))
        where = ["--virtual"]
        if how != "virtual":
            url, _ = stack.enter_context(serving("--step", "1ms", cwd=tmp_path))
            where = ["--base-url", url, "--no-preflight", "--model", "mini-engine"]
            where += ["--processes", "2" if how == "two processes" else "1"]
        ended = loadgen(*SHORT, *where, "--out", disk / "r", cwd=tmp_path)
        if ended.code == 0:
            assert ended.err == ""
            assert (disk / "r" / "vllm.json").is_file()
            return
        assert is_one_line(ended, 4, f"cannot write {disk / 'r'}/", "No space left on device")
        report = loadgen("report", disk / "r", cwd=tmp_path)
        if not (disk / "r" / "run.json").is_file():
            assert is_one_line(report, 2, "it has no run.json")
            return
        assert f"what was recorded is kept: loadgen report {disk / 'r'}" in ended.err
        run = load(disk / "r")
        assert report.code == (0 if run.header.complete else 4)
        assert len(run.records) == (run.header.rows_due if run.header.complete else len(run.records)) <= 30


def is_one_line(ended: Ended, code: int, *says: str) -> bool:
    assert (ended.code, ended.err.count("\n")) == (code, 1), ended.err
    assert ended.err.startswith("loadgen: ")
    assert all(text in ended.err for text in says), ended.err
    return True


@pytest.mark.parametrize("command", [(*SHORT, "--virtual"), (*SHORT, "--virtual", "--repeats", "2"), SEARCH])
def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path, command: tuple[str, ...]) -> None:
    """On a disk that is read only, and below a file."""
    (tmp_path / "file").write_text("mine")
    with mounted(tmp_path / "disk", "ro") as disk:
        read_only = loadgen(*command, "--out", disk / "r", cwd=tmp_path)
        below = loadgen(*command, "--out", "file/r", cwd=tmp_path)
        itself = loadgen(*command, "--out", "file", cwd=tmp_path)
    assert is_one_line(read_only, 2, "Read-only file system; choose another with --out")
    assert is_one_line(below, 2, "Not a directory; choose another with --out")
    assert is_one_line(itself, 2, "Not a directory; choose another with --out")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_folder_that_is_removed_under_a_run_is_one_line(tmp_path: Path, processes: str) -> None:
    """The run goes on to its end; what it was to write then has no place."""
    long = ("run", "--rate", "50", "--num-prompts", "100", "--output-len", "4", "--no-tail", "--quiet")
    with (
        serving("--step", "1ms", cwd=tmp_path) as (url, _),
        running(*long, "--base-url", url, "--processes", processes, "--out", "r", cwd=tmp_path) as process,
    ):
        records = tmp_path / "r" / "records.jsonl"
        until_s = time.monotonic() + 20
        while not (records.is_file() and records.stat().st_size):
            assert time.monotonic() < until_s
            time.sleep(0.02)
        shutil.rmtree(tmp_path / "r")
        _, err = process.communicate(timeout=30)
    assert is_one_line(Ended(process.returncode, "", err), 4, "cannot write r/", "No such file or directory")
    assert not (tmp_path / "r").exists()


def test_of_runs_that_start_at_one_instant_into_one_folder_one_has_it(tmp_path: Path) -> None:
    """The others are refused before they send anything; its records are its own."""
    with serving("--step", "1ms", cwd=tmp_path) as (url, _), ExitStack() as stack:
        runs = [
            stack.enter_context(running(*SHORT, "--base-url", url, "--out", "r", cwd=tmp_path))
            for _ in range(3)
        ]
        ended = [(run.communicate(timeout=40)[1], run.returncode) for run in runs]
    refused = [(err, code) for err, code in ended if code == 2]
    assert len(refused) == 2, ended
    assert {err for err, _ in refused} == {
        "loadgen: r is not empty: choose another folder with --out, or remove it\n"
    }
    run = load(tmp_path / "r")
    assert len(run.records) == run.header.rows_due == 30
    assert {name.rpartition("-")[0] for name in run.records.request_id} == {run.header.run_id}
