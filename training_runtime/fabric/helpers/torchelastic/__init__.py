"""The name under which older scripts import what is torch.distributed.elastic now; see docs/decisions/torchrun.md."""
