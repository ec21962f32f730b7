"""A real decoder behind the engine's scheduler: extra `torch`, which only `decoder` and `weights` import."""
