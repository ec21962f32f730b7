"""All pictures of a search for capacity, in the order of a page."""

from __future__ import annotations

from loadgen.capacity import Capacity
from loadgen.charts import capacity
from loadgen.charts.picture import Picture


def pictures(found: Capacity) -> list[Picture]:
    """The figure that limits, the latency, and what was served, each by load; none where none was probed."""
    if not found.probes:
        return []
    drawn = [capacity.share(found), capacity.latency(found), capacity.curve(found)]
    return [picture for picture in drawn if picture is not None]
