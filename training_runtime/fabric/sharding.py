"""What train() is asked with `shard_optimizer`, and whether it can be had."""

from __future__ import annotations

from training_runtime.elastic.job import Job
from training_runtime.elastic.state import elementwise
from training_runtime.errors import UserError

KINDS = ", ".join(kind.__name__ for kind in elementwise.KINDS)
REFUSED = (
    f"train: shard_optimizer=True needs one of torch.optim's {KINDS}, as it is, since each worker then steps some of the parameters only; "
    "this optimizer ({}) {}. Leave shard_optimizer out"
)
OWN_STEP = "train: shard_optimizer=True cannot be had with fn_step_train, which may do anything with the optimizer. Leave one of them out"


def shardable(job: Job, *, asked: object) -> bool:
    """Whether the optimizer's step is to be shared out. UserError where it cannot be."""
    if not isinstance(asked, bool):
        raise UserError(f"train: shard_optimizer must be True or False, not {asked!r}")
    if not asked:
        return False
    if job.train_function is not None:
        raise UserError(OWN_STEP)
    if reason := elementwise.reason_against(job.optimizer):
        raise UserError(REFUSED.format(type(job.optimizer).__name__, reason))
    return True
