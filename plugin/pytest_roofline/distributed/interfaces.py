"""Network interfaces by their addresses, since Gloo is told by name which of them other nodes reach."""

import contextlib
import ipaddress
import os
import socket
import struct
from collections.abc import Mapping
from pathlib import Path

GLOO_VARIABLE = "GLOO_SOCKET_IFNAME"
# Linux: the first IPv4 address of an interface (man 7 netdevice), in a record whose name has 16 bytes.
_SIOCGIFADDR = 0x8915
_IFREQ = struct.Struct("16s240x")
_ADDRESS = slice(20, 24)
_IPV6 = Path("/proc/net/if_inet6")


def keep_gloo_reachable(own: str, outward: str) -> None:
    """Set the interface on which Gloo meets ranks of other nodes; to be called before the first process group.

    By itself it takes the address of the host's name, which on Debian is 127.0.1.1. What the user chose stays.

    Args:
        own: this end's address of the connection to the controller.
        outward: the controller's own address as other nodes reach it, for ranks beside it; empty where nobody knows.
    """
    if GLOO_VARIABLE in os.environ:
        return
    name = interface_of(outward if is_loopback(own) else own)
    if name is not None:
        os.environ[GLOO_VARIABLE] = name


def is_loopback(address: str) -> bool:
    """Whether an address leads to this host only."""
    with contextlib.suppress(ValueError):
        known = ipaddress.ip_address(address.partition("%")[0])
        mapped = known.ipv4_mapped if isinstance(known, ipaddress.IPv6Address) else None
        return (mapped or known).is_loopback
    return False


def interface_of(address: str) -> str | None:
    """The interface that holds an address; None where the system does not tell, or none does."""
    try:
        wanted = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    if isinstance(wanted, ipaddress.IPv6Address) and wanted.ipv4_mapped is not None:
        wanted = wanted.ipv4_mapped
    known = _ipv4() if isinstance(wanted, ipaddress.IPv4Address) else _ipv6()
    return known.get(wanted)


def _ipv4() -> Mapping[ipaddress.IPv4Address | ipaddress.IPv6Address, str]:
    found: dict[ipaddress.IPv4Address | ipaddress.IPv6Address, str] = {}
    try:
        import fcntl
    except ImportError:
        return found
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            # One without an address refuses to answer.
            with contextlib.suppress(OSError):
                record = fcntl.ioctl(asked, _SIOCGIFADDR, _IFREQ.pack(name.encode()))
                found.setdefault(ipaddress.IPv4Address(record[_ADDRESS]), name)
    return found


def _ipv6() -> Mapping[ipaddress.IPv4Address | ipaddress.IPv6Address, str]:
    with contextlib.suppress(OSError):
        rows = [line.split() for line in _IPV6.read_text(encoding="ascii").splitlines()]
        return {ipaddress.IPv6Address(bytes.fromhex(row[0])): row[5] for row in rows if len(row) > 5}
    return {}
