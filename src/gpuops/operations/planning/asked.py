"""The values of a request for a plan, as a program may have set them."""

from __future__ import annotations

from typing import Any, get_args

from gpuops.errors import InputError
from gpuops.planner.gpus import Precision
from gpuops.planner.training import Framework, Optimizer
from gpuops.requests import PlanRequest

_WORDS: dict[str, Any] = {"precision": Precision, "optimizer": Optimizer, "framework": Framework}
_COUNTS = ("global_batch", "sequence", "top")
_GIB = ("host_gib", "nvme_gib")


def check_values(request: PlanRequest) -> None:
    """Raise `InputError` for the first value that no plan can have: an unknown word, or a number that is not possible.

    The command line checks its options itself; a program can set anything.
    """
    for name, words in _WORDS.items():
        if getattr(request, name) not in get_args(words):
            raise InputError(
                f"plan: {name} must be one of {', '.join(get_args(words))}, not {getattr(request, name)!r}"
            )
    for name in _COUNTS:
        value = getattr(request, name)
        if value is not None and not _is_count(value):
            raise InputError(f"plan: {name} must be a whole number, 1 or more, not {value!r}")
    for name, value in (request.sizes or {}).items():
        if not isinstance(value, int) or isinstance(value, bool):
            raise InputError(f"plan: {name} of the sizes must be a whole number, not {value!r}")
    for name in _GIB:
        value = getattr(request, name)
        if value is not None and not (isinstance(value, (int, float)) and 0 < value <= _MOST_GIB):
            raise InputError(f"plan: {name} must be a number of GiB above 0, not {value!r}")


_MOST_GIB = 1e9


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
