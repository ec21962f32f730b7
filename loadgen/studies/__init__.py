"""Studies: the published comparisons and the arguments about batching, made again on the bundled engine.

One module each, named as `loadgen reproduce NAME` with `_` for `-`, with a function `study() -> Study`.
"""
