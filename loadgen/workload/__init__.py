"""Scenario -> Plan, and the prompts of its rows. Pure and seeded: no clock, no socket."""

from loadgen.workload.draw import draw
from loadgen.workload.facts import LengthFacts, PlanFacts, facts
from loadgen.workload.prompts import prompt_maker

__all__ = ["LengthFacts", "PlanFacts", "draw", "facts", "prompt_maker"]
