"""Pages: runs, comparisons, capacities, studies and plans, each as one HTML file that needs no network."""
