import json
import re

import pytest
from tests.recorded import expectation_of, name_of, outputs
from tests.unit.probes.capture_format import KINDS, expectation

from gpuops.catalogue import Catalogue
from gpuops.probes.nvidia.nvidia_smi.xml import parse_xml
from gpuops.probing import Unknown

ABOUT_THE_ORACLE = ("oracle", "parse_warning")
DEVIATIONS = {
    "ibstat/superbench-multi-node-ibstat.txt": (
        "ibstat lists no port",
        "expected is an empty list; the text is a list of host names and GUIDs, not ibstat's: nothing was seen there",
    ),
    "inventory/unknown-child.ini": ("unknown group", "a group's children are declared nowhere; that is refused"),
    "inventory/stackhpc-caas-groups.ini": (
        "unknown group",
        "expected is an empty inventory beside Ansible's warning that it could not parse the file; that is refused",
    ),
}
"""Where an expectation is a value and ours is `Unknown`: what ours says, and why it stays so."""
UNEXPECTED = {"nvsmi_q": {"n_processes"}}
"""What only some expectations of a kind tell, and ours always."""


def captures(*kinds, expected=True):
    paths = [path for kind in kinds or KINDS for path in outputs(kind)]
    return [pytest.param(path, id=name_of(path)) for path in paths if expectation_of(path).exists() == expected]


def expected_of(path):
    expected = json.loads(expectation_of(path).read_text())
    return {key: value for key, value in expected.items() if key not in ABOUT_THE_ORACLE}


def number(text):
    """The number that a text like ``81559 MiB`` or ``16x`` begins with."""
    found = re.match(r"\s*(\d+)", text or "")
    return int(found[1]) if found else None


def read(path):
    return path.read_bytes().decode(errors="replace")


def test_every_kind_of_the_collection_can_be_parsed():
    assert set(KINDS) <= set(Catalogue().kinds())


@pytest.mark.parametrize("kind", KINDS)
def test_there_are_specimens_of_every_kind(kind):
    assert len(captures(kind)) > 2


@pytest.mark.parametrize("path", captures())
def test_a_capture_says_what_is_expected_of_it(path):
    kind = path.parent.name
    ours, expected = expectation(kind, read(path)), expected_of(path)
    if name_of(path) in DEVIATIONS:
        assert isinstance(ours, Unknown)
        assert DEVIATIONS[name_of(path)][0] in ours.why
        return
    assert not isinstance(ours, Unknown), ours
    untold = UNEXPECTED.get(kind, set()) - set(expected)
    assert {key: value for key, value in ours.items() if key not in untold} == expected


@pytest.mark.parametrize("path", captures(expected=False))
def test_a_capture_without_an_expectation_is_read_or_unknown(path):
    assert isinstance(expectation(path.parent.name, read(path)), (dict, Unknown))


@pytest.mark.parametrize("path", captures("nvsmi_xml"))
def test_a_gpu_has_the_numbers_that_its_capture_prints(path):
    for gpu, printed in zip(parse_xml(read(path)).gpus, expected_of(path)["gpus"], strict=True):
        assert gpu.memory_total_mib == number(printed["memory_total"])
        assert gpu.temperature_celsius == number(printed["temp"])
        assert gpu.utilization_percent == number(printed["util"])
        assert [gpu.pcie_generation, gpu.pcie_generation_max] == [number(text) for text in printed["pcie_gen"]]
        assert [gpu.pcie_width, gpu.pcie_width_max] == [number(text) for text in printed["pcie_width"]]
        assert gpu.address == printed["id"].lower()[-12:]


@pytest.mark.parametrize("path", captures("nvsmi_xml"))
def test_what_is_skipped_in_an_answer_indented_as_nvidia_smi_does_changes_nothing(path):
    text = read(path)
    assert parse_xml(text) == parse_xml(re.sub(r"\n[ \t]+", "\n", text))


@pytest.mark.parametrize("path", captures(*(kind for kind in KINDS if kind != "inventory")))
def test_the_first_half_of_a_capture_never_claims_more_than_the_whole(path):
    kind, text = path.parent.name, read(path)
    half = expectation(kind, text[: len(text) // 2])
    assert isinstance(half, Unknown) or len(json.dumps(half)) <= len(json.dumps(expectation(kind, text)))
