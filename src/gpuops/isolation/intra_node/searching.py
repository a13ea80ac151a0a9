"""The rounds inside nodes, and the part of a node that their results blame; pure.

Every node is measured by itself in a few rounds. The slow ones run again until that is sure, then without NVLink SHARP.
If that is as fast as usual, the multicast of the switches is at fault and not a link. If it is slow too, pairs of GPUs
run side by side, each GPU with another partner in each round, until the slow pairs have their GPUs in common. A node
that is slow in some rounds only runs in pairs and as a whole, until one GPU explains all its slow rounds. Healthy nodes
run the same rounds as a control.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gpuops.isolation.certainty import more_rounds
from gpuops.isolation.evidence import Blame, BlamedPart, Evidence, Kind
from gpuops.isolation.intra_node.readings import FIRST_ROUNDS, KINDS, NodeReading, middle
from gpuops.isolation.intra_node.view import MAX_LATER, STEPS, NodeView, node_views, pairings
from gpuops.isolation.rounds import GroupResult, RankGroup, Round

__all__ = ["MAX_ROUNDS", "blame", "first_round", "next_round", "pairings"]

MAX_ROUNDS = FIRST_ROUNDS + MAX_LATER
_CONTROLS, _ENOUGH_CONTROLS = 8, 3
"""Healthy nodes that run each step. Two steps run at once if at least the second number is left for the other one."""
_MAX_ALTERNATIVES = 3
_WHY = {
    "again": "slow or failed: run again",
    "ring": "slow: run without NVLink SHARP, to distinguish switches from links",
    "pairs": "slow: run pairs of GPUs, to find the GPU",
}


def first_round(evidence: Evidence) -> Round | None:
    """Return the next round of every node by itself; None if these are done. What hung once is not run again."""
    done = [measured for measured in evidence.rounds if measured.round.scope == "node"]
    if "node" not in evidence.scopes or len(done) >= FIRST_ROUNDS:
        return None
    hung = {f.group.nodes[0] for measured in done for f in measured.figures if f.trouble == "hang"}
    nodes = (node for node in evidence.fabric.nodes.values() if len(node.gpus) > 1 and node.name not in hung)
    alone = tuple(RankGroup((node.name,)) for node in nodes)
    is_new = not done or len(alone) > 1 or evidence.expected  # a single one has nothing to be compared with
    return Round("node", alone, "every node by itself") if alone and is_new else None


def next_round(evidence: Evidence) -> Round | None:
    """Return the next round inside suspects, after the first ones; None when the plan is empty."""
    views = node_views(evidence)
    groups, why = list[RankGroup](), list[str]()
    controls = [view for view in views if not view.doubt]
    for step in STEPS if "node" in evidence.scopes else ():
        selected = [view for view in views if view.step == step]
        beside = list(_controls(selected, controls))
        if selected and (not groups or len(beside) >= _ENOUGH_CONTROLS):
            controls = [view for view in controls if view not in beside]
            groups += [group for view in (*selected, *beside) for group in view.groups(step)]
            why.append(f"{selected[0].node.name if len(selected) == 1 else f'{len(selected)} nodes'} {_WHY[step]}")
    return Round("node", tuple(groups), "; ".join(why)) if groups else None


def _controls(selected: Iterable[NodeView], healthy: Sequence[NodeView]) -> Iterator[NodeView]:
    for kind in dict.fromkeys(view.kind for view in selected):
        yield from [view for view in healthy if view.kind == kind][:_CONTROLS]


def blame(evidence: Evidence) -> Blame:
    """Return the faulty parts within nodes, as far as known; nodes that must be measured again are suspects."""
    views = node_views(evidence)
    doubted = [view for view in views if view.doubt]
    return Blame(
        tuple(blamed for view in doubted if not view.step and view.is_sure for blamed in _blamed_parts(view)),
        suspects=tuple(view.node.name for view in doubted if view.step),
        unclear=(*_not_measured(views), *_unsure(doubted)),
    )


def _blamed_parts(view: NodeView) -> Iterator[BlamedPart]:
    """Yield the faulty parts of a node that needs no further measurement."""
    if view.doubt == "flapping":
        yield _flapping_part(view)
        return
    name, judged, faulty = view.node.name, view.judged, sorted(view.faulty_gpus)
    if judged.figure.trouble not in KINDS:
        return  # what fails is not within the node
    if view.links_are_healthy:
        without = f"without NVLink SHARP {middle(view.ring)}: the multicast of its NVSwitches, not a link"
        yield _blamed_part(view, name, judged, without)
    elif judged.figure.trouble == "error" and not _names_gpus(view, faulty):
        return  # the whole node fails, perhaps for a reason that is not its GPUs
    elif judged.figure.absent:
        yield from (_blamed_part(view, part, judged, "did not arrive") for part in judged.figure.absent)
    elif len(view.node.gpus) == 2:
        one, other = _names(view, view.node.gpus)
        yield _blamed_part(view, one, judged, "either of its two GPUs may be at fault", (other,))
    elif faulty and len(faulty) < len(view.node.gpus):
        yield from (_blamed_gpu(view, gpu) for gpu in faulty)
    else:
        likely = () if faulty or len(view.suspect_gpus) > _MAX_ALTERNATIVES else _names(view, sorted(view.suspect_gpus))
        detail = "every pair of its GPUs shows it" if faulty else "no single GPU stands out in pairs"
        yield _blamed_part(view, name, judged, detail, likely)


def _names(view: NodeView, gpus: Iterable[int]) -> tuple[str, ...]:
    return tuple(f"{view.node.name}:gpu{gpu}" for gpu in gpus)


def _names_gpus(view: NodeView, faulty: Sequence[int]) -> bool:
    """Return True if a failure points to some GPUs and not to all of them."""
    absent = [name for name in view.judged.figure.absent if name != view.node.name]
    return 0 < len(absent or faulty) < len(view.node.gpus)


def _blamed_gpu(view: NodeView, gpu: int) -> BlamedPart:
    own_pairs = view.own_pairs(gpu)
    detail = f"with each of {len(own_pairs)} other GPUs of its node{_others(view, gpu)}"
    more = (f"all {len(view.node.gpus)} GPUs together: {view.judged}",)
    return _blamed_part(view, f"{view.node.name}:gpu{gpu}", middle(own_pairs), detail, more=more)


def _others(view: NodeView, gpu: int) -> str:
    """Return the bandwidth of the pairs without ``gpu``, in words."""
    figures = (pair.figure for pair in view.all_pairs if gpu not in pair.figure.group.gpus)
    rates = [figure.gb_per_s for figure in figures if figure.gb_per_s]
    return f", pairs without it {min(rates):.0f}-{max(rates):.0f}" if rates else ""


def _blamed_part(
    view: NodeView,
    part: str,
    reading: NodeReading,
    detail: str,
    alternatives: tuple[str, ...] = (),
    more: tuple[str, ...] = (),
) -> BlamedPart:
    figure = reading.figure
    return BlamedPart(
        part,
        KINDS[figure.trouble],
        figure.gb_per_s,
        reading.normal,
        evidence=(f"{reading}: {detail}", *filter(None, (figure.detail,)), *more),
        alternatives=alternatives,
        probability=None if view.doubt == "failed" else view.probability,
        where="within nodes",
    )


def _flapping_part(view: NodeView) -> BlamedPart:
    """Return the GPU that explains the slow rounds, or a few of which one does, or else the node."""
    suspects = view.flapping.suspects(view.spread.confidence)
    gpus = [gpu for gpu in suspects if gpu is not None] if len(suspects) <= _MAX_ALTERNATIVES else []
    part, *alternatives = (*_names(view, gpus), *([view.node.name] if not gpus or None in suspects else []))
    if len(view.node.gpus) == 2:
        part, *alternatives = _names(view, view.node.gpus)
    slow = _slow_at_times(view.whole, view)
    typical = middle(slow)
    words = [f"all {len(view.node.gpus)} GPUs together {_times(view.whole, view)}"]
    words += [f"{_pair_words(view, gpu)}{_others(view, gpu)}" for gpu in gpus[:1]] or ["no single GPU stands out"]
    rate = typical.figure.gb_per_s
    kind: Kind = "flapping"
    chance = view.probability + (
        1 - view.flapping.chance(gpus[0]) if part != view.node.name and not alternatives else 0
    )
    return BlamedPart(
        part,
        kind,
        rate,
        typical.normal,
        evidence=tuple(words),
        alternatives=tuple(alternatives),
        probability=chance,
        where="within nodes",
    )


def _pair_words(view: NodeView, gpu: int) -> str:
    own = [pair for pair in view.all_pairs if gpu in pair.figure.group.gpus]
    return f"its pairs {_times(own, view)}"


def _slow_at_times(readings: Iterable[NodeReading], view: NodeView) -> list[NodeReading]:
    """Return the readings that are nearer to what the node reaches at its slow times than to healthy ones."""
    edge = 1 - view.certainty.slow_by / 2
    return [reading for reading in readings if reading.ratio < edge]


def _times(readings: Sequence[NodeReading], view: NodeView) -> str:
    """Return in how many rounds they are slow, and the median then and else: "slow in 4 of 9 rounds: …"."""
    slow = _slow_at_times(readings, view)
    rest = [reading for reading in readings if reading not in slow]
    if not slow:
        return f"well in {len(readings)} rounds"
    otherwise = f", else {middle(rest).figure.gb_per_s or 0:.0f}" if rest else ""
    return f"slow in {len(slow)} of {len(readings)} rounds: {middle(slow)}{otherwise}"


def _not_measured(views: Iterable[NodeView]) -> Iterator[str]:
    """Yield the nodes whose GPUs could not be measured together, and why; an error blames only single GPUs."""
    for view in views:
        figure = (view.failure or view.whole[-1]).figure
        failed = [reading.figure for reading in view.whole if reading.figure.trouble]
        is_blamed = figure.trouble in KINDS and (figure.trouble != "error" or any(_blamed_parts(view)))
        if not is_blamed or (figure.gb_per_s is None and not figure.trouble):
            yield f"{view.node.name}: its GPUs could not be measured together: {_why(figure)}"
        elif failed and view.failure is None:
            times = f"in {len(failed)} of {len(view.whole)} rounds"
            yield f"{view.node.name}: its GPUs could not be measured together {times}: {_why(failed[-1])}"


def _why(figure: GroupResult) -> str:
    return figure.detail or figure.trouble or "no result"


def _unsure(doubted: Iterable[NodeView]) -> Iterator[str]:
    """Yield the nodes that may be slow, but that healthy nodes could look like."""
    for view in doubted:
        if not view.step and not view.is_sure:
            words = _times(view.whole, view) if view.doubt == "flapping" else str(view.judged)
            rounds = f"{more_rounds(view.more_rounds)} would decide" if view.more_rounds else "too little to decide"
            yield f"{view.node.name}: within it {words}; {rounds}"
