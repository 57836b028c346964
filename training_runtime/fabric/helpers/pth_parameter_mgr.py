"""The name under which scripts import this; see training_runtime.fabric.parameters."""

from training_runtime.fabric.parameters import (
    getEpoch,
    getLearningRate,
    getOptimizer,
    getTestBatchSize,
    getTestData,
    getTrainBatchSize,
    getTrainData,
)

__all__ = ["getEpoch", "getLearningRate", "getOptimizer", "getTestBatchSize", "getTestData", "getTrainBatchSize", "getTrainData"]
