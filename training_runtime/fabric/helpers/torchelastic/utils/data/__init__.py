"""The name under which scripts import this; see training_runtime.fabric.elastic_sampler."""

from torch.distributed.elastic.utils.data import CyclingIterator

from training_runtime.fabric.elastic_sampler import ElasticDistributedSampler

__all__ = ["CyclingIterator", "ElasticDistributedSampler"]
