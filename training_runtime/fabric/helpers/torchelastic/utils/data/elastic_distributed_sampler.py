"""The name under which scripts import this; see training_runtime.fabric.elastic_sampler."""

from training_runtime.fabric.elastic_sampler import ElasticDistributedSampler

__all__ = ["ElasticDistributedSampler"]
