"""What a timing was taken beside."""

from __future__ import annotations

import os


def load_average() -> str:
    """Of the last minute, as it was when the benchmark asked."""
    return f"{os.getloadavg()[0]:.2f} on {os.cpu_count()} cores"
