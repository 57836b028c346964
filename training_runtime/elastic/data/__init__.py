"""Which samples each engine gets (`sampler`, `order`), and how they are loaded."""
