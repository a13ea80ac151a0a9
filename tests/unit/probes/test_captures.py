import json
import pathlib
import re

import pytest
from tests.unit.probes.capture_format import KINDS, expectation

from gpuops.catalogue import Catalogue
from gpuops.probes.nvidia.nvidia_smi.xml import parse_xml
from gpuops.probing import Unknown

CAPTURES = pathlib.Path(__file__).parents[4] / "shared" / "captures"
ABOUT_THE_ORACLE = ("oracle", "parse_warning")
DEVIATIONS = {
    "ibstat/superbench-multi-node-ibstat.txt": (
        "ibstat lists no port",
        "expected is an empty list; the text is a list of host names and GUIDs, not ibstat's: nothing was seen there",
    ),
    "inventory/stackhpc-caas-groups.ini": (
        "unknown group",
        "expected is an empty inventory beside Ansible's warning that it could not parse the file; that is refused",
    ),
}
"""Where an expectation is a value and ours is `Unknown`: what ours says, and why it stays so."""
UNEXPECTED = {"nvsmi_q": {"n_processes"}}
"""What only some expectations of a kind tell, and ours always."""


def captures(*, expected):
    paths = [path for kind in KINDS for path in sorted((CAPTURES / kind).glob("*")) if path.suffix != ".json"]
    return [f"{p.parent.name}/{p.name}" for p in paths if p.with_name(f"{p.name}.expect.json").exists() == expected]


pytestmark = pytest.mark.skipif(not CAPTURES.is_dir(), reason="the collection of captures is not beside this checkout")


def expected_of(name):
    expected = json.loads((CAPTURES / f"{name}.expect.json").read_text())
    return {key: value for key, value in expected.items() if key not in ABOUT_THE_ORACLE}


def number(text):
    """The number that a text like ``81559 MiB`` or ``16x`` begins with."""
    found = re.match(r"\s*(\d+)", text or "")
    return int(found[1]) if found else None


def read(name):
    return (CAPTURES / name).read_bytes().decode(errors="replace")


def test_every_kind_of_the_collection_can_be_parsed():
    assert set(KINDS) <= set(Catalogue().kinds())


@pytest.mark.parametrize("name", captures(expected=True))
def test_a_capture_says_what_is_expected_of_it(name):
    kind = name.partition("/")[0]
    ours, expected = expectation(kind, read(name)), expected_of(name)
    if name in DEVIATIONS:
        assert isinstance(ours, Unknown)
        assert DEVIATIONS[name][0] in ours.why
        return
    assert not isinstance(ours, Unknown), ours
    untold = UNEXPECTED.get(kind, set()) - set(expected)
    assert {key: value for key, value in ours.items() if key not in untold} == expected


@pytest.mark.parametrize("name", captures(expected=False))
def test_a_capture_without_an_expectation_is_read_or_unknown(name):
    assert isinstance(expectation(name.partition("/")[0], read(name)), (dict, Unknown))


@pytest.mark.parametrize("name", [name for name in captures(expected=True) if name.startswith("nvsmi_xml/")])
def test_a_gpu_has_the_numbers_that_its_capture_prints(name):
    for gpu, printed in zip(parse_xml(read(name)).gpus, expected_of(name)["gpus"], strict=True):
        assert gpu.memory_total_mib == number(printed["memory_total"])
        assert gpu.temperature_celsius == number(printed["temp"])
        assert gpu.utilization_percent == number(printed["util"])
        assert [gpu.pcie_generation, gpu.pcie_generation_max] == [number(text) for text in printed["pcie_gen"]]
        assert [gpu.pcie_width, gpu.pcie_width_max] == [number(text) for text in printed["pcie_width"]]
        assert gpu.address == printed["id"].lower()[-12:]


@pytest.mark.parametrize("name", [name for name in captures(expected=True) if name.startswith("nvsmi_xml/")])
def test_what_is_skipped_in_an_answer_indented_as_nvidia_smi_does_changes_nothing(name):
    text = read(name)
    assert parse_xml(text) == parse_xml(re.sub(r"\n[ \t]+", "\n", text))


@pytest.mark.parametrize("name", [name for name in captures(expected=True) if not name.startswith("inventory/")])
def test_the_first_half_of_a_capture_never_claims_more_than_the_whole(name):
    text = read(name)
    half = expectation(name.partition("/")[0], text[: len(text) // 2])
    assert isinstance(half, Unknown) or len(json.dumps(half)) <= len(
        json.dumps(expectation(name.partition("/")[0], text))
    )
