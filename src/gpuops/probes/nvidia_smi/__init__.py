"""nvidia-smi: what the driver says of the node's GPUs; where it refuses, its words are the value."""

from __future__ import annotations

from gpuops.probes.nvidia_smi.gpu import Gpu, Process, RemappedRows, Smi, SmiError, canonical_address
from gpuops.probing import Probe, Unknown
from gpuops.shell import Command, Completed

__all__ = ["Gpu", "Process", "RemappedRows", "Smi", "SmiError", "canonical_address", "smi"]


def parse_smi(answer: Completed) -> Smi | Unknown:
    """The answer of ``nvidia-smi -q -x``, whatever its exit code."""
    return Unknown(f"{answer.question} cannot be read yet")


smi: Probe[Smi] = Probe("smi", Command(("nvidia-smi", "-q", "-x"), timeout_seconds=60, lane="nvidia"), parse_smi, None)
"""Every GPU that the driver can reach. Exit codes are values here: a lost GPU is a fault, not an unknown."""
