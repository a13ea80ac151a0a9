"""Commands and their options in one spelling for all that their programs read alike; pure."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gpuops.render.slurm_options import (
    DECISIVE,
    SBATCH_NAMES,
    SBATCH_SHORT,
    SBATCH_VALUES,
    SRUN_NAMES,
    SRUN_SHORT,
    SRUN_VALUES,
)

_NUMBER = re.compile(r"-[\d.]")
_OVERRIDE = re.compile(r"\w+(?:\.\w+)+=")
"""Hydra's way to set a value: ``model.seq_length=8192``."""
_OPERATOR = re.compile(r"[();<>|&]+|\d*[<>].*")
KEYED = frozenset({"-x", "--mca", "--setopt", "--setattr", "--env"})
"""Options whose value is a name, with a value of its own."""
_EXACT_PROGRAMS = re.compile(
    r"--tensor-model-parallel-size|--parallelism\.|model\.tensor_model_parallel_size=|--per_device_train_batch_size"
    r"|--deepspeed_config|--tensor-parallel-size|--tp-size|--batch_size"
)
"""Options by which a program is known to read its arguments with argparse or Hydra."""


@dataclass(frozen=True)
class Style:
    """How a program reads options: how many ``values`` follow by name, its ``short`` names, and whether _ is -.

    ``decisive`` options decide where ranks run and how many there are. ``names`` are all names of a program that takes
    the start of one for it.
    """

    values: Mapping[str, int]
    short: Mapping[str, str] = field(default_factory=dict)
    has_dashes: bool = False
    decisive: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()

    def first(self, words: Sequence[str]) -> tuple[tuple[str, ...], int]:
        """Return the option at the start of ``words``, its long name with its values, and how many words it takes."""
        name, value = _split(words[0])
        if name[:2] in self.short and len(name) > 2 and name not in self.values:  # -N4
            name, value = name[:2], name[2:] + ("" if value is None else f"={value}")
        name = self._long(self.short.get(name, name.replace("_", "-") if self.has_dashes else name))
        own = () if value is None else (value,)
        more = words[1 : 1 + self.values.get(name, 0) - len(own)]
        return (name, *own, *more), 1 + len(more)

    def _long(self, name: str) -> str:
        """Return the only one of the ``names`` that begins with ``name``, as getopt_long(3) does."""
        if name in self.names or not name.startswith("--"):
            return name
        found = [each for each in self.names if each.startswith(name)]
        return found[0] if len(found) == 1 else name


def _one_value(names: str) -> dict[str, int]:
    return dict.fromkeys(names.split(), 1)


def _names(names: str) -> frozenset[str]:
    return frozenset(names.split())


def _pairs(words: str) -> dict[str, str]:
    """Return the long names by the short ones before them."""
    names = words.split()
    return dict(zip(names[::2], names[1::2], strict=True))


_TORCHRUN = Style(
    _one_value(
        "--nnodes --nproc-per-node --node-rank --master-addr --master-port --max-restarts --rdzv-backend"
        " --rdzv-endpoint --rdzv-id --rdzv-conf --local-addr --monitor-interval --start-method --role --log-dir"
        " --redirects --tee --local-ranks-filter"
    ),
    {"-r": "--redirects", "-t": "--tee"},
    has_dashes=True,
    decisive=_names(
        "--nnodes --nproc-per-node --node-rank --master-addr --master-port --rdzv-backend --rdzv-endpoint --rdzv-id"
        " --standalone --no-python --module"
    ),
)
_ACCELERATE = Style(
    _one_value(
        "--config-file --num-machines --num-processes --machine-rank --main-process-ip --main-process-port"
        " --mixed-precision --dynamo-backend --rdzv-backend --rdzv-conf --max-restarts --monitor-interval --gpu-ids"
    ),
    has_dashes=True,
    decisive=_names(
        "--config-file --num-machines --num-processes --machine-rank --main-process-ip --main-process-port --gpu-ids"
        " --rdzv-backend --cpu --multi-gpu --tpu --use-deepspeed --use-fsdp --use-megatron-lm --use-parallelism-config"
        " --module --no-python"
    ),
)
_DEEPSPEED = Style(
    _one_value(
        "--hostfile --include --exclude --num_nodes --num_gpus --master_addr --master_port --launcher --launcher_args"
        " --ssh_port --node_rank --save_pid"
    ),
    {"-H": "--hostfile", "-i": "--include", "-e": "--exclude"},
    decisive=_names(
        "--hostfile --include --exclude --num_nodes --num_gpus --master_addr --master_port --launcher --node_rank"
        " --elastic_training --module --no_python --no_local_rank"
    ),
)
SBATCH = Style(dict.fromkeys(SBATCH_VALUES, 1), SBATCH_SHORT, decisive=DECISIVE, names=SBATCH_NAMES)
_SRUN = Style(dict.fromkeys(SRUN_VALUES, 1), SRUN_SHORT, decisive=DECISIVE, names=SRUN_NAMES)
FLUX = Style(
    _one_value(
        "--nodes --ntasks --nslots --cores-per-slot --gpus-per-slot --time-limit --queue --bank --job-name --requires"
        " --output --error --setopt --setattr --env --cwd --urgency --dependency --conf --tasks-per-node"
        " --gpus-per-node"
    ),
    _pairs(
        "-N --nodes -n --ntasks -t --time-limit -q --queue -B --bank -o --setopt -S --setattr -c --cores-per-slot"
        " -g --gpus-per-slot -x --exclusive"
    ),
    decisive=_names(
        "--nodes --ntasks --nslots --gpus-per-slot --requires --tasks-per-node --gpus-per-node --urgency --dry-run"
    ),
)
_PBS = "-N -l -j -r -q -A -o -e -M -m -W -a -c -p -S -u -v -J"
PBS = Style(
    _one_value(_PBS),
    dict(zip(_PBS.split(), _PBS.split(), strict=True)),
    decisive=_names("-J -h") | {"-l nodes", "-l select"},
)
_MPIRUN = Style(
    {**_one_value("-np --hostfile --rankfile --bind-to --map-by -x -N -f -iface --host -wdir"), "--mca": 2},
    {"-n": "-np", "-c": "-np", "-mca": "--mca", "-hostfile": "--hostfile", "--machinefile": "--hostfile"},
    decisive=_names("-np --hostfile --rankfile --map-by --rank-by -N -npernode --npernode --host -host -f -ppn --tune"),
)
_ANY = Style({})
_TYRO = Style({}, has_dashes=True)
"""The parser of torchtitan (torchtitan/config/manager.py), which takes _ and - in names alike (tyro.cli)."""
_LAUNCHERS: tuple[tuple[tuple[str, ...], Style], ...] = (
    (("torchrun",), _TORCHRUN),
    (("-m", r"torch\.distributed\.run"), _TORCHRUN),
    (("accelerate", "launch"), _ACCELERATE),
    (("deepspeed",), _DEEPSPEED),
    (("srun",), _SRUN),
    (("flux", "run"), FLUX),
    ((r'"?(\$\{\w+:-)?mpi(run|exec(\.hydra)?)\}?"?',), _MPIRUN),
)


@dataclass(frozen=True)
class OptionWords:
    """A command: its ``parts`` as they must be, and as a program with argparse or Hydra reads them (``loose``).

    ``decides`` are the options of launchers that decide where ranks run and how many there are.
    """

    parts: tuple[str, ...]
    loose: tuple[str, ...]
    decides: tuple[str, ...] = ()

    @property
    def is_known(self) -> bool:
        """True if the program is known to read the ``loose`` parts alike."""
        return any(map(_EXACT_PROGRAMS.match, self.parts)) or self.parts == self.loose


def read_words(words: Sequence[str]) -> OptionWords:
    """Return a command of ``words``, quoted as `gpuops.render.shell_words.spelled_words` does.

    The options of launchers have no order, but for equal ones.
    """
    parts, rest, starts, decides = list[str](), list(words), False, list[str]()
    while launcher := _first_launcher(rest):
        at, style = launcher
        groups, end = _leading(rest[at:], style)
        parts += [*rest[:at], *_sorted(groups)]
        decides += [group[0] for group in groups if group[0] in style.decisive]
        rest, starts = rest[at + end :], True
    before, arguments, behind = _program(rest, starts=starts)
    loose = _sorted(argument_groups(arguments))
    return OptionWords((*parts, *before, *arguments, *behind), (*parts, *before, *loose, *behind), tuple(decides))


def _first_launcher(words: Sequence[str]) -> tuple[int, Style] | None:
    """Return the index behind the first launcher, and its style."""
    for at in range(len(words)):
        for names, style in _LAUNCHERS:
            own = [words[at].rpartition("/")[2], *words[at + 1 : at + len(names)]]
            if len(own) == len(names) and all(map(re.fullmatch, names, own)):
                return at + len(names), style
    return None


def _leading(words: Sequence[str], style: Style) -> tuple[list[tuple[str, ...]], int]:
    """Return the options at the start of ``words``, and the index of the first word behind them."""
    groups, at = list[tuple[str, ...]](), 0
    while at < len(words) and is_option(words[at]) and (words[at] != "-m" or "-m" in style.short):
        group, taken = style.first(words[at:])
        groups.append(group)
        at += taken
    return groups, at


def _program(words: Sequence[str], *, starts: bool) -> tuple[Sequence[str], Sequence[str], Sequence[str]]:
    """Return the words of the program, its arguments, and what the shell does with it; ``starts`` if it is first."""
    end = next((at for at, word in enumerate(words) if _OPERATOR.fullmatch(word)), len(words))
    module = next((at for at in range(end - 1) if words[at] == "-m"), None)
    script = next((at for at in range(end) if words[at].rstrip("'\"").endswith(".py")), None)
    first = min((at for at in (None if module is None else module + 1, script) if at is not None), default=None)
    at = min(end, 1 if starts else end) if first is None else first + 1
    return words[:at], words[at:end], words[end:]


def argument_groups(words: Sequence[str]) -> list[tuple[str, ...]]:
    """Return each option with the words up to the next one, as argparse reads ``nargs``; what is before them first."""
    groups: list[tuple[str, ...]] = []
    style = _TYRO if any(word.startswith("--parallelism.") for word in words) else _ANY
    for word in words:
        if is_option(word):
            groups.append(style.first([word])[0])
        elif _OVERRIDE.match(word) or not groups or not is_option(groups[-1][0]):
            groups.append((word,))
        else:
            groups[-1] = (*groups[-1], word)
    return groups


def _sorted(groups: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield the groups in the order of their names; equal names, and words that are not options, keep their order."""
    yield from (word for group in groups if not _has_name(group[0]) for word in group)
    yield from map(joined, sorted((group for group in groups if _has_name(group[0])), key=name_of_group))


def name_of_group(group: Sequence[str]) -> str:
    """Return the name of an option; each variable, setting or parameter of those that have a name is one of its own."""
    is_named = len(group) > 1 and group[0] in KEYED
    return f"{group[0]} {group[1].partition('=')[0]}" if is_named else group[0].partition("=")[0]


def _has_name(word: str) -> bool:
    return is_option(word) or bool(_OVERRIDE.match(word))


def joined(group: Sequence[str]) -> str:
    """Return an option as it is shown."""
    return f"{group[0]}={group[1]}" if len(group) == 2 and group[0].startswith("--") else " ".join(group)


def is_option(word: str) -> bool:
    """Return True for ``-x`` and ``--name``, also in quotes, and not for a negative number."""
    return word.lstrip("'")[:1] == "-" and word not in ("-", "--") and not _NUMBER.match(word)


@functools.lru_cache(4096)
def _split(word: str) -> tuple[str, str | None]:
    """Return the name of an option, and its value behind ``=``; a name with a blank stays one word, in quotes."""
    if word.startswith("'-"):
        plain = "".join(shlex.split(word))
        name, equals, value = plain.partition("=")
        return shlex.quote(name), shlex.quote(value) if equals else None
    name, equals, value = word.partition("=")
    return name, value if equals else None
