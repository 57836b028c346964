"""What train() is asked with `shard_optimizer` and `shard_parameters`, and whether it can be had."""

from __future__ import annotations

from training_runtime.elastic.job import Job
from training_runtime.elastic.state import elementwise
from training_runtime.errors import UserError

KINDS = ", ".join(kind.__name__ for kind in elementwise.KINDS)
REFUSED = (
    f"train: {{}}=True needs one of torch.optim's {KINDS}, as it is, since each worker then steps some of the parameters only; "
    "this optimizer ({}) {}. Leave {} out"
)
OWN_STEP = "train: {}=True cannot be had with fn_step_train, which may do anything with the optimizer. Leave one of them out"


def shard(job: Job, *, optimizer: object, parameters: object) -> None:
    """Have the optimizer's step shared out, and the parameters in memory that workers share, where that is asked for. The second needs the
    first, and brings it along. UserError where it cannot be had."""
    for name, asked in (("shard_optimizer", optimizer), ("shard_parameters", parameters)):
        if not isinstance(asked, bool):
            raise UserError(f"train: {name} must be True or False, not {asked!r}")
    if not optimizer and not parameters:
        return
    name = "shard_parameters" if parameters else "shard_optimizer"
    if job.train_function is not None:
        raise UserError(OWN_STEP.format(name))
    if reason := elementwise.reason_against(job.optimizer):
        raise UserError(REFUSED.format(name, type(job.optimizer).__name__, reason, name))
    job.shard_optimizer, job.shard_parameters = True, bool(parameters)
