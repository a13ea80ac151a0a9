"""The differences between the scripts of a job: what must be alike, and what only their author can judge; pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from gpuops.collective.preflight.causes import Cause
from gpuops.launching.scripts.part import Part
from gpuops.launching.scripts.reading import Setting

JUDGED = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_IB_GID_INDEX")
"""Variables that preflight compares with the node itself."""
_DEGREE = re.compile(
    r"(?:--|--parallelism\.|model\.)(?:(?:moe_)?expert_|tensor_|pipeline_|context_|ds_sequence_)"
    r"(?:model_)?parallel_(?:size|degree)\Z"
)
"""Options of Megatron and torchtitan that must be the same on every rank."""
_OF_THE_NETWORK = re.compile(r"(?:TORCH_)?(?:NCCL|GLOO)_(?!DEBUG)")
Note = tuple[str, str]
"""A node, and a sentence about it, with the mark in place of its name."""


def unlike(parts: Sequence[Part]) -> Iterator[Cause]:
    """Yield the settings that must be the same in all scripts, and are not."""
    values: dict[str, dict[Part, Setting]] = {}
    for part in parts:
        for setting in (*_of_rendezvous(part), *_degrees(part)):
            if setting.is_readable:
                values.setdefault(setting.name, {})[part] = setting
    for own in values.values():
        yield from _minority(own)


def _of_rendezvous(part: Part) -> Iterator[Setting]:
    if part.script.launcher == "torchrun" and not part.is_alone:
        yield from filter(None, map(part.option, ("--rdzv-backend", "--rdzv-id")))


def _degrees(part: Part) -> Iterator[Setting]:
    """Yield the degrees of parallelism among the arguments of the program."""
    for word, after in pairwise((*part.script.words, "")):
        name, equals, value = word.partition("=")
        if (
            _DEGREE.match("--" * name.startswith("--") + name.removeprefix("--").replace("-", "_"))
            and part.script.start
        ):
            yield Setting(name, value if equals else after, part.script.path, part.script.start.line)


def _minority(own: Mapping[Part, Setting]) -> Iterator[Cause]:
    """Yield a cause for each node that differs from most, or one for the command if no value is that of most."""
    counts = Counter(setting.value for setting in own.values())
    if len(counts) < 2:
        return
    (usual, number), (other, second) = counts.most_common(2)
    if number == second:
        first, last = (next(s for s in own.values() if s.value == value) for value in (usual, other))
        why = f"{first.place}: {first}, but {last.place}: {last}; all nodes need the same"
        yield Cause("files", (), why, f"write the same {first.name} in all scripts")
        return
    for part, setting in own.items():
        if setting.value != usual:
            place = part.place(setting)
            why = f"{place}: {setting}, the other scripts say {usual}"
            yield Cause("files", (part.name,), why, f"{setting.name}={usual} in {place}")


def misordered(parts: Sequence[Part]) -> Iterator[Cause]:
    """Check that c10d, which numbers nodes by ``--local-addr`` sorted as text, numbers them as the plan does."""
    own = {part: part.option("--local-addr") for part in parts if not part.is_static and not part.is_alone}
    addresses = {part: setting for part, setting in own.items() if setting and setting.is_readable}
    if len(addresses) < len(parts):
        return
    ordered = sorted(addresses.items(), key=lambda item: (item[1].value, item[0].index))
    for position, (part, setting) in enumerate(ordered):
        if position != part.index:
            place = part.place(setting)
            why = f"{place}: {setting} makes it node {position} (sorted as text), the plan says {part.index}"
            yield Cause("files", (part.name,), why, "render the files again")


def uncertain(parts: Sequence[Part]) -> Iterator[Note]:
    """Yield programs and variables of the network in which a script is unlike most others."""
    yield from _odd(parts, [part.script.program for part in parts], "the launcher is not that of the other scripts")
    programs = [part.marked(" ".join(_without_degrees(part))) for part in parts]
    yield from _odd(parts, programs, "the program or its arguments are not those of the other scripts")
    names = {name for part in parts for name in part.script.exports if _OF_THE_NETWORK.match(name)}
    for name in sorted(names):
        exports = [part.script.exports.get(name) for part in parts]
        values = [None if own is None else "set" if name in JUDGED else own.value for own in exports]
        yield from _odd(parts, values, f"{name} is not as in the other scripts", exports)


def _without_degrees(part: Part) -> Iterator[str]:
    degrees = {setting.name for setting in _degrees(part)}
    for before, word in pairwise(("", *part.script.words)):
        if before not in degrees and word.partition("=")[0] not in degrees:
            yield word


def _odd(
    parts: Sequence[Part], values: Sequence[str | None], what: str, settings: Sequence[Setting | None] = ()
) -> Iterator[Note]:
    """Yield a note about each part whose value is not the most common one."""
    usual = Counter(values).most_common(1)[0][0] if values else None
    for at, (part, value) in enumerate(zip(parts, values, strict=True)):
        if value != usual:
            yield part.name, f"{part.place(settings[at] if settings else None)}: {what}"
