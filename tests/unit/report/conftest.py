import datetime as dt
from dataclasses import replace

import pytest

from gpuops.errors import ConnectError
from gpuops.judging import Finding, Verdict
from gpuops.probing import PartName
from gpuops.profile import Profile
from gpuops.reasons import excluded_by
from gpuops.results.health import Run, build

STARTED = dt.datetime(2026, 1, 5, 14, 2, 11, tzinfo=dt.timezone.utc)
H100 = Profile("hgx-h100", required=frozenset({"gpu-count"}))


@pytest.fixture
def h100():
    return H100


@pytest.fixture
def run():
    return Run("0.1.0", STARTED, "prod.yml", "quick", 4.1, "gpuops validate -i prod.yml")


@pytest.fixture
def judged():
    """Return a function that makes the verdict of a check on a node, with findings completed as in judging."""

    def make(check, host, status, *findings, scope="node"):
        own = tuple(replace(finding, check=check, host=host, scope=scope) for finding in findings)
        return Verdict(check, host, status, own, scope=scope)

    return make


@pytest.fixture
def rack(run, judged):
    """Return a report on sixteen nodes: a lost GPU, a slow port, a wrong driver, and three nodes not judged."""
    nodes = {f"gpu{n:03d}": H100 for n in range(1, 17)}
    late = ConnectError("gpu015", "connection timed out after 10 s (10.2.0.15:22)", "timeout")
    nodes["gpu015"] = excluded_by("gpu015", late)
    reached = [name for name in nodes if name not in {"gpu015", "gpu016"}]
    verdicts = [Verdict("gpu-count", name, "unknown" if name == "gpu014" else "pass", why="hung") for name in reached]
    verdicts += [Verdict("clock", name, "unknown", why="chronyc is not installed") for name in reached[:3]]
    verdicts += [Verdict("ecc", name, "unknown", why="refused", needs_root=True) for name in reached[:2]]
    verdicts += [
        judged("gpu-lost", "gpu004", "fail", LOST),
        judged("ib-rate", "gpu009", "fail", SLOW),
        judged("driver-agrees", "gpu010", "fail", STRAY, scope="group"),
        judged("driver-agrees", "", "warn", SPLIT, scope="group"),
        Verdict("ecc", "gpu005", "skipped", why="this card has no ECC"),
        Verdict("ecc", "gpu016", "skipped", why="this card has no ECC"),
    ]
    return replace(build(run, nodes, verdicts), not_run={"standard": ("all-reduce",)})


LOST = Finding(
    "nvidia-smi answers for 7 of 8 GPUs",
    part=PartName("gpu5", "GPU 5 (0000:c3:00.0, serial 1654)"),
    severity="isolate",
    fix="power-cycle the node; if it comes back, send the card in",
    effects=("xid: 79 at 13:58:02", "nvlink: 18 links down"),
)
SLOW = Finding(
    "the port is slow",
    expected=400.0,
    found=200,
    unit="Gbit/s",
    fix="reseat the optic at gpu009 port 3",
    part=PartName("mlx5_3", "mlx5_3 (rail 3)"),
    severity="reset",
)
STRAY = Finding("not the fleet's driver", expected="580.159", found="580.126", part="driver", severity="reboot")
SPLIT = Finding("two drivers, half each", part="driver", severity="warn")
