"""Fault: how one is named, what it is put on, and what it changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from gpuops.errors import InputError
from gpuops.lab.model import Node

Subject = Literal["gpu", "nic", "host"]
# the node, the subject's own name ("2" of gpu2, "mlx5_1", "host") and the value after "="
Change = Callable[[Node, str, str], Node]

_WHOLE = 100


@dataclass(frozen=True)
class Fault:
    """One kind of fault: ``takes`` says what stands after ``=``; an empty ``default`` makes a value needed."""

    subject: Subject
    name: str
    doc: str
    change: Change
    takes: str = ""
    default: str = ""


def number(text: str, what: str, *, lowest: float = 0) -> float:
    """``text`` as a number, or `InputError` saying what was expected."""
    try:
        value = float(text)
    except ValueError:
        raise InputError(f'"{text}" is no {what}') from None
    if not lowest <= value < 1e9:
        raise InputError(f"{text} is no {what}")
    return value


def percent(text: str) -> float:
    """As `number`, for a share that leaves something."""
    value = number(text, "percentage")
    if value >= _WHOLE:
        raise InputError(f"{text} percent leaves nothing: less than {_WHOLE} was expected")
    return value


def whole(text: str, what: str, *, lowest: int = 0) -> int:
    """As `number`, for whole numbers."""
    value = number(text, what, lowest=lowest)
    if value != int(value):
        raise InputError(f'"{text}" is no whole {what}')
    return int(value)
