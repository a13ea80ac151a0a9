"""What keeps the scripts of a launch from being the job of its plan, and what of them cannot be read; pure.

Each script is compared with the plan and, where the plan says nothing, with the other scripts. Another spelling, what
all scripts say alike, and what was added beside the rendered lines is no mistake.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gpuops.collective.preflight.causes import Cause, named
from gpuops.collective.preflight.launch_command import NodeCommand
from gpuops.errors import format_count
from gpuops.launching.plan import JobPlan, NodePlan
from gpuops.launching.scripts.against_plan import GPUS, rendezvous_of, wrong_settings
from gpuops.launching.scripts.between import JUDGED, Note, misordered, uncertain, unlike
from gpuops.launching.scripts.commanding import ANY_PROGRAM, command_of, usual_of
from gpuops.launching.scripts.part import MASTERS, Part
from gpuops.launching.scripts.reading import Script, Setting, is_path, read_script, with_config

_COMPARED = frozenset(
    "--nnodes --nproc-per-node --node-rank --rdzv-backend --rdzv-id --rdzv-endpoint --local-addr --num-machines"
    " --num-processes --machine-rank".split()
).union(*MASTERS.values())


@dataclass(frozen=True)
class ScriptCheck:
    """The ``causes`` why the job of the scripts would not be the planned one, and sentences on what is ``unchecked``.

    ``master`` and ``port`` are the rendezvous of the scripts, ``program`` and ``files`` what most of them start.
    ``environment`` is what all of them set alike, ``by_node`` what else each says, with the mark in place of the node's
    name in its places.
    """

    causes: tuple[Cause, ...]
    unchecked: tuple[str, ...]
    master: str
    port: int
    launcher: str
    program: str
    files: tuple[str, ...]
    environment: Mapping[str, str] = field(hash=False)
    by_node: Mapping[str, NodeCommand] = field(hash=False)


def check_scripts(plan: JobPlan, aliases: Collection[str] = ()) -> ScriptCheck:
    """Compare the scripts of ``plan`` with it; ``aliases`` are other names and addresses of its rendezvous host."""
    parts = [Part(index, node, _read(node)) for index, node in enumerate(plan.nodes)]
    started = [part for part in parts if part.script.start]
    agreed = rendezvous_of(started)
    causes = (
        *_with_carriage_returns(parts),
        *_ended(started),
        *wrong_settings(plan, started, agreed, aliases),
        *unlike(started),
        *misordered(started),
    )
    others = () if agreed.master else {*aliases} - {plan.master}
    notes = [*(note for part in parts for note in _unread(part, others)), *uncertain(started)]
    usual = usual_of(parts, plan)
    return ScriptCheck(
        causes,
        tuple(_folded(notes)),
        agreed.master or plan.master,
        int(agreed.port) if agreed.port and agreed.port.isdecimal() else plan.port,
        started[0].script.launcher if started else "",
        usual.program if usual.program and is_path(usual.program) else ANY_PROGRAM,
        usual.files,
        usual.environment,
        {part.name: command_of(part, plan, usual) for part in parts},
    )


def _with_carriage_returns(parts: Sequence[Part]) -> Iterator[Cause]:
    for part in (part for part in parts if "\r" in part.node.script_text):
        why = f"{part.place()}: lines end with CR LF, which no shell on Linux takes"
        yield Cause("files", (part.name,), why, f"sed -i 's/\\r$//' {part.node.script}")


def _ended(parts: Sequence[Part]) -> Iterator[Cause]:
    for part in parts:
        if end := part.script.end:
            ranks = format_count(len(part.node.seats), "rank")
            why = f"{part.place(end)}: {end.value} ends the script before it starts the job, the plan says {ranks} here"
            yield Cause("files", (part.name,), why, f"remove {end.value} from {part.place(end)}")
        if never := part.script.never:
            ranks = format_count(len(part.node.seats), "rank")
            why = f"{part.place(never)}: {never.value} keeps the job from starting, the plan says {ranks} here"
            yield Cause("files", (part.name,), why, f"remove {never.value} from {part.place(never)}")


def _read(node: NodePlan) -> Script:
    script = read_script(node.script, node.script_text.replace("\r\n", "\n"))
    return with_config(script, script.config, node.config_text) if node.config_text else script


def _unread(part: Part, aliases: Collection[str]) -> Iterator[Note]:
    """Yield what of a script could not be compared."""
    script = part.script
    yield from ((part.name, part.marked(text)) for text in script.unread)
    if script.start is None:
        yield part.name, f"{part.place()}: starts neither torchrun nor accelerate, so only its exports are read"
        return
    if script.launcher == "accelerate" and not (part.node.config_text or "--machine-rank" in script.options):
        yield part.name, f"{part.place()}: Accelerate's configuration is not in this directory"
    for word in (script.program, *(word for word in script.words if word.endswith(".py"))):
        if not is_path(word):
            yield part.name, f"{part.place()}: {word} is known only when it runs"
    for setting in _settings(part):
        if not setting.is_readable:
            yield part.name, f"{part.place(setting)}: {setting} is known only when it runs"
    if (master := part.master) and master.value in aliases and master.is_there:
        yield part.name, f"{part.place(master)}: {master} is another name of the plan's, which the node may not know"


def _settings(part: Part) -> Iterator[Setting]:
    """Yield what is compared, as far as the script sets it."""
    script = part.script
    yield from (setting for name, setting in script.options.items() if name in _COMPARED)
    names = dict.fromkeys((GPUS, *JUDGED, *part.node.environment))
    yield from (script.exports[name] for name in names if name in script.exports)


def _folded(notes: Sequence[Note]) -> Iterator[str]:
    """Yield each sentence once, with all its nodes in place of the mark."""
    nodes: dict[str, list[str]] = {}
    for node, text in notes:
        nodes.setdefault(text, []).append(node)
    return (named(text, own) for text, own in nodes.items())
