"""How this machine reaches packages: proxies, indexes and certificates, for who builds environments and for nobody else.

They may hold passwords, so they never come into the environment of the warm process or of a run. pip's own settings are taken as well
(variables and configuration files), since that is what an installation has been set up with; what is set for uv goes before.
"""

from __future__ import annotations

import configparser
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy")
CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")
PIP = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX", "PIP_TRUSTED_HOST", "PIP_CERT", "PIP_CONFIG_FILE")
UV: tuple[str, ...] = ("UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_STRATEGY", "UV_FIND_LINKS")
UV += ("UV_NO_INDEX", "UV_INSECURE_HOST", "UV_HTTP_TIMEOUT", "UV_SYSTEM_CERTS", "UV_NATIVE_TLS", "UV_EXCLUDE_NEWER")
UV += ("UV_CONCURRENT_DOWNLOADS", "UV_CONCURRENT_INSTALLS")
UV_PREFIX = "UV_INDEX_"  # names and passwords of indexes
_INDEXES = ("UV_FIND_LINKS", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL")
NAMES = frozenset((*PROXIES, *CERTIFICATES, *PIP, *UV))
# pip's setting -> uv's variable, and what stands between several values there
_AS_UV = {
    "index-url": ("UV_DEFAULT_INDEX", ("UV_INDEX_URL",), " "),
    "extra-index-url": ("UV_INDEX", ("UV_EXTRA_INDEX_URL",), " "),
    "find-links": ("UV_FIND_LINKS", (), ","),
    "no-index": ("UV_NO_INDEX", (), " "),
    "trusted-host": ("UV_INSECURE_HOST", (), " "),
    "cert": ("SSL_CERT_FILE", ("SSL_CERT_DIR",), " "),
}


def settings(environment: Mapping[str, str], *, prefix: str) -> dict[str, str]:
    """Variables for the builder, by the environment of the host. `prefix`: of its installation, which may have a pip.conf of its own."""
    kept = {
        name: value
        for name, value in environment.items()
        if value and (name in (*PROXIES, *CERTIFICATES, *UV) or name.startswith(UV_PREFIX))
    }
    of_pip = _of_files(environment, prefix) | {
        name[4:].lower().replace("_", "-"): value
        for name, value in environment.items()
        if name in PIP and name != "PIP_CONFIG_FILE" and value
    }
    for name, (variable, others, between) in _AS_UV.items():
        if name in of_pip and variable not in kept and not any(other in kept for other in others):
            kept[variable] = between.join(of_pip[name].split())
            if (
                name == "extra-index-url"
            ):  # to pip all indexes are one; uv would look for a package in the first that has it, and no further
                kept.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    return kept


def folders(variables: Mapping[str, str]) -> tuple[str, ...]:
    """Files and folders of this machine that these settings name: the builder must be able to read them."""
    words = [word for name in (*_INDEXES, *CERTIFICATES) for word in re.split(r"[\s,]+", variables.get(name, ""))]
    paths = (word.split("=", 1)[-1].removeprefix("file://") for word in words)
    there = [Path(path) for path in paths if path.startswith("/") and Path(path).exists()]
    # What an index in a folder links to lies beside its simple interface.
    return tuple(dict.fromkeys(str(path.parent if path.name == "simple" else path) for path in there))


def servers(variables: Mapping[str, str]) -> tuple[str, ...]:
    """Hosts that these settings name: proxies, and package indexes that are served."""
    proxies = [variables.get(name, "") for name in PROXIES if not name.lower().startswith("no_")]
    indexes = [word for name in _INDEXES for word in re.split(r"[\s,]+", variables.get(name, ""))]
    addresses = (word if "://" in word else f"http://{word}" for word in (*proxies, *(word.split("=", 1)[-1] for word in indexes)))
    hosts = (_host(address) for address in addresses if address.startswith(("http://", "https://", "socks5://", "socks5h://")))
    return tuple(dict.fromkeys(host for host in hosts if host))


def _host(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:  # uv says what is wrong with it
        return ""


def _of_files(environment: Mapping[str, str], prefix: str) -> dict[str, str]:
    home = environment.get("HOME", "")
    named = environment.get("PIP_CONFIG_FILE", "")
    files = ["/etc/pip.conf", *([f"{home}/.pip/pip.conf", f"{home}/.config/pip/pip.conf"] if home else []), f"{prefix}/pip.conf", named]
    found: dict[str, str] = {}
    if named == "/dev/null":  # how pip is told to read none
        return found
    for file in filter(None, files):
        parser = configparser.RawConfigParser()
        try:
            parser.read(file)
        except (configparser.Error, OSError, UnicodeDecodeError):
            continue  # pip says what is wrong with it
        for section in ("global", "install"):
            if parser.has_section(section):
                found |= {name: parser.get(section, name) for name in _AS_UV if parser.has_option(section, name)}
    return found
