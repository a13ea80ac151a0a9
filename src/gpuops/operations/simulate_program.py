"""Isolation on a fabric that a program measures: another simulator, a recorded fleet or real machines."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Sequence
from dataclasses import replace

from gpuops.collective.program_lines import END, parse_fabric, parse_figures, request_line
from gpuops.errors import InputError
from gpuops.isolation import blame, next_round
from gpuops.isolation.evidence import Blame, Evidence, Measured
from gpuops.results.isolation import Isolation
from gpuops.transport.program import LineProgram

CONFIDENCE = 0.001
"""The default bound on the probability of one wrong accusation in a run: one in 1,000 runs."""


def simulate_program(
    program: str | Sequence[str], *, seconds: float = 60.0, confidence: float = CONFIDENCE
) -> Isolation:
    """Measure the fabric of ``program`` round by round, and blame its slow parts.

    ``program`` is a command line or its words; no shell runs it. It prints its fabric and then the figures of each
    round, as ``docs/allreduce.md`` describes. It has ``seconds`` for each line. A part whose stated probability of
    being healthy exceeds ``confidence`` is not blamed but unclear. Raise `InputError` if the program cannot be started,
    exits early, or prints anything else. On Ctrl-C, the result is what was measured so far.
    """
    try:
        words = _words(program) if isinstance(program, str) else list(program)
        with contextlib.closing(LineProgram(words)) as running:
            evidence, interrupted = _measure(running, seconds)
    except InputError as error:
        raise InputError(f"--program: {error}") from error
    return Isolation(evidence, _bounded(blame(evidence), confidence), interrupted)


def _words(command_line: str) -> list[str]:
    try:
        words = shlex.split(command_line)
    except ValueError as error:
        raise InputError(f'"{command_line}" is not a command line ({error})') from error
    if not words:
        raise InputError("the command line is empty; name a program")
    return words


def _measure(program: LineProgram, seconds: float) -> tuple[Evidence, bool]:
    """Return the evidence of all rounds, and whether Ctrl-C ended them early."""
    evidence = Evidence(parse_fabric(program.exchange(b"", "its fabric", seconds)))
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


def _bounded(verdict: Blame, confidence: float) -> Blame:
    """Return the verdict with the parts above the bound as unclear; a part without a probability stays blamed."""
    doubtful = [part for part in verdict.blamed if part.probability is not None and part.probability > confidence]
    sentences = (
        f"{' or '.join((part.part, *part.alternatives))}: {part.kind}, but a healthy fleet shows this in up to "
        f"{part.probability:.2g} of the runs; the bound is {confidence:g}"
        for part in doubtful
    )
    blamed = tuple(part for part in verdict.blamed if part not in doubtful)
    return replace(verdict, blamed=blamed, unclear=(*verdict.unclear, *sentences))
