"""The web process: uvicorn on a listening socket that the studio has opened. `python -m webapp.studio.web --fd N`.

A command of its own and not `uvicorn --fd`, which takes every inherited socket for a Unix socket and so leaves Nagle's delay on.
"""

from __future__ import annotations

import argparse
import socket

import uvicorn


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m webapp.studio.web", description="Serve the studio's pages on an inherited socket.")
    parser.add_argument("--fd", type=int, required=True, help="number of the listening socket")
    listener = socket.socket(fileno=parser.parse_args().fd)
    config = uvicorn.Config(
        "webapp.asgi:application",
        lifespan="off",
        access_log=False,
        log_config=None,
        ws_max_size=1 << 16,
        timeout_graceful_shutdown=3,
        server_header=False,
    )
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
