"""What browsers are given: third-party files as locked, and not too much of everything."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

from tools import vendor

STATIC = Path(__file__).resolve().parents[2] / "static"
TEMPLATES = STATIC.parent / "templates"
MOST_BYTES = 150_000
SWAGGER = TEMPLATES / "api.html"  # who looks calls up is given Swagger UI, as django-ninja brings it: half a megabyte


def named(template: Path) -> set[Path]:
    """The assets that a template and those it extends name."""
    text = template.read_text()
    found = {STATIC / name for name in re.findall(r"{% static '([^']+)' %}", text)}
    base = re.search(r'{% extends "([^"]+)" %}', text)
    return found | named(TEMPLATES / base[1]) if base else found


def whole(assets: set[Path]) -> set[Path]:
    """With what modules import and what style sheets use, to the last one."""
    text = {path: path.read_text() for path in assets if path.suffix in (".js", ".css")}
    more = {path.parent / name for path, said in text.items() for name in re.findall(r"from '(\./[\w.]+)'", said)}
    more |= {(path.parent / name).resolve() for path, said in text.items() for name in re.findall(r"url\('([^'#]+)'\)", said)}
    return assets if more <= assets else whole(assets | more)


def test_vendored_files_are_as_the_lock_says() -> None:
    assert vendor.check() == []


def test_every_vendored_package_has_its_licence_beside_it() -> None:
    for package in vendor.PACKAGES:
        assert (vendor.VENDOR / package.folder / "LICENSE").stat().st_size > 100, package.name


def test_all_assets_of_a_page_weigh_less_than_150_kb_compressed() -> None:
    for template in {*TEMPLATES.rglob("*.html")} - {SWAGGER}:
        files = whole(named(template))
        weight = sum(path.stat().st_size if path.suffix == ".woff2" else len(gzip.compress(path.read_bytes())) for path in files)
        assert weight < MOST_BYTES, (template, weight)
    assert len(whole(named(TEMPLATES / "cluster" / "detail.html"))) > 15, "the assets are found no more"


def test_no_template_needs_what_the_policy_forbids() -> None:
    """No inline script, style or handler: the policy would block it, and nobody would notice but the reader."""
    for path in TEMPLATES.rglob("*.html"):
        text = path.read_text()
        assert not re.search(r"<script(?![^>]*\bsrc=)", text), path
        assert not re.search(r"<style\b|\sstyle=|\son[a-z]+=", text), path
        assert "|safe" not in text, path
        assert "autoescape off" not in text, path
