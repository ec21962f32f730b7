"""Looks at a run that goes on: is it already clear how its SLOs come out?"""

from __future__ import annotations


class Looks:
    """To be told of every record."""
