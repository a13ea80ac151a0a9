import json

import pytest

from gpuops.probes.network.addresses import Address, addresses, parse_addresses
from gpuops.probing import Unknown

GUID = "80:00:02:08:fe:80:00:00:00:00:00:00:0c:42:a1:03:00:5e:a1:b2"
LINKS = [
    {
        "ifname": "lo",
        "flags": ["LOOPBACK", "UP", "LOWER_UP"],
        "link_type": "loopback",
        "addr_info": [{"family": "inet", "local": "127.0.0.1", "prefixlen": 8, "scope": "host"}],
    },
    {
        "ifname": "eno1",
        "flags": ["BROADCAST", "MULTICAST", "UP", "LOWER_UP"],
        "link_type": "ether",
        "address": "3c:ec:ef:00:00:01",
        "addr_info": [
            {"family": "inet", "local": "10.0.0.7", "prefixlen": 24, "scope": "global"},
            {"family": "inet6", "local": "fe80::1", "prefixlen": 64, "scope": "link"},
        ],
    },
    {
        "ifname": "ib0",
        "flags": ["BROADCAST", "UP"],
        "link_type": "infiniband",
        "address": GUID,
        "addr_info": [{"family": "inet", "local": "10.1.0.7", "prefixlen": 16, "scope": "global"}],
    },
    {
        "ifname": "eno2",
        "flags": ["BROADCAST"],
        "addr_info": [{"family": "inet", "local": "10.2.0.7", "prefixlen": 16, "scope": "global"}],
    },
]


def test_addresses_of_interfaces_that_are_up_come_with_their_network(answer):
    assert addresses.read(answer(addresses, json.dumps(LINKS))) == (
        Address("eno1", "10.0.0.7", "10.0.0.0/24", "ether", "3c:ec:ef:00:00:01"),
        Address("ib0", "10.1.0.7", "10.1.0.0/16", "infiniband", GUID),
    )


@pytest.mark.parametrize("text", ["", "Usage: ip [ OPTIONS ]", "{}", "[1]", '[{"flags": ["UP"], "addr_info": [{}]'])
def test_what_is_not_the_list_of_ip_is_unknown(text):
    assert isinstance(parse_addresses(text), Unknown)
