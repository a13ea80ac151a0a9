"""The job to start, and the environment that it needs, each variable with its reason; pure."""

from __future__ import annotations

import re
import shlex
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gpuops.document import Where
from gpuops.errors import TemplateError
from gpuops.inventory.names import check_host
from gpuops.layout import Engine
from gpuops.placement import Meeting, NodeShape, Placement

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_QUEUE = re.compile(r"[\w.@-]*", re.ASCII)
_MOUNT = re.compile(r"/[^\s:,]*:/[^\s:,]*")
_PYTHON = re.compile(r"python(3(\.\d+)?)?")
_SHELLS = frozenset("sh bash dash zsh".split())
_LAUNCHERS = frozenset(
    "torchrun torch.distributed.run torch.distributed.launch deepspeed accelerate accelerate-launch mpirun mpiexec srun"
    " sbatch".split()
)
_FIRST_PORT, _PORTS = 20_000, 8_000
"""The ports of jobs: above those of most services, and below NCCL's own (28028) and the kernel's ephemeral ones."""


@dataclass(frozen=True)
class Env:
    """One environment variable of the job, and the reason for its value.

    ``value_by_node`` holds the nodes whose value is another. An empty ``value`` then means that no other node has any.

    Raise `TemplateError` for a name that a shell would not take: templates quote values, but cannot quote names.
    """

    name: str
    value: str
    reason: str
    value_by_node: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def is_shared(self) -> bool:
        """False if only some nodes have the variable."""
        return bool(self.value or not self.value_by_node)

    def on(self, node: str) -> str | None:
        """Return the value on ``node``; None if that node does not have the variable."""
        return self.value_by_node.get(node, self.value if self.is_shared else None)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise TemplateError(f"an environment variable must have a name such as NCCL_DEBUG, found {self.name!r}")


@dataclass(frozen=True)
class Job:
    """The job: a script with its arguments, a name, and its rendezvous: the ``port``, and the address of ``master``.

    An empty ``master`` is the first node, at its address in the network of the job (see `gpuops.placement.meeting_of`).

    ``image`` is the container image that holds the script (empty: that of the template, or none), and ``mounts`` are
    directories of the node in the container, as ``SOURCE:TARGET``. ``queue`` is the queue or partition of a scheduler,
    and ``time_seconds`` its time limit for the job (0: none).

    Raise `TemplateError` for a name, a script or an image that is not one printable line: they appear in comments and
    file names. Raise it for a mount that a launcher would split elsewhere, and `DocumentError` for
    a master that is neither a host name nor an address.
    """

    script: str = "train.py"
    args: tuple[str, ...] = ()
    name: str = "train"
    port: int = 29500
    env: tuple[Env, ...] = ()
    image: str = ""
    mounts: tuple[str, ...] = ()
    queue: str = ""
    master: str = ""
    time_seconds: int = 0

    def __post_init__(self) -> None:
        for what, text in (("name", self.name), ("script", self.script), ("image", self.image)):
            if not text.isprintable():
                raise TemplateError(f"the job's {what} must be one line of printable text, found {text!r}")
        if self.master:
            check_host(self.master, Where("--master"))
        if not _QUEUE.fullmatch(self.queue):
            raise TemplateError(f"a queue must be one word, such as batch, found {self.queue!r}")
        for mount in self.mounts:
            if not _MOUNT.fullmatch(mount):
                raise TemplateError(f"a mount must be two full paths, such as /data:/data, found {mount!r}")


def script_of(command: Sequence[str]) -> tuple[str, ...]:
    """Return the script with its arguments, without the ``python3`` before it: launch files start it themselves.

    Raise `TemplateError` for a shell script, and for a launcher, because the target is one.
    """
    words = list(command)
    if words and _PYTHON.fullmatch(words[0].rpartition("/")[2]):
        words = words[2:] if words[1:2] == ["-u"] else words[1:]
    name = words[0].rpartition("/")[2] if words else ""
    launcher = words[1] if words[:1] == ["-m"] and len(words) > 1 else name
    if launcher in _LAUNCHERS:
        raise TemplateError(f"{launcher}: the launch target starts the ranks itself; name only the script: -- train.py")
    if not name or name in _SHELLS or name.endswith((".sh", ".bash")):
        raise TemplateError(
            f"{shlex.join(command)} starts no Python script, as launch targets do; name one: -- train.py,"
            " or start it with gpuops launch --layout"
        )
    return tuple(words)


def time_of(job: Job) -> str:
    """Return the time limit as hours, minutes and seconds, ``24:00:00``; empty if there is none."""
    minutes, seconds = divmod(job.time_seconds, 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}" if job.time_seconds else ""


def master_of(job: Job, placement: Placement) -> str:
    """Return the address at which the ranks meet: the job's own, else that of the first node."""
    return job.master or placement.meeting.master


def identity_of(name: str, placement: Placement) -> str:
    """Return an identifier of the job for its rendezvous, so that two jobs never meet: its name and 8 hex digits.

    It is the same whenever the job is rendered, and depends on the name, the layout and the nodes.
    """
    return f"{name}-{_digest(name, str(placement.layout), (node.name for node in placement.nodes)):08x}"


def port_of(name: str, layout: str, nodes: Iterable[str]) -> int:
    """Return the TCP port of the job's rendezvous: from the same values, and below the kernel's own range (32768)."""
    return _FIRST_PORT + _digest(name, layout, nodes) % _PORTS


def _digest(name: str, layout: str, nodes: Iterable[str]) -> int:
    return zlib.crc32("\0".join((name, layout, *nodes)).encode())


def own_port(name: str, placement: Placement) -> int:
    """Return `port_of` the job on its nodes."""
    return port_of(name, str(placement.layout), (node.name for node in placement.nodes))


def environment_of(placement: Placement, engine: Engine) -> tuple[Env, ...]:
    """Return the variables that this placement needs. What NCCL detects by itself is left to NCCL."""
    return tuple(_variables(placement, engine))


def _variables(placement: Placement, engine: Engine) -> Iterator[Env]:
    yield Env("CUDA_DEVICE_ORDER", "PCI_BUS_ID", "CUDA numbers the GPUs as nvidia-smi does")
    yield from _ports(placement)
    yield from _interfaces(placement.meeting)
    yield from _threads(placement)
    if engine == "megatron" and (placement.layout.tp > 1 or placement.layout.cp > 1):
        reason = (
            "communication overlaps only if kernels start in order (Megatron-LM; not needed on Blackwell and newer)"
        )
        yield Env("CUDA_DEVICE_MAX_CONNECTIONS", "1", reason)


def _ports(placement: Placement) -> Iterator[Env]:
    """Yield NCCL_IB_HCA; where names differ between nodes, each node has its own, and all of them are the rest's."""
    nics_by_node = {
        node.name: sorted({rank.nic for rank in placement.on(node.name) if rank.nic}) for node in placement.nodes
    }
    nics = sorted({nic for own in nics_by_node.values() for nic in own})
    if nics and len(placement.nodes) > 1:
        reason = "the ports next to the GPUs; NCCL would also use storage and management ports"
        own = {node: "=" + ",".join(names) for node, names in nics_by_node.items() if names and names != nics}
        yield Env("NCCL_IB_HCA", "=" + ",".join(nics), reason, own)


def _interfaces(meeting: Meeting) -> Iterator[Env]:
    """Yield the interface of NCCL's and Gloo's connections; Gloo takes one name alone, NCCL exact names behind a =."""
    by_node = meeting.interface_by_node
    names = sorted(set(by_node.values()))
    if not names:
        return
    exact = {node: f"={name}" for node, name in by_node.items()} if len(names) > 1 else {}
    yield Env("NCCL_SOCKET_IFNAME", "=" + ",".join(names), meeting.why, exact)
    own = dict(by_node) if len(names) > 1 else {}
    yield Env("GLOO_SOCKET_IFNAME", names[0] if len(names) == 1 else "", meeting.why, own)


def _threads(placement: Placement) -> Iterator[Env]:
    """Yield OMP_NUM_THREADS, unless the cores of a node are unknown."""
    threads = {node.name: _threads_of(node, len(placement.on(node.name))) for node in placement.nodes}
    if not all(threads.values()):
        return
    fewest = min(threads.values())
    own = {node: str(number) for node, number in threads.items() if number != fewest}
    yield Env("OMP_NUM_THREADS", str(fewest), "a node's cores, divided by its ranks; torchrun would set 1", own)


def _threads_of(node: NodeShape, ranks: int) -> int:
    return max(1, node.cores // ranks) if node.cores else 0
