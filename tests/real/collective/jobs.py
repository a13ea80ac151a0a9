"""Jobs of train.py on the shaped hosts, and what the planner says of the same jobs."""

import json
import math
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from tests.real.collective.conftest import ADDRESSES

from gpuops.layout import parse_layout
from gpuops.planner.candidates import Candidates
from gpuops.planner.constants import PRIORS
from gpuops.planner.gpus import GpuSpec
from gpuops.planner.hardware import ClusterSpec
from gpuops.planner.model import from_sizes
from gpuops.planner.step_time import step_time
from gpuops.planner.training import TrainingSetup

TRAIN = Path(__file__).parent / "train.py"
SIZES = {"layers": 8, "hidden": 128, "heads": 8, "vocab": 256}
MODEL = from_sizes(SIZES)
SEQUENCE, BATCH = 64, 16
TRAINING = TrainingSetup(SEQUENCE, BATCH, framework="deepspeed", fp32_gradients=False, dp_overlap=False)
CONSTANTS = replace(  # nothing is overlapped, and a core needs few rows to be as fast as it can
    PRIORS, tp_exposed=1.0, p2p_efficiency=1.0, half_tokens=1.0, fixed_ms=0.0, launch_us=500.0
)


def trained(links, layouts, steps=4):
    """Return what train.py printed: for each layout the seconds of its fastest step, and its loss."""
    wanted = [{axis: getattr(layout, axis) for axis in ("dp", "tp", "pp", "mbs", "chunks")} for layout in layouts]
    job = json.dumps({**SIZES, "layouts": wanted, "sequence": SEQUENCE, "steps": steps})
    ranks = [
        subprocess.Popen(
            links.network.words("ip", "netns", "exec", name, sys.executable, TRAIN, rank, ADDRESSES["n1"], job),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, name in enumerate(ADDRESSES)
    ]
    try:
        out, err = ranks[0].communicate(timeout=300)
        assert ranks[0].returncode == 0, err
    finally:
        for process in ranks:
            process.kill()
            process.communicate()
    return json.loads(out)


@dataclass(frozen=True)
class Planned:
    """Layouts, and the cluster whose nodes have one slow "GPU" each, with links of ``mbit`` Mbit/s.

    The trainer has four bytes where the planner counts two, so that a link of a rate carries half of its elements.
    """

    layouts: list
    mbit: float

    def cluster(self, tflops):
        """Return the cluster if a node computes at this rate."""
        core = GpuSpec("core", "volta", 8 << 30, 10.0, {"fp16": tflops}, {"fp16": 1.0})
        gb_per_s = 0.95 * self.mbit / 8000 / 2
        spec = ClusterSpec("links", core, 8, 1, 1, gb_per_s, gb_per_s, has_nvlink=False, network_latency_us=500.0)
        return spec.with_constants(CONSTANTS, "a core")

    def seconds(self, cluster):
        """Return the predicted seconds of a step of each layout."""
        return [float(s) for s in step_time(MODEL, cluster, TRAINING, Candidates.of(self.layouts)).total]

    def calibrated(self, index, measured):
        """Return the cluster with the rate of products at which this layout takes as long as it was measured to."""
        low, high = 1e-6, 10.0
        for _ in range(60):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if self.seconds(self.cluster(middle))[index] > measured else (low, middle)
        return self.cluster(high)


def layouts_of(*texts):
    """Return layouts of the eight hosts."""
    return [parse_layout(text) for text in texts]
