"""A launch command as its launcher reads it: the hosts, the program, the rendezvous and the environment."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from gpuops.collective.idleness.slurm import unfolded
from gpuops.errors import InputError, did_you_mean

Launcher = Literal["torchrun", "deepspeed", "mpirun", "srun", "accelerate", "launch"]
DEFAULT_PORT = 29500
"""The default port of the rendezvous of torch and DeepSpeed."""
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_PYTHON = re.compile(r"python[\d.]*")
_TORCH_MODULES = ("torch.distributed.run", "torch.distributed.launch")
_LAUNCHERS: Mapping[str, Launcher] = {
    "torchrun": "torchrun",
    "deepspeed": "deepspeed",
    "mpirun": "mpirun",
    "mpiexec": "mpirun",
    "srun": "srun",
}
_FLAGS: Mapping[Launcher, frozenset[str]] = {
    "torchrun": frozenset("--standalone -m --module --no-python --run-path --virtual-local-rank".split()),
    "accelerate": frozenset(
        "--quiet -q --cpu --multi-gpu --tpu --use-deepspeed --use-fsdp --use-megatron-lm --use-parallelism-config "
        "--enable-cpu-affinity --debug -m --module --no-python".split()
    ),
    "deepspeed": frozenset(
        "--module --no-python --no-local-rank --no-ssh --no-ssh-check --force-multi "
        "--bind-cores-to-rank --elastic-training --save-pid".split()
    ),
    "mpirun": frozenset(
        "--allow-run-as-root --oversubscribe -oversubscribe --nooversubscribe --tag-output -tag-output -q --quiet -v "
        "--verbose --report-bindings -report-bindings --display-map --display-allocation --bind-to-none".split()
    ),
    "srun": frozenset(
        "-l --label -u --unbuffered -K --kill-on-bad-exit --overlap --exclusive -O --overcommit -s --oversubscribe -v "
        "--verbose -Q --quiet --pty --contiguous --exact --no-kill -k -I --immediate".split()
    ),
}
"""The options of each launcher that take no value; all others take one."""
_STATIC = "--master-addr={master} --master-port={port}"
_COUNTS = frozenset("--nnodes --num_nodes --num-nodes --nodes -N".split())
_MCA = frozenset("--mca -mca --prtemca --pmixmca -gmca --gmca".split())


@dataclass(frozen=True)
class NodeCommand:
    """What one node starts, as far as it differs from other nodes of the job.

    ``program`` and ``files`` are in place of those of the `LaunchCommand` if they are set, and so is ``ranks``, the
    number of processes; ``environment`` is set beside that of all nodes. ``limits`` are commands such as
    ``ulimit -n 64``, by the names of what they limit in limits.conf(5). ``places`` holds where a script sets a variable
    or a limit, or names a file or the program, as ``FILE:LINE: ``.
    """

    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    program: str = ""
    files: tuple[str, ...] = ()
    ranks: int | None = None
    limits: Mapping[str, str] = field(default_factory=dict, hash=False)
    places: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class LaunchCommand:
    """The meaning of a command line. ``program`` must run on every host: torchrun itself, or a Python.

    ``hosts`` are those that it names, in order (empty: each host is started by hand, or Slurm chooses); ``count`` is
    how many there must be. ``master`` and ``port`` are the address of the rendezvous; None: the launcher chooses. The
    command sets ``environment`` for its ranks; ``mpi_interface`` is where Open MPI may connect. ``rendezvous`` is this
    launcher's syntax for the address. It starts ``per_node`` processes on each host (None: as many as it has GPUs, or
    unknown), which need the ``files`` at these absolute paths; ``words`` are the command as it was typed. A job of
    gpuops' own starts in ``folder``. If it has launch files, they are in ``launch``; what they say is in ``by_node``.
    """

    launcher: Launcher
    program: str
    hosts: tuple[str, ...] = ()
    count: int | None = None
    master: str | None = None
    port: int = DEFAULT_PORT
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    mpi_interface: str = ""
    per_node: int | None = None
    files: tuple[str, ...] = ()
    rendezvous: str = "MASTER_ADDR={master} MASTER_PORT={port}"
    words: tuple[str, ...] = field(default=(), compare=False)
    folder: str = ""
    launch: str = ""
    by_node: Mapping[str, NodeCommand] = field(default_factory=dict, hash=False)

    def on(self, node: str) -> NodeCommand:
        """Return what ``node`` starts, with all that it has in common with the other nodes."""
        own = self.by_node.get(node, NodeCommand())
        return replace(
            own,
            environment={**self.environment, **own.environment},
            program=own.program or self.program,
            files=own.files or self.files,
            ranks=self.per_node if own.ranks is None else own.ranks,
        )

    def environment_on(self, node: str) -> dict[str, str]:
        """Return the variables that the command sets on ``node``."""
        return dict(self.on(node).environment)

    def place_of(self, node: str, name: str) -> str:
        """Return where a script sets ``name`` on ``node``, as ``FILE:LINE: ``; empty if none does."""
        return self.on(node).places.get(name, "")

    @property
    def needs_master(self) -> bool:
        """True if several nodes cannot start unless the command sets a rendezvous."""
        return self.rendezvous.startswith("--rdzv")

    @property
    def hides_gpus(self) -> bool:
        """True for a job that uses no GPU: its CUDA_VISIBLE_DEVICES is empty or -1, as CUDA's documentation has it."""
        return self.environment.get("CUDA_VISIBLE_DEVICES", "all").strip() in ("", "-1")

    @property
    def starts_here(self) -> bool:
        """True for a job of ``gpuops launch``, whose options are those of that command."""
        return self.words[:2] == ("gpuops", "launch")

    def with_rendezvous(self, master: str, port: int) -> str:
        """Return the options that set the rendezvous."""
        return self.rendezvous.format(master=master, port=port)

    def for_nodes(self, number: int, nodelist: str = "") -> tuple[str, ...]:
        """Return the words of the command for ``number`` nodes; for srun also with their ``nodelist``."""
        pairs = zip(("", *self.words), self.words, strict=False)
        words = [_recounted(before, word, str(self.count), str(number)) for before, word in pairs]
        if nodelist:
            words = [word for word in words if not word.startswith("--nodelist=")]
            at = [word.rpartition("/")[2] for word in words].index(self.launcher) + 1
            words.insert(at, f"--nodelist={nodelist}")
        return tuple(words)

    def setting(self, name: str, value: str) -> str:
        """Return an assignment of an environment variable in this launcher's syntax."""
        if self.launcher == "srun":
            return f"--export=ALL,{name}={value}"
        if self.starts_here:
            return f"--env {name}={value}"
        return f"-x {name}={value}" if self.launcher == "mpirun" else f"{name}={value}"


@dataclass(frozen=True)
class Words:
    """The options of a launcher, each with its values, and the words after them."""

    options: Mapping[str, list[str]]
    behind: list[str]

    def last(self, *names: str) -> str | None:
        """Return the effective value of an option with several names."""
        return next((self.options[name][-1] for name in names if name in self.options), None)

    def number(self, *names: str) -> int | None:
        """Return the same as a number; the lower end of a range (``2:4``)."""
        text = (self.last(*names) or "").partition(":")[0]
        return int(text) if text.isdecimal() and len(text) < 10 else None


def _recounted(before: str, word: str, old: str, new: str) -> str:
    """Return ``word`` with the ``new`` number if it asks for ``old`` nodes, alone or behind the option ``before``."""
    name, _, value = word.partition("=")
    if name in _COUNTS and value.partition(":")[0] == old:
        return f"{name}={new}"
    if before in _COUNTS and word.partition(":")[0] == old:
        return new
    return f"-N{new}" if word == f"-N{old}" else word


ReadFile = Callable[[str], str]


def read_command(words: Sequence[str], read_file: ReadFile, environ: Mapping[str, str]) -> LaunchCommand:
    """Read the command in ``words``; raise `InputError` if that is not possible.

    ``read_file`` returns the text of a hostfile. ``environ`` is the environment in which the command would be typed.
    """
    assignments, rest = _assignments(words)
    launcher, program, rest = _launcher(rest)
    command = _READERS[launcher](LaunchCommand(launcher, program), read_options(launcher, rest), read_file)
    typed = {**environ, **assignments}
    if launcher == "mpirun":  # passes on only variables named by -x; without a value, its own
        variables = {name: value or typed.get(name, "") for name, value in command.environment.items()}
    else:
        passed_on = {"torchrun": (), "srun": ("NCCL_", "CUDA_VISIBLE_DEVICES")}.get(launcher, ("NCCL_",))
        inherited = {name: value for name, value in environ.items() if name.startswith(passed_on)}
        variables = {**inherited, **assignments, **command.environment}
    return replace(_with_environment(command, variables), words=tuple(words))


def _with_environment(command: LaunchCommand, environment: Mapping[str, str]) -> LaunchCommand:
    """Return the command with its environment, which may set the rendezvous if no option does."""
    port = environment.get("MASTER_PORT", "")
    master = command.master or environment.get("MASTER_ADDR")
    return replace(
        command,
        environment=environment,
        master=master,
        port=int(port) if port.isdecimal() and len(port) < 10 else command.port,
    )


def _assignments(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the ``NAME=VALUE`` words before a command, with or without ``env``, and the rest."""
    variables: dict[str, str] = {}
    rest = list(words)
    while rest and (rest[0] == "env" or _ASSIGNMENT.fullmatch(rest[0])):
        name, _, value = rest.pop(0).partition("=")
        if name != "env":
            variables[name] = value
    return variables, rest


def _launcher(words: Sequence[str]) -> tuple[Launcher, str, list[str]]:
    """Return the launcher, its program and its arguments."""
    first = words[0] if words else ""
    name = first.rpartition("/")[2]
    if is_torchrun(words) and name != "torchrun":
        return "torchrun", first, list(words[3:])
    if name not in _LAUNCHERS:
        hint = did_you_mean(name, _LAUNCHERS) or f"; expected one of {', '.join(_LAUNCHERS)}"
        raise InputError(f'"{first}" is not a launcher that preflight can read{hint}')
    return _LAUNCHERS[name], first, list(words[1:])


def is_torchrun(words: Sequence[str]) -> bool:
    """Return True for torchrun, also as ``python -m torch.distributed.run``."""
    name = words[0].rpartition("/")[2] if words else ""
    module = words[2] if len(words) > 2 and words[1] == "-m" else ""
    return name == "torchrun" or (bool(_PYTHON.fullmatch(name)) and module in _TORCH_MODULES)


def read_options(launcher: Launcher, words: Sequence[str]) -> Words:
    """Parse options up to the first other word; launchers in Python accept ``_`` for ``-`` in names."""
    values: dict[str, list[str]] = {}
    rest = list(words)
    while rest and rest[0].startswith("-"):
        name, equals, value = rest.pop(0).partition("=")
        name = name.replace("_", "-") if launcher in ("torchrun", "deepspeed", "accelerate") else name
        if name in _MCA and len(rest) > 1:
            name, value = f"mca {rest.pop(0)}", rest.pop(0)
        elif launcher == "srun" and len(name) > 2 and name[1] != "-":  # -N4
            name, value = name[:2], name[2:]
        elif not equals and name not in _FLAGS[launcher] and rest:
            value = rest.pop(0)
        values.setdefault(name, []).append(value)
    return Words(values, rest)


def _torchrun(command: LaunchCommand, words: Words, _read_file: ReadFile) -> LaunchCommand:
    endpoint = words.last("--rdzv-endpoint") or ""
    host, _, port = endpoint.rpartition(":") if re.search(r":\d{1,9}\Z", endpoint) else (endpoint, "", "")
    return replace(
        command,
        count=1 if "--standalone" in words.options else words.number("--nnodes"),
        master=words.last("--master-addr") or host or None,
        port=int(port) if port else words.number("--master-port") or DEFAULT_PORT,
        per_node=words.number("--nproc-per-node"),
        files=_script(words.behind),
        rendezvous=_STATIC
        if "--master-addr" in words.options
        else "--rdzv-backend=c10d --rdzv-endpoint={master}:{port}",
    )


def _deepspeed(command: LaunchCommand, words: Words, read_file: ReadFile) -> LaunchCommand:
    hostfile = words.last("-H", "--hostfile")
    hosts = _hostfile(read_file(hostfile)) if hostfile else ()
    chosen = [part.partition(":")[0] for part in (words.last("-i", "--include") or "").split("@") if part]
    whole = [part for part in (words.last("-e", "--exclude") or "").split("@") if part and ":" not in part]
    selected = tuple(host for host in hosts if (not chosen or host in chosen) and host not in whole)
    count = words.number("--num-nodes")
    return replace(
        command,
        hosts=selected[:count] if count else selected,
        count=count,
        master=words.last("--master-addr") or next(iter(selected), None),
        port=words.number("--master-port") or DEFAULT_PORT,
        per_node=words.number("--num-gpus"),
        files=_script(words.behind),
        rendezvous="--master_addr={master} --master_port={port}",
    )


def _script(behind: Sequence[str]) -> tuple[str, ...]:
    """Return the script behind a launcher's options, if it is an absolute path: others depend on a directory."""
    return tuple(word for word in behind[:1] if word.startswith("/"))


def _mpirun(command: LaunchCommand, words: Words, read_file: ReadFile) -> LaunchCommand:
    listed = [name for value in _values(words, "-H", "-host", "--host") for name in value.split(",")]
    files = _values(words, "--hostfile", "-hostfile", "-machinefile", "--machinefile")
    hosts = [name.partition(":")[0] for name in listed] + [
        name for file in files for name in _hostfile(read_file(file))
    ]
    inner = _inner(command, words.behind, read_file)
    settings = {name: value for name, _, value in (v.partition("=") for v in _values(words, "-x", "--x"))}
    return replace(
        inner,
        hosts=tuple(dict.fromkeys(hosts)),
        environment={**settings, **inner.environment},
        mpi_interface=words.last("mca btl_tcp_if_include", "mca oob_tcp_if_include") or "",
    )


def _srun(command: LaunchCommand, words: Words, read_file: ReadFile) -> LaunchCommand:
    exported = [part.partition("=") for value in _values(words, "--export") for part in value.split(",")]
    nodes = words.last("-w", "--nodelist") or ""
    inner = _inner(command, words.behind, read_file)
    return replace(
        inner,
        hosts=tuple(unfolded(nodes)),
        count=words.number("-N", "--nodes"),
        environment={**{name: value for name, equals, value in exported if equals}, **inner.environment},
    )


def _inner(command: LaunchCommand, behind: Sequence[str], read_file: ReadFile) -> LaunchCommand:
    """Return what mpirun or srun starts: a program, or torchrun, which sets the rendezvous of its ranks."""
    assignments, rest = _assignments(behind)
    if not rest:
        raise InputError(f"the {command.launcher} command names no program to start")
    if is_torchrun(rest):
        inner = read_command(rest, read_file, {})
        return replace(inner, launcher=command.launcher, count=None, environment={**assignments, **inner.environment})
    return replace(command, program=rest[0], environment=assignments)


_READERS: Mapping[Launcher, Callable[[LaunchCommand, Words, ReadFile], LaunchCommand]] = {
    "torchrun": _torchrun,
    "deepspeed": _deepspeed,
    "mpirun": _mpirun,
    "srun": _srun,
}


def _values(words: Words, *names: str) -> list[str]:
    return [value for name in names for value in words.options.get(name, ())]


def _hostfile(text: str) -> tuple[str, ...]:
    """Return the hosts of a DeepSpeed or MPI hostfile: the first word of each line that is not a comment."""
    lines = (line.partition("#")[0].split() for line in text.splitlines())
    return tuple(dict.fromkeys(words[0].partition(":")[0] for words in lines if words))
