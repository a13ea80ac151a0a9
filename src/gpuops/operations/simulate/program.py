"""Isolation on a fabric that a program measures: another simulator, a recorded fleet or real machines."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Sequence
from dataclasses import replace

from gpuops.collective.program_lines import END, parse_fabric, parse_figures, request_line
from gpuops.collective.request import check_confidence
from gpuops.errors import InputError
from gpuops.isolation import blame, next_round
from gpuops.isolation.evidence import CONFIDENCE, Evidence, Measured
from gpuops.results.isolation import Isolation
from gpuops.transport.program import LineProgram


def simulate_program(
    program: str | Sequence[str], *, seconds: float = 60.0, confidence: float = CONFIDENCE
) -> Isolation:
    """Measure the fabric of ``program`` round by round, and blame its slow parts.

    ``program`` is a command line or its words; no shell runs it. It prints its fabric and then the figures of each
    round, as ``docs/allreduce.md`` describes. It has ``seconds`` for each line. ``confidence`` is the allowed chance,
    for the whole run, that a healthy part is blamed. Raise `InputError` if it is not between 0 and 1, or if the program
    cannot be started, exits early, or prints anything else. On Ctrl-C, the result is what was measured so far.
    """
    check_confidence(confidence)
    try:
        words = _words(program) if isinstance(program, str) else list(program)
        with contextlib.closing(LineProgram(words)) as running:
            evidence, interrupted = _measure(running, seconds, confidence)
    except InputError as error:
        raise InputError(f"--program: {error}") from error
    return Isolation(evidence, blame(evidence), interrupted)


def _words(command_line: str) -> list[str]:
    try:
        words = shlex.split(command_line)
    except ValueError as error:
        raise InputError(f'"{command_line}" is not a command line ({error})') from error
    if not words:
        raise InputError("the command line is empty; name a program")
    return words


def _measure(program: LineProgram, seconds: float, confidence: float) -> tuple[Evidence, bool]:
    """Return the evidence of all rounds, and whether Ctrl-C ended them early."""
    evidence = Evidence(parse_fabric(program.exchange(b"", "its fabric", seconds)), confidence=confidence)
    try:
        while (planned := next_round(evidence)) is not None:
            number = len(evidence.rounds) + 1
            line = program.exchange(request_line(number, planned), f"the figures of round {number}", seconds)
            measured = Measured(planned, parse_figures(line, number, planned))
            evidence = replace(evidence, rounds=(*evidence.rounds, measured))
        program.finish(END)
    except KeyboardInterrupt:
        return evidence, True
    return evidence, False
