"""A cluster that is started for a run alone."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from tempfile import mkdtemp

import pytest

from loadgen.run_folder import load
from tests.bench.server import Server
from tests.cluster.test_ray import LOAD, ROWS, VALID, pytestmark, until
from tests.end_to_end.process import loadgen

__all__ = ["pytestmark"]


@pytest.mark.slow
def test_auto_starts_a_cluster_here_and_takes_it_down(tmp_path: Path) -> None:
    """Nothing of it stays."""
    if any(names(path, "gcs_server") for path in Path("/proc").glob("[0-9]*/cmdline")):
        pytest.skip("a cluster runs on this machine: auto would take it")
    ray = Path(mkdtemp(dir="/tmp"))  # short: it holds sockets
    try:
        with Server().serving(tmp_path, gap_ms=5.0) as served:
            words = ("run", *LOAD.split(), "--base-url", served.url, "--ray", "auto", "--out", "run")
            done = loadgen(*words, cwd=tmp_path, RAY_TMPDIR=str(ray), TMPDIR=str(ray), RAY_ADDRESS="")
        assert done.code in VALID
        assert done.err == ""
        assert len(load(tmp_path / "run").records) == ROWS
        until(lambda: not [path for path in Path("/proc").glob("[0-9]*/cmdline") if names(path, str(ray))])
        assert [path.name for path in ray.iterdir()] == ["ray"], "Ray keeps its logs"
    finally:
        shutil.rmtree(ray)


def names(cmdline: Path, text: str) -> bool:
    with contextlib.suppress(OSError):
        return text.encode() in cmdline.read_bytes()
    return False
