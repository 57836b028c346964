"""Removes what nobody refers to any more: old drafts of uploads, code without a version, folders of deleted runs, ended sessions."""

from __future__ import annotations

import datetime as dt


def prune(now: dt.datetime) -> None:
    raise NotImplementedError
