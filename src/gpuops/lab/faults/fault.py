"""A kind of fault: its name, the part that it applies to, and what it changes."""

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
    """One kind of fault: ``takes`` describes the value after ``=``; without a ``default`` the value is required.

    ``found_by`` are the checks that name it, also under load or as an effect; none for what is not a fault of the
    node, or shows in its sessions only.
    """

    subject: Subject
    name: str
    doc: str
    change: Change
    takes: str = ""
    default: str = ""
    found_by: tuple[str, ...] = ()


def number(text: str, what: str, *, lowest: float = 0) -> float:
    """Return ``text`` as a number; raise `InputError` with what was expected."""
    try:
        value = float(text)
    except ValueError:
        raise InputError(f'"{text}" is not a valid {what}') from None
    if not lowest <= value < 1e9:
        raise InputError(f"{text} is not a valid {what}")
    return value


def percent(text: str) -> float:
    """Return ``text`` as a percentage below 100, as `number` does."""
    value = number(text, "percentage")
    if value >= _WHOLE:
        raise InputError(f"{text} percent is too much; use less than {_WHOLE}")
    return value


def whole(text: str, what: str, *, lowest: int = 0) -> int:
    """Return ``text`` as a whole number, as `number` does."""
    value = number(text, what, lowest=lowest)
    if value != int(value):
        raise InputError(f'"{text}" is not a whole {what}')
    return int(value)
