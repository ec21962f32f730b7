"""What a timing was taken beside."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any


def load_average() -> str:
    """Of the last minute, as it was when the benchmark asked."""
    return f"{os.getloadavg()[0]:.2f} on {os.cpu_count()} cores"


def machine() -> dict[str, Any]:
    """What it is, and how busy it was."""
    return {
        "cores": os.cpu_count(),
        "processor": processor(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_average": round(os.getloadavg()[0], 2),
    }


def processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
