"""Uploaded zips of model code: checked before they are kept, stored by content hash, unpacked once, read-only.

A zip is hostile until proven otherwise: nothing in its headers is believed, sizes are counted while reading, and every refusal names the file
and what to do. Nothing here knows projects or people.
"""

from __future__ import annotations

from typing import BinaryIO

from experiments.models import Bundle


class BundleRefused(Exception):
    """The upload is not kept. The message says which file is wrong and what to do."""


def keep(file: BinaryIO, *, file_name: str) -> Bundle:
    """Check the zip, keep it as `EDT_HOME/bundles/SHA.zip` and unpack it to `EDT_HOME/code/SHA/`. The same content is one bundle.

    `file` is read from its start (an open binary file or Django's UploadedFile). Raises BundleRefused.
    """
    raise NotImplementedError


def parse_command(command: str) -> tuple[str, ...]:
    """A command as (script, arguments...): "python main.py --epochs 5" and "main.py --epochs 5" give the same. Never a shell.

    Raises BundleRefused for bad quoting, an interpreter option, no script, or a script that leaves the code folder.
    """
    raise NotImplementedError


def entry(bundle: Bundle, command: str) -> tuple[str, ...]:
    """`parse_command`, and the script is one of the bundle's. Raises BundleRefused naming the scripts there are."""
    raise NotImplementedError
