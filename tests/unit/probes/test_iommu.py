from gpuops.probes.host.iommu import Iommu, iommu, parse_iommu
from gpuops.probing import Unknown

DEVICE = "/sys/class/infiniband/mlx5_0/device/iommu_group/type"


def test_units_and_domains(files_text):
    files = {"/sys/class": "", "/sys/class/iommu/dmar0": "../../devices/virtual/iommu/dmar0", DEVICE: "DMA-FQ\n"}
    assert parse_iommu(files_text(files)) == Iommu(("dmar0",), {"mlx5_0": "DMA-FQ"})


def test_none_is_an_answer_and_silence_is_not(files_text, answer):
    assert parse_iommu(files_text({"/sys/class": ""})) == Iommu()
    assert isinstance(iommu.read(answer(iommu)), Unknown)
