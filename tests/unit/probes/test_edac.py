import pytest

from gpuops.probes.host.edac import Dimm, parse_edac
from gpuops.probing import Unknown

ROOT = "/sys/devices/system/edac/mc"


def files(**contents):
    names = {f"{ROOT}/{name.replace('__', '/')}": text for name, text in contents.items()}
    return "".join(f"{path}\0{text}\n\0" for path, text in {"/sys/devices/system": "", **names}.items())


def test_counts_of_controllers_and_dimms():
    counts = parse_edac(
        files(
            mc0__ce_count="3",
            mc0__ue_count="1",
            mc0__dimm0__size="65536",
            mc0__dimm0__dimm_label="CPU_SrcID#0_MC#0_Chan#0_DIMM#0",
            mc0__dimm0__dimm_ce_count="3",
            mc0__dimm0__dimm_ue_count="1",
            mc0__rank1__size="8192",
        )
    )
    assert counts.controllers == {"mc0": (3, 1)}
    assert counts.dimms == (
        Dimm("mc0", "CPU_SrcID#0_MC#0_Chan#0_DIMM#0", 3, 1, 65536),
        Dimm("mc0", "mc0/rank1", None, None, 8192),
    )


def test_no_controller_is_not_the_same_as_not_seen():
    assert parse_edac(files()).controllers == {}
    assert isinstance(parse_edac(""), Unknown)


@pytest.mark.parametrize("text", ["", "many", "-"])
def test_a_count_that_is_no_number_is_none(text):
    assert parse_edac(files(mc0__ue_count=text)).controllers == {"mc0": (None, None)}
