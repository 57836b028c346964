"""`python -m torchelastic.distributed.launch` on a laptop is torchrun. In the studio a command that begins with it is read, not run."""

from torch.distributed.run import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
