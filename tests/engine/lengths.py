"""Lognormal lengths: kept in loadgen.studies.lengths."""

from loadgen.studies.lengths import Lognormal, lengths

__all__ = ["Lognormal", "lengths"]
