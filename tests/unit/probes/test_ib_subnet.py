import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuops.probes.network.ib_subnet import IbSubnet, ib_subnet
from gpuops.probing import Unknown
from gpuops.shell import Completed

ROOT = "/sys/class/infiniband"


def answer(**files):
    """What the agent sends: ``sm_lid`` and ``pkeys/N`` of mlx5_0."""
    parts = ["/sys/class", ""]
    for name, text in files.items():
        parts += [f"{ROOT}/mlx5_0/ports/1/{name.replace('__', '/')}", f"{text}\n"]
    return "".join(f"{part}\0" for part in parts)


def read(out):
    return ib_subnet.read(Completed("n1", ib_subnet.question, 0, out))


def test_keys_are_those_of_a_tenant_on_azure():
    (port,) = read(answer(sm_lid="0x1", pkeys__0="0x800b", pkeys__1="0x7fff", pkeys__2="0x0000", pkeys__3="0x0000"))
    assert port == IbSubnet("mlx5_0", 1, 1, (0x800B, 0x7FFF))
    assert port.membership == {0x000B: True, 0x7FFF: False}


def test_full_membership_outweighs_limited_membership_of_the_same_partition():
    (port,) = read(answer(sm_lid="0x1", pkeys__0="0x7fff", pkeys__1="0xffff"))
    assert port.membership == {0x7FFF: True}


def test_port_that_no_manager_reached_has_lid_0():
    assert read(answer(sm_lid="0x0", pkeys__0="0xffff"))[0].sm_lid == 0


def test_machine_without_rdma_has_no_port():
    assert read("/sys/class\0\0") == ()
    assert isinstance(read(""), Unknown)


@pytest.mark.parametrize("text", ["", "garbage", "1", "0x", "0x12345", "0xzz"])
def test_numbers_that_cannot_be_read_are_none(text):
    (port,) = read(answer(sm_lid=text, pkeys__0=text))
    assert (port.sm_lid, port.pkeys) == (None, None)


@given(st.integers(0, 400))
def test_cut_answer_invents_no_key(length):
    whole = answer(sm_lid="0x1", pkeys__0="0x800b", pkeys__1="0x7fff")
    value = read(whole[:length])
    assert isinstance(value, Unknown) or all(set(port.pkeys or ()) <= {0x800B, 0x7FFF} for port in value)
