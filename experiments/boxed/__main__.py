"""`python -I experiments/boxed/__main__.py CONTROL PARENT HOME`: the fork server, started by `pool`. The number of its socket, the process
that it serves, and EDT_HOME."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # isolated from what the environment says
    from experiments.boxed import forkserver

    sys.exit(forkserver.main(sys.argv[1:]))
