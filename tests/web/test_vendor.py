"""What browsers are given: third-party files as locked, and not too much of everything."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

from tools import vendor

STATIC = Path(__file__).resolve().parents[2] / "static"
FIRST_PAGE = [
    "css/*.css", "vendor/carbon-themes/tokens.css", "vendor/carbon-icons/icons.svg",
    "vendor/htmx/htmx.min.js", "vendor/uplot/uPlot.iife.min.js", "vendor/uplot/uPlot.min.css", "js/*.js", "vendor/plex-*/*.woff2",
]  # fmt: skip


def test_vendored_files_are_as_the_lock_says() -> None:
    assert vendor.check() == []


def test_every_vendored_package_has_its_licence_beside_it() -> None:
    for package in vendor.PACKAGES:
        assert (vendor.VENDOR / package.folder / "LICENSE").stat().st_size > 100, package.name


def test_all_assets_of_a_page_weigh_less_than_150_kb_compressed() -> None:
    files = [path for pattern in FIRST_PAGE for path in STATIC.glob(pattern)]
    weight = sum(path.stat().st_size if path.suffix == ".woff2" else len(gzip.compress(path.read_bytes())) for path in files)
    assert weight < 150_000, weight


def test_no_template_needs_what_the_policy_forbids() -> None:
    """No inline script, style or handler: the policy would block it, and nobody would notice but the reader."""
    templates = STATIC.parent / "templates"
    for path in templates.rglob("*.html"):
        text = path.read_text()
        assert not re.search(r"<script(?![^>]*\bsrc=)", text), path
        assert not re.search(r"<style\b|\sstyle=|\son[a-z]+=", text), path
        assert "|safe" not in text, path
        assert "autoescape off" not in text, path
