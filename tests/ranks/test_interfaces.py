"""Which network interface holds an address, and when Gloo is told of it."""

import os
import socket
import sys

import pytest

from pytest_roofline.ranks import listener
from pytest_roofline.ranks.listener import GLOO_VARIABLE, interface_of, is_loopback, keep_gloo_reachable

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems number the request otherwise")


@linux
def test_the_loopback_is_found_by_its_address():
    name = interface_of("127.0.0.1")

    assert name in [known for _, known in socket.if_nameindex()]
    assert interface_of("::ffff:127.0.0.1") == name


@pytest.mark.parametrize("address", ["", "node7", "203.0.113.9", "2001:db8::9"])
def test_an_address_that_no_interface_holds_is_nobodys(address):
    assert interface_of(address) is None


def test_the_second_family_is_read_from_the_kernels_table(monkeypatch, tmp_path):
    table = tmp_path / "if_inet6"
    table.write_text("20010db8000000000000000000000009 02 40 00 80     ib0\n\n")
    monkeypatch.setattr(listener, "_IPV6", table)

    assert interface_of("2001:db8::9") == interface_of("2001:db8::9%ib0") == "ib0"


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.1.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.1", False),
        ("fe80::1%ib0", False),
        ("localhost", False),
        ("", False),
    ],
)
def test_what_leads_to_this_host_only_is_loopback(address, expected):
    assert is_loopback(address) == expected


@pytest.mark.parametrize(
    ("own", "outward", "chosen", "expected"),
    [
        pytest.param("10.0.0.2", "10.0.0.1", None, "eth2", id="its own address"),
        pytest.param("127.0.0.1", "10.0.0.1", None, "eth1", id="beside the controller"),
        pytest.param("127.0.0.1", "", None, None, id="nobody knows"),
        pytest.param("10.0.0.9", "10.0.0.1", None, None, id="no interface of that address"),
        pytest.param("10.0.0.2", "10.0.0.1", "ib0", "ib0", id="the user's choice"),
    ],
)
def test_gloo_is_told_the_interface_that_other_nodes_reach(monkeypatch, own, outward, chosen, expected):
    monkeypatch.setattr(listener, "interface_of", {"10.0.0.1": "eth1", "10.0.0.2": "eth2"}.get)
    # So that it is put back, whatever becomes of it here.
    monkeypatch.setenv(GLOO_VARIABLE, chosen or "")
    if chosen is None:
        monkeypatch.delenv(GLOO_VARIABLE)
    keep_gloo_reachable(own, outward)

    assert os.environ.get(GLOO_VARIABLE) == expected
