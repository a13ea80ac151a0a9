"""Ten layouts of a small transformer, trained over shaped links: the planner has them in the measured order."""

import itertools
import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.real.collective.conftest import ADDRESSES

from gpuops.layout import parse_layout
from gpuops.planner.candidates import Candidates
from gpuops.planner.constants import PRIORS
from gpuops.planner.gpus import GpuSpec
from gpuops.planner.hardware import ClusterSpec
from gpuops.planner.model import from_sizes
from gpuops.planner.step_time import step_time
from gpuops.planner.training import TrainingSetup

pytest.importorskip("torch", reason="PyTorch is not installed (pip install 'gpuops[launch]')")

TRAIN = Path(__file__).parent / "train.py"
LAYOUTS = [
    parse_layout(text)
    for text in (
        "dp=8,mbs=2",
        "dp=4,tp=2,mbs=4",
        "dp=2,tp=4,mbs=8",
        "tp=8,mbs=16",
        "dp=4,pp=2,mbs=1,chunks=4",
        "dp=2,pp=4,mbs=1,chunks=8",
        "pp=8,mbs=1,chunks=16",
        "dp=2,tp=2,pp=2,mbs=2,chunks=4",
        "tp=2,pp=4,mbs=2,chunks=8",
        "tp=4,pp=2,mbs=4,chunks=4",
    )
]
CALIBRATION = 1
"""The layout whose measured time says how fast a rank computes; links and everything else are as they were set up."""
SLOWEST = 50
"""Mbit/s."""
SIZES = {"layers": 8, "hidden": 128, "heads": 8, "vocab": 256}
SEQUENCE, BATCH, STEPS = 64, 16, 4


def trained(links):
    """What train.py printed: for each layout the seconds of its fastest step, and its loss."""
    wanted = [{axis: getattr(layout, axis) for axis in ("dp", "tp", "pp", "mbs", "chunks")} for layout in LAYOUTS]
    job = json.dumps({**SIZES, "layouts": wanted, "sequence": SEQUENCE, "steps": STEPS})
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


def predicted(tflops):
    """Seconds of each layout, on nodes of one slow "GPU" each.

    The trainer has four bytes where the planner counts two, so that a link of a rate carries half of its elements.
    """
    core = GpuSpec("core", "volta", 8 << 30, 10.0, {"fp16": tflops}, {"fp16": 1.0})
    gb_per_s = 0.95 * SLOWEST / 8000 / 2
    cluster = ClusterSpec("links", core, 8, 1, 1, gb_per_s, gb_per_s, has_nvlink=False, network_latency_us=500.0)
    setup = TrainingSetup(SEQUENCE, BATCH, framework="deepspeed", fp32_gradients=False, dp_overlap=False)
    own = {"tp_exposed": 1.0, "p2p_efficiency": 1.0, "half_tokens": 1.0, "fixed_ms": 0.0, "launch_us": 500.0}
    constants = replace(PRIORS, **own)  # nothing is overlapped, and a core needs few rows to be as fast as it can
    return [float(s) for s in step_time(from_sizes(SIZES), cluster, setup, Candidates.of(LAYOUTS), constants).total]


def calibrated(measured):
    """The predictions with the rate of products at which the calibration run took as long as it was measured to."""
    low, high = 1e-6, 10.0
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if predicted(middle)[CALIBRATION] > measured else (low, middle)
    return predicted(high)


def kendall(a, b):
    pairs = list(itertools.combinations(range(len(a)), 2))
    agree = sum((a[i] - a[j]) * (b[i] - b[j]) > 0 for i, j in pairs)
    return (2 * agree - len(pairs)) / len(pairs)


def test_layouts_are_as_fast_in_the_predicted_order(links):
    """Every ring is as fast as its slowest link: the predictions are those of eight links of ``SLOWEST``."""
    links.shape(400, n1=SLOWEST, n3=200, n5=100, n7=200)
    found = trained(links)
    losses = [each["loss"] for each in found]
    assert losses == pytest.approx([losses[0]] * len(losses), rel=1e-4), "every layout trains the same model"
    assert losses[0] > 1
    seconds = [each["seconds"] for each in found]
    expected = calibrated(seconds[CALIBRATION])
    rows = [f"{m:.3f} {p:.3f} {x}" for m, p, x in zip(seconds, expected, LAYOUTS, strict=True)]
    assert kendall(expected, seconds) >= 0.8, "\n".join(("measured predicted layout", *rows))
