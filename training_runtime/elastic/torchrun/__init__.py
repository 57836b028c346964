"""Scripts written for torch.distributed, run on a run's slots as torchrun runs them: one process a slot, all of them started again with
the new number when slots come or go. See docs/decisions/torchrun.md.

`decide` is pure; `agent` is the driver of such a run, in torchrun's place; `workers` starts and ends the processes; `worker` is what each
of them begins with.
"""
