"""One POST to an address that a person typed, safely: it must not become a way into the studio's own network.

The host's addresses are all looked at, a private, loopback or link-local one is refused unless an administrator allows it
(EDT_WEBHOOK_ALLOW), and the connection goes to the very address that was looked at: a name that changes in between leads nowhere.
Redirects are not followed, proxies of the environment are not used, and the whole exchange has a deadline.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import http.client
import ipaddress
import logging
import socket
import ssl
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

CONNECT_S = 5.0
WHOLE_S = 10.0
LOOK_UP_S = 5.0
LONGEST_URL = 500
LONGEST_ANSWER = 64 * 1024
# Addresses that carry another address inside: they may lead anywhere.
_CARRIERS = tuple(ipaddress.ip_network(net) for net in ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32"))

_RESOLVERS = concurrent.futures.ThreadPoolExecutor(max_workers=8, thread_name_prefix="resolver")
log = logging.getLogger(__name__)

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class AddressRefused(Exception):
    """The address may not be used. The message says why."""


class RequestFailed(Exception):
    """It may be used, but it did not work this time."""


@dataclass(frozen=True)
class Target:
    """Where to connect to, and how to ask there."""

    scheme: str
    host: str
    port: int
    path: str
    addresses: tuple[str, ...]


def look_up(url: str, *, allow: Sequence[str] = ()) -> Target:
    """The address behind a URL, looked at. `allow`: networks and hosts that an administrator allows.

    Raises AddressRefused, RequestFailed.
    """
    parts = _parts(url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    addresses = addresses_of(host, port, allow=allow, setting="EDT_WEBHOOK_ALLOW")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(parts.scheme, host, port, path, addresses)


def addresses_of(host: str, port: int, *, allow: Sequence[str], setting: str) -> tuple[str, ...]:
    """Those of a host, looked at. `setting`: where an administrator allows others than those on the open internet.

    Raises AddressRefused, RequestFailed."""
    addresses = _addresses(host, port)
    if host not in allow:
        for address in addresses:
            if not _open(ipaddress.ip_address(address), allow):
                # Not which one: who types names would learn how the network inside is built.
                log.info("%s, which somebody has typed, leads to %s, which is not on the open internet.", host, address)
                raise AddressRefused(f"{host} is not on the open internet: an administrator can allow it ({setting}).")
    return addresses


def _addresses(host: str, port: int) -> tuple[str, ...]:
    """In the order in which they should be tried. The resolver's own patience is longer than a request's, so it is asked in a thread."""
    asked = _RESOLVERS.submit(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        found = asked.result(LOOK_UP_S)
    except concurrent.futures.TimeoutError:
        asked.cancel()
        raise RequestFailed(f"Nobody says within {LOOK_UP_S:g} s where {host} is: try again later.") from None
    except (OSError, UnicodeError):
        raise RequestFailed(f"{host} is not known: correct the name, or try again when it is.") from None
    return tuple(dict.fromkeys(str(each[4][0]).split("%")[0] for each in found))


def post(url: str, body: bytes, headers: Mapping[str, str], *, allow: Sequence[str] = ()) -> int:
    """The status of the answer, 200 to 299. Raises AddressRefused, RequestFailed."""
    target = look_up(url, allow=allow)
    connection = _Pinned(target)
    # A server that answers a byte a minute would keep every single wait short: the whole has a deadline of its own.
    deadline = threading.Timer(WHOLE_S, connection.give_up)
    deadline.daemon = True
    deadline.start()
    try:
        connection.request("POST", target.path, body=body, headers=dict(headers))
        answer = connection.getresponse()
        answer.read(LONGEST_ANSWER)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise RequestFailed(f"{target.host} did not answer as it should ({type(error).__name__}).") from None
    finally:
        deadline.cancel()
        connection.close()
    if 300 <= answer.status < 400:
        raise RequestFailed(f"{target.host} answered {answer.status}: redirects are not followed, give the address itself.")
    if not 200 <= answer.status < 300:
        raise RequestFailed(f"{target.host} answered {answer.status}.")
    return answer.status


class _Pinned(http.client.HTTPConnection):
    """Connects to the address that was looked at, and to no other; the certificate must be the name's."""

    def __init__(self, target: Target) -> None:
        super().__init__(target.host, target.port, timeout=CONNECT_S)
        self.default_port = 443 if target.scheme == "https" else 80
        self.target = target
        self.given_up = False

    def connect(self) -> None:
        """To the first of its addresses that answers."""
        for place, address in enumerate(self.target.addresses, start=1):
            try:
                self.sock = socket.create_connection((address, self.target.port), timeout=CONNECT_S)
                break
            except OSError:
                if place == len(self.target.addresses) or self.given_up:
                    raise
        if self.target.scheme == "https":
            self.sock = ssl.create_default_context().wrap_socket(self.sock, server_hostname=self.target.host)

    def give_up(self) -> None:
        self.given_up = True
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if self.sock is not None:
                self.sock.shutdown(socket.SHUT_RDWR)  # wakes the one who waits for it; closing would not


def _parts(url: str) -> SplitResult:
    if len(url) > LONGEST_URL or any(c.isspace() or not c.isprintable() for c in url):
        raise AddressRefused("This is not an address: give one such as https://example.org/hook.")
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        known = False
    if not known:
        raise AddressRefused("This is not an address: give one such as https://example.org/hook.")
    if parts.username is not None or parts.password is not None:
        raise AddressRefused("Leave the password out of the address: what is sent is signed with the secret instead.")
    return parts


def _open(address: Address, allow: Sequence[str]) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if any(address in network for network in _networks(allow)):
        return True
    if any(address in carrier for carrier in _CARRIERS if carrier.version == address.version):
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def _networks(allow: Sequence[str]) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    """Those of the allowed that are networks or addresses; the others are names of hosts."""
    found = []
    for each in allow:
        try:
            found.append(ipaddress.ip_network(each, strict=False))
        except ValueError:
            continue
    return found
