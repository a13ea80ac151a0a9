from gpuops.collective.measurement import Measurement
from gpuops.collective.nvlink import NvlinkComparison, NvlinkGain, Training
from gpuops.isolation.evidence import Blame, Evidence
from gpuops.isolation.fabric import Fabric
from gpuops.probing import Unknown
from gpuops.report.all_reduce.nvlink import lines
from gpuops.report.page import Page

GAINS = {"titan": NvlinkGain("titan", 47.25, 9.5), "gpu01": Unknown("not measured without NVLink: hang")}


def trained(row, seconds, *, alike=True, gpus=2):
    return Training(row, seconds, 1600 / seconds, gpus, 124_439_808, alike=alike, torch="2.13.0")


ROWS = {
    "titan": {
        "dp": trained("dp", 110.0),
        "ddp": trained("ddp", 101.0),
        "ddp-no-p2p": trained("ddp-no-p2p", 131.0),
    }
}


def rendered(gains, rows, page):
    return list(lines(NvlinkComparison(Measurement(Evidence(Fabric({})), Blame(), "nccl"), gains, rows), page))


def test_the_whole_page():
    assert "\n".join(rendered(GAINS, ROWS, Page())) == (
        """\
node   with NVLink   without       time saved
titan  47.2 GB/s     9.5 GB/s      80 %
gpu01  not measured without NVLink: hang

titan:
  a GPT of 124 million weights, torch 2.13.0, on 2 GPUs
  DP                  110.0 s   14.55 samples/s
  DDP                 101.0 s   15.84 samples/s
  DDP without NVLink  131.0 s   12.21 samples/s
  NVLink saves 23 % of the training time"""
    )


def test_missing_and_invalid_rows_are_reported():
    rows = {"n1": {"dp": Unknown("DataParallel needs GPUs"), "ddp": trained("ddp", 1.0, alike=False, gpus=0)}}
    said = "\n".join(rendered({}, rows, Page(120)))
    assert "  DP                  DataParallel needs GPUs\n" in said
    assert "on its CPU, so this does not measure its GPUs" in said
    assert "weights differ" in said
    assert "saves" not in said
    both = {f"n{k}": {"ddp": Unknown("no torch")} for k in (1, 2)}
    assert rendered({}, both, Page()) == ["n[1-2]:", "  DDP                 no torch"]


def test_text_of_a_node_cannot_control_the_terminal():
    said = rendered({"n\x1b": Unknown("\x1b[2J")}, {"m\x07": {"ddp": Unknown("\x1b[1m")}}, Page())
    assert all(line.isprintable() for line in said)
