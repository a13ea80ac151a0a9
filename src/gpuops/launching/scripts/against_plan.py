"""The differences between the script of a node and the plan that keep the job from being the planned one; pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from gpuops.collective.preflight.causes import Cause
from gpuops.launching.plan import JobPlan
from gpuops.launching.scripts.part import Part
from gpuops.launching.scripts.reading import Setting

GPUS = "CUDA_VISIBLE_DEVICES"
_FEW = 3


@dataclass(frozen=True)
class Rendezvous:
    """The rendezvous of all scripts; None where they differ, or where it cannot be read."""

    master: str | None
    port: str | None


@dataclass(frozen=True)
class _Difference:
    """One setting of a node that the plan has differently."""

    node: str
    place: str
    said: str
    name: str
    expected: str


def rendezvous_of(parts: Sequence[Part]) -> Rendezvous:
    """Return where the scripts let the ranks meet; the first node may call itself by its loopback address."""
    return Rendezvous(_agreed(parts, lambda part: part.master), _agreed(parts, lambda part: part.port))


def _agreed(parts: Sequence[Part], setting_of: Callable[[Part], Setting | None]) -> str | None:
    settings = [(part, setting_of(part)) for part in parts]
    values = {
        own.value if own and own.is_readable else None
        for part, own in settings
        if not (own and _is_itself(part, own)) or len(parts) == 1
    }
    return values.pop() if len(values) == 1 else None


def _is_itself(part: Part, setting: Setting) -> bool:
    """Return True if the first node names itself by its loopback address: it listens at all of them."""
    return part.index == 0 and setting.value.startswith(("localhost", "127.", "::1"))


def wrong_settings(
    plan: JobPlan, parts: Sequence[Part], agreed: Rendezvous, aliases: Collection[str]
) -> Iterator[Cause]:
    """Yield what the scripts say otherwise than ``plan``; ``aliases`` are other names of its rendezvous host.

    A rendezvous that all scripts have ``agreed`` on is right, as far as this can be known from them alone.
    """
    yield from _causes(
        difference
        for part in parts
        for difference in (*_numbers(plan, part), *_meeting(plan, part, agreed, aliases), *_set_again(part))
    )
    if not all(_hides_gpus(part) for part in parts):
        yield from _causes(difference for part in parts for difference in _gpus(part))


def _hides_gpus(part: Part) -> bool:
    """Return True if the script makes no GPU visible, as for a job that uses none."""
    setting = part.script.exports.get(GPUS)
    return setting is not None and setting.value.strip() in ("", "-1")


def _numbers(plan: JobPlan, part: Part) -> Iterator[_Difference]:
    """Compare the number of nodes and of processes, and the node's own number."""
    nodes, ranks = len(plan.nodes), len(part.node.seats)
    if part.script.launcher == "accelerate":
        expected = {"--num-machines": nodes, "--num-processes": plan.world, "--machine-rank": part.index}
    elif part.is_alone:
        expected = {"--nproc-per-node": ranks}
        if nodes > 1:
            yield _Difference(part.name, part.place(part.option("--standalone")), "--standalone", "", f"{nodes} nodes")
    else:
        expected = {"--nnodes": nodes, "--nproc-per-node": ranks, "--node-rank": part.index}
    for name, number in expected.items():
        setting = part.option(name)
        if setting and setting.is_readable and not _means(part, setting, number):
            yield _Difference(part.name, part.place(setting), str(setting), name, str(number))


def _means(part: Part, setting: Setting, number: int) -> bool:
    """Return True if a setting means ``number``, if only as a range or as the GPUs that the script makes visible."""
    if setting.name == "--nproc-per-node" and setting.value in ("gpu", "auto"):
        return True
    if setting.name == "--node-rank" and not part.is_static:
        return True
    least, _, most = setting.value.partition(":")
    numbers = [int(text) for text in (least, most or least) if text.isdecimal() and len(text) < 10]
    if len(numbers) < 2:
        return False
    return numbers == [number, number] or (not part.is_static and numbers[0] <= number <= numbers[1])


def _meeting(plan: JobPlan, part: Part, agreed: Rendezvous, aliases: Collection[str]) -> Iterator[_Difference]:
    own, port = part.master, part.port
    is_other = own and own.is_readable and not _is_itself(part, own) and own.value not in (plan.master, *aliases)
    if own and is_other and agreed.master is None:
        yield _Difference(part.name, part.place(own), str(own), own.name, plan.master)
    if port and port.is_readable and port.value != str(plan.port) and agreed.port is None:
        yield _Difference(part.name, part.place(port), str(port), port.name, str(plan.port))


def _gpus(part: Part) -> Iterator[_Difference]:
    """Compare the GPUs in their order: each process takes the one with its own number among them."""
    planned = [str(seat.gpu) for seat in part.node.seats]
    setting = part.script.exports.get(GPUS)
    if setting is None and GPUS in part.script.history:
        gone = part.script.history[GPUS][-1]
        yield _Difference(part.name, part.place(gone), str(gone), "", ",".join(planned))
    elif setting is None:
        if planned != [str(number) for number in range(len(planned))]:
            yield _Difference(part.name, part.place(), f"no {GPUS}", GPUS, ",".join(planned))
    elif setting.is_readable and not _are_visible(part, setting):
        yield _Difference(part.name, part.place(setting), str(setting), GPUS, ",".join(planned))


def _set_again(part: Part) -> Iterator[_Difference]:
    """Compare the planned variables that the script exports and then unsets, or sets to something else."""
    for name, planned in part.node.environment.items():
        own = part.script.history.get(name, ())
        if len(own) > 1 and own[-1].is_readable and not (own[-1].is_there and own[-1].value == planned):
            last = own[-1]
            yield _Difference(part.name, part.place(last), str(last), name if last.is_there else "", planned)


def _are_visible(part: Part, setting: Setting) -> bool:
    """Return True if the planned GPUs come first, by their indices or UUIDs; CUDA takes a UUID's beginning, too."""
    words = [word.strip() for word in setting.value.split(",")]
    seats = part.node.seats
    return len(words) >= len(seats) and all(
        word == str(seat.gpu) or (word.startswith("GPU-") and seat.uuid.startswith(word))
        for word, seat in zip(words, seats, strict=False)
    )


def _causes(differences: Iterable[_Difference]) -> Iterator[Cause]:
    """Yield a cause for each difference, but one for many nodes that say the same in place of different things."""
    alike: dict[tuple[str, str], list[_Difference]] = {}
    for each in differences:
        alike.setdefault((each.place, each.said), []).append(each)
    for (place, said), group in alike.items():
        expected = list(dict.fromkeys(each.expected for each in group))
        if len(expected) > _FEW:
            first = ", ".join(expected[:_FEW])
            nodes = tuple(each.node for each in group)
            yield Cause(
                "files", nodes, f"{place}: {said}, the plan says {first}, … for these nodes", "render them again"
            )
            continue
        for each in group:
            fix = f"{each.name}={each.expected} in {place}" if each.name else f"remove {said} from {place}"
            yield Cause("files", (each.node,), f"{place}: {said}, the plan says {each.expected}", fix)
