import pytest

from gpuops.errors import DocumentError, PatternError
from gpuops.inventory import Inventory

SITE = """
h100:
  hosts: {'gpu[01:06]': }
rack1:
  hosts: {'gpu0[1:2]': , 'login.example.com': }
rack2:
  hosts: {'gpu[03:05]': }
racks:
  children: {rack1: , rack2: }
desk:
  hosts: {titan: , '2001:db8::7': }
"""


@pytest.fixture
def site(load):
    return load(SITE)


CHOSEN = {
    # checked with ansible --list-hosts (ansible-core 2.19); ranges, node sets and commas in a regex it does not know
    "all": "gpu01 gpu02 gpu03 gpu04 gpu05 gpu06 login.example.com titan 2001:db8::7",
    "*": "gpu01 gpu02 gpu03 gpu04 gpu05 gpu06 login.example.com titan 2001:db8::7",
    "titan": "titan",
    "rack1": "gpu01 gpu02 login.example.com",
    "racks": "gpu01 gpu02 gpu03 gpu04 gpu05 login.example.com",
    "h100:&rack1": "gpu01 gpu02",
    "h100:&racks:!gpu05": "gpu01 gpu02 gpu03 gpu04",
    "h100,!gpu05,&racks": "gpu01 gpu02 gpu03 gpu04",
    "!h100": "login.example.com titan 2001:db8::7",
    "&rack2": "gpu03 gpu04 gpu05",
    "titan,gpu06": "gpu06 titan",
    "gpu0*:!gpu01": "gpu02 gpu03 gpu04 gpu05 gpu06",
    "rack*": "gpu01 gpu02 gpu03 gpu04 gpu05 login.example.com",
    "rack?:!*.example.com": "gpu01 gpu02 gpu03 gpu04 gpu05",
    "gpu0[!12]": "gpu03 gpu04 gpu05 gpu06",
    "~gpu0[1-3]": "gpu01 gpu02 gpu03",
    "~(gpu01|titan)$": "gpu01 titan",
    "~gpu0[12]:!gpu02": "gpu01",
    "~gpu0{1,1}1$": "gpu01",
    "h100[0]": "gpu01",
    "h100[-1]": "gpu06",
    "h100[-2]": "gpu05",
    "h100[1:3]": "gpu02 gpu03 gpu04",
    "h100[4:]": "gpu05 gpu06",
    "h100[1:2]:!gpu02": "gpu03",
    "gpu[01:03]": "gpu01 gpu02 gpu03",
    "gpu[01-03,06]": "gpu01 gpu02 gpu03 gpu06",
    "gpu[01-05/2]:!gpu03": "gpu01 gpu05",
    "rack1:gpu[05-06]": "gpu01 gpu02 gpu05 gpu06 login.example.com",
    "2001:db8::7": "2001:db8::7",
    "!2001:db8::7,desk": "titan",
    " titan , gpu01 ": "gpu01 titan",
    "ungrouped,titan": "titan",
}


@pytest.mark.parametrize("pattern", CHOSEN)
def test_a_pattern_selects_in_inventory_order(pattern, site):
    assert [host.name for host in site.select(pattern)] == CHOSEN[pattern].split()


WRONG = {
    "gpu07": 'no host or group called "gpu07"; did you mean "gpu06"?',
    "h100:!gpu99": 'no host or group called "gpu99"',
    "h100:&rak1": 'no host or group called "rak1"; did you mean "rack1"?',
    "zz*": 'no host or group called "zz*"',
    "~zz": 'no host or group called "~zz"',
    "~(": '"~(" is not a regular expression: ',
    "gpu[05:08]": 'no host or group called "gpu07" (in "gpu[05:08]"); did you mean "gpu06"?',
    "gpu[05-99]": 'no host or group called "gpu07" (in "gpu[05-99]")',
    "t[1-99999999]": '"t[1-99999999]" contains more than 100000 hosts',
    "t[1-9999]-[1-9999]": '"t[1-9999]-[1-9999]" contains more than 100000 hosts',
    "gpu[5:1]": "range [5:1] is empty",
    "gpu[1-": '"gpu[1-" is not a node set',
    "gpu[x]": '"gpu[x]" is not a node set',
    "gpu[3-1]": '"gpu[3-1]" is not a node set: 3-1 ends below its beginning',
    "h100[9]": '"h100[9]" is out of range: group h100 has 6 hosts, numbered from 0',
    "rack1:&rack2": 'pattern "rack1:&rack2" selects no hosts',
    "ungrouped": 'pattern "ungrouped" selects no hosts',
    "": "empty host pattern; to select every host, use all",
    ",:": "empty host pattern",
    "!": 'no host or group called ""',
}


@pytest.mark.parametrize("pattern", WRONG)
def test_a_pattern_that_means_nothing_is_an_error(pattern, site):
    with pytest.raises(PatternError) as error:
        site.select(pattern)
    assert str(error.value).startswith(WRONG[pattern])
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there_is_an_error(site):
    with pytest.raises(DocumentError, match=r"failed.retry: cannot be read: no such file"):
        site.select("@failed.retry")


def test_a_file_holds_terms_line_by_line(site, write):
    write("failed.retry", "gpu02\n\ntitan\n")
    assert [host.name for host in site.select("@failed.retry:!gpu02")] == ["titan"]


def test_limiting_keeps_groups_and_drops_their_other_hosts(site):
    limited = site.limit("rack1:!gpu01")
    assert list(limited.hosts) == ["gpu02", "login.example.com"]
    assert limited.groups["h100"].hosts == ("gpu02",)
    assert limited.groups["racks"].children == ("rack1", "rack2")
    assert limited.groups["rack2"].hosts == ()
    assert [h.name for h in limited.select("racks")] == ["gpu02", "login.example.com"]


def test_every_name_of_an_inventory_selects_its_own_host():
    inventory = Inventory.of_names(["gpu[01:03]", "a.b-c_d", "::1"])
    for name in inventory.hosts:
        assert [host.name for host in inventory.select(name)] == [name]
