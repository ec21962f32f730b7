"""Pictures of runs, comparisons, capacities and iterations: each described once, for a page and as SVG."""
