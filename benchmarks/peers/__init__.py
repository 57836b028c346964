"""What the engine is measured against, each peer set up as its own documents say. What was set for whom is told in docs/benchmarks.md."""
