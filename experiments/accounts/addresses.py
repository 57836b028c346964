"""What counts as one network address, for limits: nobody has more than one by counting up. Knows neither Django nor sockets."""

from __future__ import annotations

import ipaddress


def network_of(host: str) -> str:
    """An IPv4 address, or the /64 of an IPv6 one, of which everybody has a whole network; as it is where it is neither."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        return str(address.ipv4_mapped or ipaddress.ip_network((address, 64), strict=False))
    return host
