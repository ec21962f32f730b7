"""The bundled mini-engine: one scheduler, in virtual time (`simulate`) or on the wall clock (`serve`)."""

from loadgen.engine.simulate import simulate

__all__ = ["simulate"]
