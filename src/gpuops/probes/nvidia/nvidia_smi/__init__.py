"""Probe of nvidia-smi: the driver's view of the GPUs, or the error that nvidia-smi reports."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from gpuops.probes.nvidia.nvidia_smi.failure import parse_error, parse_library_version
from gpuops.probes.nvidia.nvidia_smi.gpu import Gpu, Process, RemappedRows, Smi, SmiError, canonical_address
from gpuops.probes.nvidia.nvidia_smi.xml import parse_xml, split_document
from gpuops.probing import Probe, Unknown
from gpuops.shell import Command, Completed

__all__ = ["Gpu", "Process", "RemappedRows", "Smi", "SmiError", "canonical_address", "parse_smi", "smi"]


@lru_cache(maxsize=8)  # two probes parse the same answer, one right after the other
def parse_smi(answer: Completed) -> Smi | Unknown:
    """Parse the answer of ``nvidia-smi -q -x``, whatever its exit code; its error messages become ``Smi.error``."""
    if answer.missing:
        return Unknown("nvidia-smi is not installed")
    _, remarks = split_document(answer.out)
    remarks = f"{remarks}\n{answer.err}"
    error = parse_error(remarks, answer.exit)
    value = parse_xml(answer.out)
    if answer.exit and not error:
        return Unknown(f"{answer.question} exited with {answer.exit}: {answer.last_line() or 'no output'}")
    if isinstance(value, Unknown):
        return Smi(parse_library_version(remarks), error=error) if error else value
    return replace(value, error=_more_precise(error, value.error))


def _more_precise(said: SmiError | None, shown: SmiError | None) -> SmiError | None:
    """Return the error that nvidia-smi says, unless the values show the same one and name the GPUs."""
    is_named = said and shown and said.kind == shown.kind and not said.addresses
    return shown if is_named else said or shown


smi: Probe[Smi] = Probe("smi", Command(("nvidia-smi", "-q", "-x"), timeout_seconds=60, lane="nvidia"), parse_smi, None)
"""All GPUs that the driver can reach. Any exit code is an answer: a lost GPU is a fault, not unknown."""
