"""What user scripts import: FabricModel, the callback bases, EMetrics. `path/` holds the thin modules under the names that scripts use."""
