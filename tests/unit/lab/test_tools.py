import posixpath
import time
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from gpuops.lab import tree
from gpuops.lab.identity import identity, personalize
from gpuops.lab.machine import healthy, names
from gpuops.lab.tools.programs import PROGRAMS, run


def out(command, machine="hgx-h100", *, root=True):
    program, *words = command.split()
    return run(healthy(machine), program, words, root=root)


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_arguments_break_a_tool(program):
    for machine in names():
        for words in ([], ["--nonsense"], ["-s"], ["-p"], ["-f"], ["-d"], [""], ["show", "x", "-p"], ["-W", "-f"]):
            answer = run(healthy(machine), program, words, root=False)
            assert answer.code or answer.out, words


@pytest.mark.parametrize("machine", names())
def test_xml_text_and_csv_tell_the_same_of_every_gpu(machine):
    gpus = ET.fromstring(out("nvidia-smi -q -x", machine).out).findall("gpu")
    text = out("nvidia-smi -q", machine).out
    csv = out("nvidia-smi --query-gpu=uuid,temperature.gpu,enforced.power.limit --format=csv,noheader", machine).out
    assert len(gpus) == len(healthy(machine).gpus)
    for gpu, row in zip(gpus, csv.splitlines(), strict=True):
        uuid, celsius, limit = row.split(", ")
        assert gpu.findtext("uuid") == uuid
        assert gpu.findtext("temperature/gpu_temp") == f"{celsius} C"
        assert gpu.findtext("gpu_power_readings/current_power_limit") == limit
        assert f": {uuid}\n" in text


@pytest.mark.parametrize("machine", names())
def test_memory_adds_up(machine):
    for gpu in ET.fromstring(out("nvidia-smi -q -x", machine).out).findall("gpu"):
        total, *parts = (int(e.text.split()[0]) for e in gpu.find("fb_memory_usage"))
        assert total == sum(parts)


@pytest.mark.parametrize("machine", names())
def test_table_has_one_width(machine):
    lines = out("nvidia-smi", machine).out.splitlines()[1:]
    assert {len(line) for line in lines if line} == {91}


def test_csv_refuses_unknown_fields_in_nvidias_words():
    answer = out("nvidia-smi --query-gpu=index,temperature --format=csv")
    assert (answer.code, answer.out) == (2, 'Field "temperature" is not a valid field to query.\n\n')


def test_csv_header_and_units_can_be_left_out():
    assert out("nvidia-smi --query-gpu=index,power.limit --format=csv").out.splitlines()[:2] == [
        "index, power.limit [W]",
        "0, 700.00 W",
    ]
    assert (
        out("nvidia-smi --query-gpu=index,power.limit --format=csv,noheader,nounits").out.splitlines()[0] == "0, 700.00"
    )


def test_only_root_reads_the_kernel_log():
    assert out("dmesg").code == 0
    refused = out("dmesg", root=False)
    assert (refused.code, refused.out) == (1, "")
    assert "Operation not permitted" in refused.err
    assert out("journalctl -k", root=False).out == "-- No entries --\n"
    assert "Linux version" in out("journalctl -k -b").out


def test_the_kernel_log_can_be_dated():
    node = replace(healthy("hgx-h100"), booted=1_700_000_000.0)
    plain, dated = (run(node, "dmesg", words, root=True).out.splitlines() for words in ([], ["-T"]))
    assert dated[0].startswith(f"[{time.ctime(1_700_000_000)}] Linux version")
    assert [row.partition("] ")[2] for row in dated] == [row.partition("] ")[2] for row in plain]
    first = run(node, "journalctl", ["-k"], root=True).out.splitlines()[0]
    assert first.startswith(time.strftime("%b %d %H:%M:%S ~host~ kernel: Linux", time.localtime(1_700_000_000)))


def test_lspci_shows_capabilities_to_root_only():
    assert "LnkSta:" in out("lspci -vv -s 1b:00.0").out
    assert "LnkSta:" not in out("lspci -vv -s 1b:00.0", root=False).out


def test_lspci_selects_by_vendor_device_and_slot():
    assert len(out("lspci -d 10de:").out.splitlines()) == 12
    assert len(out("lspci -d 10de:2330").out.splitlines()) == 8
    assert out("lspci -Dnn -s 0000:18:00.0").out.startswith("0000:18:00.0 Infiniband controller [0207]: Mellanox")
    assert len(out("lspci -d 10de:", "titan-rtx-2x").out.splitlines()) == 8


def test_systemctl_answers_in_the_order_of_the_units():
    shown = out("systemctl show --property=Id,ActiveState nvidia-fabricmanager no-such-unit").out
    assert (
        shown
        == "Id=nvidia-fabricmanager.service\nActiveState=active\n\nId=no-such-unit.service\nActiveState=inactive\n"
    )
    assert out("systemctl is-active no-such-unit").code == 3
    assert out("systemctl restart docker", root=False).code == 1


def test_dpkg_query_takes_a_format_and_patterns():
    command = ["-W", "-f", "${Package}=${Version}\\n", "libnccl*"]
    assert run(healthy("hgx-h100"), "dpkg-query", command, root=False).out == "libnccl2=2.28.9-1+cuda13.0\n"


def test_df_adds_up():
    for row in out("df -l -P -k").out.splitlines()[1:]:
        size, used, available = (int(n) for n in row.split()[1:4])
        assert used + available <= size


def test_machines_without_nics_or_fabric_manager_say_so():
    assert out("ibstat", "titan-rtx-2x").code != 0
    assert out("nv-fabricmanager --version", "titan-rtx-2x").code == 127
    assert out("chronyc tracking", "titan-rtx-2x").code == 127


@pytest.mark.parametrize("machine", names())
def test_every_link_of_the_tree_leads_somewhere(machine):
    node = healthy(machine)
    folders = {posixpath.dirname(path) for path in tree.files(node)}
    for path, target in tree.links(node).items():
        led = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        assert any(folder == led or folder.startswith(f"{led}/") for folder in folders), path


def test_hosts_differ_only_in_their_own_values():
    text = out("nvidia-smi -q -x").out + "".join(tree.files(healthy("hgx-h100")).values())
    one, other = (personalize(text, identity(name, 0.0)) for name in ("gpu01", "gpu02"))
    assert one != other
    assert personalize(text, identity("gpu01", 0.0)) == one
    assert set("~") & set(one) <= set("~")
    for token in identity("gpu01", 0.0):
        assert token not in one


def test_values_are_as_wide_as_the_columns_expect():
    for token, value in identity("gpu01", 0.0).items():
        if token in ("~hi~", "~lo~", "~serial~"):
            assert len(token) == len(value)
