"""nvidia-smi topo -m: how GPUs and NICs are connected inside a node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuops.probing import Probe, Unknown
from gpuops.shell import Command, Completed


@dataclass(frozen=True)
class Topology:
    """The matrix. ``links[a, b]`` is NV18, PIX, PXB, PHB, NODE or SYS, once for each ordered pair of different devices.

    ``gpus`` are GPU0, GPU1, …; ``nics`` are NIC0, … or mlx5_0, … as the header has them. ``nic_names`` gives the RDMA
    device of each NIC (itself, where the header names devices). An absent affinity is absent from its mapping.
    """

    gpus: tuple[str, ...]
    nics: tuple[str, ...] = ()
    links: Mapping[tuple[str, str], str] = field(default_factory=dict)
    cpu_affinity: Mapping[str, str] = field(default_factory=dict)
    numa_affinity: Mapping[str, str] = field(default_factory=dict)
    nic_names: Mapping[str, str] = field(default_factory=dict)


def parse_topo(text: str) -> Topology | Unknown:
    """The text of ``nvidia-smi topo -m``."""
    return Unknown(f"topo -m cannot be read yet ({len(text)} characters)")


def _parse(answer: Completed) -> Topology | Unknown:
    return parse_topo(answer.out)


topo: Probe[Topology] = Probe("topo", Command(("nvidia-smi", "topo", "-m"), timeout_seconds=60, lane="nvidia"), _parse)
"""The links between every two devices of the node."""
