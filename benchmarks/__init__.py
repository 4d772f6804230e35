"""Speed and quality tables, run by make targets; results are written to benchmarks/results/."""
