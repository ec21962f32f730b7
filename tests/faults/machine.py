"""A machine that fails its client: out of descriptors, ports or memory, stopped, or its clock set."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.fakes import HANG, Reply, ScriptedServer
from tests.faults.fault import Fault, Scene
from tests.faults.network import CAN as CAN_WIRE
from tests.faults.network import LASTING, PATIENT, across

CAN = sys.platform == "linux"
CAN_SET = CAN and shutil.which("gcc") is not None

# Of one process: once a file is there, its wall clock is another, and the kernel's stamps are by that.
_CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static double from, by; /* from: when this was first seen to be */

static int truly(clockid_t clock, struct timespec *at) { return syscall(SYS_clock_gettime, clock, at); }
static double seconds(const struct timespec *at) { return at->tv_sec + at->tv_nsec / 1e9; }
static void set(struct timespec *at) {
    if (!from && !access(getenv("SET_ONCE"), F_OK)) {
        struct timespec now;
        truly(CLOCK_REALTIME, &now);
        from = seconds(&now);
        by = atof(getenv("SET_BY_S"));
    }
    if (from && seconds(at) >= from) at->tv_sec += (time_t)by;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    int failed = truly(clock, at);
    if (!failed && clock == CLOCK_REALTIME) set(at);
    return failed;
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags) {
    static ssize_t (*next)(int, struct msghdr *, int);
    if (!next) next = dlsym(RTLD_NEXT, "recvmsg");
    ssize_t got = next(fd, message, flags);
    if (got >= 0)
        for (struct cmsghdr *one = CMSG_FIRSTHDR(message); one; one = CMSG_NXTHDR(message, one))
            if (one->cmsg_level == SOL_SOCKET && one->cmsg_type == SO_TIMESTAMPNS)
                set((struct timespec *)CMSG_DATA(one));
    return got;
}
"""
_STOP = '(until [ -e "$0" ]; do sleep 0.1; done; kill -STOP $$; sleep 3; kill -CONT $$) & exec "$@"'


def asked(reply: Reply, *before: str) -> Callable[[], Any]:
    """A scene: a server that is well, and a client begun by `before`."""

    @asynccontextmanager
    async def scene() -> AsyncIterator[Scene]:
        async with ScriptedServer(reply) as server:
            yield Scene(server.url, before=before)

    return scene


@asynccontextmanager
async def in_mid_run() -> AsyncIterator[tuple[Scene, Path]]:
    """A scene, and a path where there is a file from the twentieth request on."""

    async def mark() -> None:
        await server.until(lambda: len(server.requests) == 20, 30.0)
        mark_at.touch()  # noqa: ASYNC240  in an instant

    with tempfile.TemporaryDirectory() as folder:
        mark_at = Path(folder, "now")
        async with ScriptedServer(LASTING) as server:
            marking = asyncio.create_task(mark())
            yield Scene(server.url), mark_at
            await marking


@asynccontextmanager
async def stopped() -> AsyncIterator[Scene]:
    async with in_mid_run() as (scene, now):
        yield replace(scene, before=("sh", "-c", _STOP, str(now)))


@asynccontextmanager
async def few_ports() -> AsyncIterator[Scene]:
    async with across(reply=LASTING)() as scene:
        narrow = "echo 40000 40019 >/proc/sys/net/ipv4/ip_local_port_range"
        yield replace(scene, before=(*scene.before, "sh", "-c", f'{narrow}; exec "$@"', "sh"))


def _built(folder: Path) -> Path:
    source, built = folder / "clock.c", folder / "clock.so"
    source.write_text(_CLOCK)
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", source, "-o", built, "-ldl"], check=True)
    return built


def clock_set(by_s: float) -> Callable[[], Any]:
    """A scene: the wall clock is set in mid-run, and the monotonic one goes on."""

    @asynccontextmanager
    async def scene() -> AsyncIterator[Scene]:
        async with in_mid_run() as (scene, now):
            built = _built(now.parent)
            set_ = (f"LD_PRELOAD={built}", f"SET_ONCE={now}", f"SET_BY_S={by_s}")
            yield replace(scene, before=("env", *set_))

    return scene


def _fault(name: str, what: str, scene: Callable[[], Any], outcome: str, **more: Any) -> Fault:
    return Fault(name=name, what=what, scene=scene, outcomes=(outcome,), **{"code": 4} | more)


MANY = PATIENT | {"load": {"arrivals": {"kind": "constant", "rate": 100}, "num_requests": 60}}
LONG = PATIENT | {"load": {"arrivals": {"kind": "constant", "rate": 20}, "num_requests": 60}}
BROAD = PATIENT | {"load": {"prompt_tokens": 2_000_000, "num_requests": 60}}
FEW_FILES = ("prlimit", "--nofile=70:70", "--")
FEW_BYTES = ("prlimit", "--as=500000000", "--")
FAULTS = [
    _fault(
        *("descriptors", "70 are all there may be", asked(LASTING, *FEW_FILES), "ok|connect_error"),
        ended_by="answer",
        invalid=("descriptors_exhausted",),
        keys=MANY,
    ),
    _fault(
        *("memory", "500 MB of addresses are all there may be", asked(HANG, *FEW_BYTES), "aborted"),
        ended_by="plan's end",
        code=70,
        invalid=("incomplete",),
        keys=BROAD,
        rss_mb=500.0,
    ),
    _fault(
        *("stopped", "for 3 s in mid-run, as by a debugger", stopped),
        "ok",
        ended_by="answer",
        invalid=("loop_stall",),
        keys=LONG,
        within_s=15.0,
    ),
]
if CAN_WIRE:
    FAULTS += [
        _fault(
            *("ports", "20 are all there are", few_ports, "ok|connect_error"),
            ended_by="answer",
            invalid=("ports_exhausted",),
            keys=MANY,
        ),
    ]
if CAN_SET:
    FAULTS += [
        _fault(
            *(name, what, clock_set(by_s), "ok"),
            ended_by="answer",
            invalid=("clock_jump",),
            keys=LONG,
        )
        for name, what, by_s in (
            ("clock set forward", "the wall clock by 60 s", 60),
            ("clock set back", "the wall clock by 60 s", -60),
            ("suspended", "an hour that only the wall clock counts", 3600),
        )
    ]
