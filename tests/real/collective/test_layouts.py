"""Ten layouts of a small transformer, trained over shaped links: the planner has them in the measured order."""

import itertools

import pytest
from tests.real.collective.jobs import Planned, layouts_of, trained

pytest.importorskip("torch", reason="PyTorch is not installed (pip install 'gpuops[launch]')")

LAYOUTS = layouts_of(
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
CALIBRATION = 1
"""The layout whose measured time says how fast a rank computes; links and everything else are as they were set up."""
SLOWEST = 50
"""Mbit/s."""
ROUNDS = 2
"""Of each layout the fastest step of all rounds counts: what else ran on these cores disturbed it least."""


def kendall(a, b):
    pairs = list(itertools.combinations(range(len(a)), 2))
    agree = sum((a[i] - a[j]) * (b[i] - b[j]) > 0 for i, j in pairs)
    return (2 * agree - len(pairs)) / len(pairs)


def test_layouts_are_as_fast_in_the_predicted_order(links):
    """Every ring is as fast as its slowest link: the predictions are those of eight links of ``SLOWEST``."""
    links.shape(400, n1=SLOWEST, n3=200, n5=100, n7=200)
    rounds = [trained(links, LAYOUTS, steps=3) for _ in range(ROUNDS)]
    losses = [each["loss"] for each in rounds[0]]
    assert losses == pytest.approx([losses[0]] * len(losses), rel=1e-4), "every layout trains the same model"
    assert losses[0] > 1
    seconds = [min(each["seconds"] for each in layout) for layout in zip(*rounds, strict=True)]
    planned = Planned(LAYOUTS, SLOWEST)
    expected = planned.seconds(planned.calibrated(CALIBRATION, seconds[CALIBRATION]))
    rows = [f"{m:.3f} {p:.3f} {x}" for m, p, x in zip(seconds, expected, LAYOUTS, strict=True)]
    assert kendall(expected, seconds) >= 0.8, "\n".join(("measured predicted layout", *rows))
