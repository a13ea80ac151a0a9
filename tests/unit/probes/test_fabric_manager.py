import pytest

from gpuops.probes.nvidia.fabric_manager import FabricManager, fabric_manager, parse_fabric_manager
from gpuops.probing import Unknown


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("Fabric Manager version is : 580.126.16\n", "580.126.16"),
        ("Fabric Manager version is : 535.104\n", "535.104"),
        ("some warning\nnv-fabricmanager Version: 550.90.07 \n", "550.90.07"),
    ],
)
def test_the_version(text, version, answer):
    assert fabric_manager.read(answer(fabric_manager, text)) == FabricManager(version)


def test_a_cut_version_is_unknown():
    text = "Fabric Manager version is : 580.126.16\n"
    assert all(isinstance(parse_fabric_manager(text[:end]), Unknown) for end in range(len(text)))
