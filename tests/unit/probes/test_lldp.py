import pytest

from gpuops.probes.network.lldp import lldp
from gpuops.probing import Unknown

TEXT = """\
lldp.eth2.via=LLDP
lldp.eth2.rid=1
lldp.eth2.chassis.mac=94:6d:ae:00:00:01
lldp.eth2.chassis.name=leaf-1
lldp.eth2.port.ifname=swp17
lldp.bond0.100.via=LLDP
lldp.bond0.100.chassis.name=leaf-2
lldp.eth3.via=LLDP
lldp.eth3.chassis.name=leaf-1
lldp.eth3.via=LLDP
lldp.eth3.chassis.name=leaf-9
lldp.eth4.via=CDPv2
"""


def test_each_interface_has_the_switch_that_it_hears(answer):
    assert lldp.read(answer(lldp, TEXT)) == {"eth2": "leaf-1", "bond0.100": "leaf-2"}


@pytest.mark.parametrize("text", ["", "\n", "no lldpd here\n", TEXT[:20]])
def test_where_nobody_is_heard_it_is_unknown(answer, text):
    assert isinstance(lldp.read(answer(lldp, text)), Unknown)
