"""Brings the browser's third-party files into static/vendor/ and keeps them honest.

    python tools/vendor.py fetch    reads the pinned packages through npm, copies the few files we serve, writes vendor.lock
    python tools/vendor.py check    compares what is there with vendor.lock; needs no network; exit status 1 where they differ

Carbon's colour tokens become CSS custom properties and its icons one SVG sprite; everything else is copied as it is, with its licence
beside it. It is not a build step: what it writes is committed, and nothing here runs when the studio starts.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

VENDOR = Path(__file__).resolve().parent.parent / "static" / "vendor"
LOCK = VENDOR / "vendor.lock"


@dataclass(frozen=True)
class Package:
    """A pinned package: where its files go under static/vendor/ and which of them are taken (path in the package -> name here)."""

    name: str
    version: str
    licence: str
    folder: str
    files: tuple[tuple[str, str], ...] = ()
    tests_only: bool = False


PACKAGES = (
    Package("htmx.org", "4.0.1", "0BSD", "htmx", (("dist/htmx.min.js", "htmx.min.js"),)),
    Package("uplot", "1.6.32", "MIT", "uplot", (("dist/uPlot.iife.min.js", "uPlot.iife.min.js"), ("dist/uPlot.min.css", "uPlot.min.css"))),
    Package(
        "@fontsource-variable/ibm-plex-sans",
        "5.3.0",
        "OFL-1.1",
        "plex-sans",
        (("files/ibm-plex-sans-latin-wght-normal.woff2", "ibm-plex-sans-latin-wght-normal.woff2"),),
    ),
    Package(
        "@fontsource/ibm-plex-mono",
        "5.3.0",
        "OFL-1.1",
        "plex-mono",
        (("files/ibm-plex-mono-latin-400-normal.woff2", "ibm-plex-mono-latin-400-normal.woff2"),),
    ),
    Package("@carbon/themes", "11.82.0", "Apache-2.0", "carbon-themes"),
    Package("@carbon/icons", "11.89.0", "Apache-2.0", "carbon-icons"),
    Package("axe-core", "4.14.1", "MPL-2.0", "../../tests/web/vendor/axe-core", (("axe.min.js", "axe.min.js"),), tests_only=True),
)

TOKENS = """
    background backgroundHover backgroundInverse layer01 layer02 layerHover01 layerSelected01 layerAccent01 field01 field02
    fieldHover01 borderSubtle00 borderSubtle01 borderStrong01 borderInteractive textPrimary textSecondary textHelper textError
    textInverse textDisabled linkPrimary linkPrimaryHover iconSecondary focus focusInset interactive highlight shadow supportError
    supportSuccess supportWarning supportInfo syntaxKeyword syntaxNumber syntaxAttribute
""".split()  # noqa: SIM905  (a list of so many literals reads worse)

ICONS = """
    add arrow--down arrow--right arrow--up chart--line checkmark--filled checkmark chevron--down chevron--right chip circle-dash
    close code copy dashboard data--base document download edit email error--filled filter flow folder group help hourglass image
    in-progress information--filled keyboard launch light logout notification overflow-menu--vertical pause play queued renew restart rocket
    search settings stop--filled tag time trash-can upload user--avatar view warning--alt--filled warning--filled wifi--off
""".split()  # noqa: SIM905


def main(arguments: list[str]) -> int:
    if arguments == ["fetch"]:
        fetch()
        return 0
    if arguments == ["check"]:
        differences = check()
        sys.stderr.write("".join(f"{line}\n" for line in differences))
        return 1 if differences else 0
    sys.stderr.write(f"{(__doc__ or '').strip()}\n")
    return 2


def fetch() -> None:
    """Install the pinned packages into a temporary folder (no package script runs) and write our copies and the lock."""
    with tempfile.TemporaryDirectory() as scratch:
        pins = [f"{p.name}@{p.version}" for p in PACKAGES]
        command = ["npm", "install", "--silent", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--prefix", scratch]
        subprocess.run([*command, *pins], check=True)
        modules = Path(scratch) / "node_modules"
        for package in PACKAGES:
            _copy_package(package, modules / package.name)
        _write(VENDOR / "carbon-themes" / "tokens.css", _tokens(modules))
        _write(VENDOR / "carbon-icons" / "icons.svg", _sprite(modules / "@carbon" / "icons" / "svg" / "32"))
    LOCK.write_text(json.dumps(_lock(), indent=2) + "\n")


def check() -> list[str]:
    """What differs from the lock, one sentence each."""
    recorded = json.loads(LOCK.read_text())
    actual = _lock()
    if recorded == actual:
        return []
    old, new = _hashes(recorded), _hashes(actual)
    return [f"{path}: not as in vendor.lock" for path in sorted(old.keys() | new.keys()) if old.get(path) != new.get(path)] or [
        "vendor.lock: versions or licences differ from tools/vendor.py"
    ]


def _copy_package(package: Package, source: Path) -> None:
    folder = VENDOR / package.folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copyfile(source / "LICENSE", folder / "LICENSE")
    for inside, name in package.files:
        shutil.copyfile(source / inside, folder / name)


def _tokens(modules: Path) -> str:
    """Carbon's g10 (light and paper) and g100 (dark) as custom properties. `data-theme` on <html> chooses; "system" asks the browser."""
    program = (
        f"const t = require({json.dumps(str(modules / '@carbon' / 'themes'))}); console.log(JSON.stringify({{light: t.g10, dark: t.g100}}))"
    )
    themes = json.loads(subprocess.run(["node", "-e", program], check=True, capture_output=True, text=True).stdout)
    light, dark = (
        "".join(f"  --{_kebab(name)}: {themes[key][name]};\n" for name in TOKENS if name in themes[key]) for key in ("light", "dark")
    )
    within = "".join(f"  {line}\n" for line in dark.splitlines())
    return (
        "/* Written by tools/vendor.py from @carbon/themes (g10, g100). */\n"
        f":root {{\n  color-scheme: light;\n{light}}}\n"
        f"@media screen {{\n  :root[data-theme='dark'] {{\n    color-scheme: dark;\n{within}  }}\n}}\n"
        "@media screen and (prefers-color-scheme: dark) {\n"
        f"  :root[data-theme='system'] {{\n    color-scheme: dark;\n{within}  }}\n}}\n"
    )


def _kebab(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z0-9])", "-", name).lower()


def _sprite(folder: Path) -> str:
    """One SVG of symbols, `icons.svg#NAME`, each drawn with the text's colour."""
    symbols = []
    for name in ICONS:
        svg = (folder / f"{name}.svg").read_text()
        body = re.sub(r"<\?xml.*?\?>|<!--.*?-->|<title>.*?</title>|<style>.*?</style>|<rect[^>]*_Transparent[^>]*/>", "", svg, flags=re.S)
        inside = re.search(r"<svg[^>]*>(.*)</svg>", body, flags=re.S)
        assert inside, f"{name}.svg is not an SVG file"
        drawing = re.sub(
            r"<rect[^>]*(?:fill=\"none\"|transparent)[^>]*/>|<(?:path|rect|circle)[^>]*fill=\"none\"[^>]*/>", "", inside[1], flags=re.I
        )
        symbols.append(f'<symbol id="{name}" viewBox="0 0 32 32">{" ".join(drawing.split())}</symbol>')
    return '<svg xmlns="http://www.w3.org/2000/svg">\n' + "\n".join(symbols) + "\n</svg>\n"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _lock() -> list[dict[str, object]]:
    return [
        {"package": p.name, "version": p.version, "licence": p.licence, "tests_only": p.tests_only, "files": _files(VENDOR / p.folder)}
        for p in PACKAGES
    ]


def _files(folder: Path) -> dict[str, str]:
    root = VENDOR.resolve().parent.parent
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.resolve().rglob("*"))
        if path.is_file()
    }


def _hashes(lock: list[dict[str, object]]) -> dict[str, str]:
    return {path: digest for entry in lock if isinstance(entry["files"], dict) for path, digest in entry["files"].items()}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
