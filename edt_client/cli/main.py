"""The verbs of `edt`, and what goes wrong, as one sentence."""

from __future__ import annotations

import io
import os
import sys
from importlib import metadata

import click

from edt_client.cli import act, bring, cluster, data, folder, login, look, models, nodes, receipts, search, what_if
from edt_client.errors import ClientError

SHELLS = ("bash", "zsh", "fish")
COMPLETION = """Print what completes edt's words in a shell.

\b
    edt completion bash >> ~/.bashrc
    edt completion zsh >> ~/.zshrc
    edt completion fish > ~/.config/fish/completions/edt.fish
"""


def _version() -> str:
    try:
        return metadata.version("edt-studio")
    except metadata.PackageNotFoundError:  # run from its source
        return "of the source"


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(_version(), prog_name="edt")
def edt() -> None:
    """EDT Studio from a shell: run code on shared GPUs, follow it, compare it.

    Log in first: edt login https://studio.example.org. Then, in a folder with a training script: edt run .
    """


@click.command("completion", help=COMPLETION)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(edt, {}, "edt", "_EDT_COMPLETE").source())


for each in (
    *login.COMMANDS,
    *folder.COMMANDS,
    *search.COMMANDS,
    *data.COMMANDS,
    *bring.COMMANDS,
    *look.COMMANDS,
    *act.COMMANDS,
    *receipts.COMMANDS,
    *models.COMMANDS,
    *cluster.COMMANDS,
    *nodes.COMMANDS,
    *what_if.COMMANDS,
    completion,
):
    edt.add_command(each)


def main(words: list[str] | None = None) -> int:
    """The exit status. 2: the words were not understood; 1: it could not be done; 130: interrupted; of `edt run` the run's own."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # what a terminal has no character for ends nothing
        sys.stdout.reconfigure(errors="replace")
    try:
        outcome = edt.main(args=words, prog_name="edt", standalone_mode=False)
        return outcome if isinstance(outcome, int) else 0
    except click.exceptions.Abort:
        return 130
    except KeyboardInterrupt:
        return 130
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except ClientError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except BrokenPipeError:  # whoever read it has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
    except OSError as error:  # a full disk, a file of somebody else
        what = f"{error.filename}: " if error.filename is not None else ""
        sys.stderr.write(f"{what}{error.strerror or error}.\n")
        return 1
