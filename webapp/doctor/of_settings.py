"""Settings that do not fit together, and names that are none. Pure: facts in, findings out."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from django.http.request import validate_host

from webapp.doctor.findings import Finding, warning
from webapp.setting_names import unknown_names


@dataclass(frozen=True)
class SettingFacts:
    """names: of the environment's variables. The others as the settings have them; local_hosts: those that are always allowed."""

    names: Iterable[str] = ()
    public_url: str = ""
    hosts: tuple[str, ...] = ()
    local_hosts: tuple[str, ...] = ("localhost", "127.0.0.1", "[::1]")
    origins: tuple[str, ...] = ()
    proxies: tuple[str, ...] = ()
    https: bool = False
    debug: bool = False
    sends_mail: bool = False


def check(facts: SettingFacts) -> Iterator[Finding]:
    yield from map(warning, unknown_names(facts.names))
    others = [host for host in facts.hosts if host not in facts.local_hosts]
    if facts.debug:
        yield Finding("EDT_DEBUG is on: a page that fails shows the studio's insides to whoever asked for it. Set it to false.")
    if others and not facts.https:
        yield warning(
            f"Others reach the studio as {others[0]}, and EDT_HTTPS is not true: passwords and cookies may travel as plain text. "
            "Put a proxy with TLS in front."
        )
    for origin in facts.origins:
        if "://" not in origin:
            yield Finding(f"EDT_TRUSTED_ORIGINS has {origin!r}: it needs https:// in front, or forms from there are refused.")
    for proxy in facts.proxies:
        if not _is_network(proxy):
            yield Finding(f"EDT_TRUSTED_PROXIES has {proxy!r}, which is no address or network: nobody is believed for it.")
    yield from _of_public_url(facts)


def _of_public_url(facts: SettingFacts) -> Iterator[Finding]:
    url = urlsplit(facts.public_url)
    if not facts.public_url:
        if facts.sends_mail:
            yield warning("EDT_PUBLIC_URL is not set: e-mails have no links. Set it to how people reach the studio.")
        return
    if url.scheme not in ("http", "https") or not url.hostname:
        yield Finding(f"EDT_PUBLIC_URL is {facts.public_url!r}: it must be like https://studio.example.org.")
        return
    if not validate_host(url.hostname.lower(), [*facts.hosts, *facts.local_hosts]):
        yield Finding(f"EDT_PUBLIC_URL names {url.hostname}, which is not in EDT_ALLOWED_HOSTS: its pages are answered 400. Add it there.")
    if url.scheme == "https":
        if not facts.https:
            yield warning("EDT_PUBLIC_URL is https, and EDT_HTTPS is not true: cookies of log-ins are also sent over http.")
        if not facts.proxies and f"https://{url.netloc}" not in facts.origins:
            yield Finding(
                f"EDT_PUBLIC_URL is https, and neither EDT_TRUSTED_PROXIES nor EDT_TRUSTED_ORIGINS says so: forms are refused. "
                f"Set EDT_TRUSTED_PROXIES to the proxy's address, or EDT_TRUSTED_ORIGINS to https://{url.netloc}."
            )


def _is_network(said: str) -> bool:
    try:
        ipaddress.ip_network(said, strict=False)
    except ValueError:
        return False
    return True
