"""The script of a node as a shell reads it: what it exports, and the options of the launcher that it starts; pure.

Commands that run only under a condition, other programs and variables are not followed: they are ``unread``, as far as
they come before the launcher.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Literal

from gpuops.collective.preflight.launch_command import is_torchrun, read_options
from gpuops.document import parse
from gpuops.errors import DocumentError
from gpuops.launching.scripts.commands import TESTS, ShellCommand, shell_commands

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL | re.ASCII)
_EXPORTS = frozenset("export declare typeset".split())
_ASSIGNS = frozenset("declare typeset readonly".split())
"""Commands that set a variable and leave it exported if it was."""
_OTHER_SCRIPTS = frozenset("source . eval".split())
_MENTIONS = frozenset("echo printf type which hash command ls pip pip3".split()) | TESTS
"""Commands after which a launcher's name is only a word."""
_KNOWN = frozenset(
    ": true cat echo printf local exec exit return shopt trap umask pwd date hostname sleep wait type hash which cd"
    " ulimit unset set".split()
).union(_EXPORTS, _ASSIGNS, TESTS)
"""Commands that are followed, or that decide nothing about the job."""
_MAKE_NO_FILES = frozenset("module ml conda mamba source . nvidia-smi grep ls rm chmod false lscpu free".split())
"""Programs that do not make the directory to which a script changes behind them."""
_LIMITS = {"n": "nofile", "l": "memlock"}
"""The options of ulimit that count, with the names of limits.conf(5)."""
_EXPANDED = re.compile(r"[$`]")
_FEW_WORDS = 3
_CONFIG_KEYS = ("num_machines", "num_processes", "machine_rank", "main_process_ip", "main_process_port")


@dataclass(frozen=True)
class Setting:
    """The value of an option or variable as it is written on ``line`` of the file ``path``.

    A default is not there, and neither is a variable that the line unsets; that has no value.
    """

    name: str
    value: str
    path: str
    line: int
    is_there: bool = True

    @property
    def place(self) -> str:
        """The file and the line."""
        return f"{self.path}:{self.line}"

    @property
    def is_readable(self) -> bool:
        """False if only running the script shows the value."""
        return not _EXPANDED.search(self.value)

    def __str__(self) -> str:
        """Return ``NAME=VALUE``, or the lack of it."""
        if self.name.startswith("--") and not self.value:
            return self.name
        if self.is_there:
            return f"{self.name}={self.value}"
        return f"no {self.name} (the default is {self.value})" if self.value else f"unset {self.name}"


@dataclass(frozen=True)
class Script:
    """What a script does. ``start`` is where it starts the ``launcher`` by the name ``program``; None: nowhere.

    ``history`` are the settings of each variable that it exports, in their order. ``end`` is a command before ``start``
    that ends the script, ``never`` one that keeps ``start`` from running. ``options`` are by their names with dashes,
    ``words`` are behind them: the job's program with its arguments. ``folder`` is where it starts them, seen from where
    it is started itself (None: unknown), ``folders`` are the directories to which it changes, and ``limits`` what it
    sets by ulimit. ``unread`` are the sentences about what was not followed, each with its line; such a command
    ``may_make`` files.
    """

    path: str
    history: Mapping[str, tuple[Setting, ...]] = field(default_factory=dict, hash=False)
    launcher: Literal["torchrun", "accelerate"] = "torchrun"
    program: str = ""
    start: Setting | None = None
    end: Setting | None = None
    never: Setting | None = None
    folder: str | None = ""
    folders: tuple[Setting, ...] = ()
    limits: Mapping[str, Setting] = field(default_factory=dict, hash=False)
    may_make: bool = False
    options: Mapping[str, Setting] = field(default_factory=dict, hash=False)
    words: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()

    @functools.cached_property
    def exports(self) -> Mapping[str, Setting]:
        """The variables that the launcher gets from the script."""
        return {name: own[-1] for name, own in self.history.items() if own[-1].is_there}

    @property
    def config(self) -> str:
        """The file name of Accelerate's configuration; empty if the script names none."""
        named = self.options.get("--config-file") if self.launcher == "accelerate" else None
        return named.value.rpartition("/")[2] if named else ""


def read_script(path: str, text: str) -> Script:
    """Read the script ``text`` of the file ``path``."""
    script, variables = Script(path), dict[str, Setting]()
    try:
        commands = list(shell_commands(text))
    except ValueError:
        return replace(script, unread=(f"{path}: its quotes span lines",))
    for command in commands:
        script = _after(script, command, variables)
    return replace(script, options=_with_lines(script, text)) if script.start else script


def with_config(script: Script, path: str, text: str) -> Script:
    """Return the script with the settings of Accelerate's configuration; options of the command line hide them."""
    try:
        top = parse(text, path).map()
    except DocumentError as error:
        return replace(script, unread=(*script.unread, str(error)))
    found = {
        _option(key): Setting(_option(key), top[key].scalar or "", path, top[key].where.line)
        for key in _CONFIG_KEYS
        if key in top
    }
    return replace(script, options={**found, **script.options})


def _option(key: str) -> str:
    return "--" + key.replace("_", "-")


def _after(script: Script, command: ShellCommand, variables: dict[str, Setting]) -> Script:
    """Return what is known of the script after one more command; ``variables`` are those that it has assigned."""
    at = _launcher_at(command.words)
    if command.never:
        return _never_started(script, command, at) if at is not None and not script.start else script
    if command.words[0] in _OTHER_SCRIPTS:
        return _unread(script, command, f"{' '.join(command.words)} is not followed")
    if command.depends:
        return _after_condition(script, command, at)
    if at is not None:
        return _started(replace(script, start=None, never=None) if script.never else script, command, at)
    return _set(script, command, variables) if script.start else _before_start(script, command, variables)


def _before_start(script: Script, command: ShellCommand, variables: dict[str, Setting]) -> Script:
    if _ends(command) and not script.end:
        return replace(script, end=Setting("", " ".join(command.words), script.path, command.line))
    follow = {"cd": _moved, "ulimit": _limited}.get(command.words[0])
    return follow(script, command) if follow else _not_followed(_set(script, command, variables), command)


def _after_condition(script: Script, command: ShellCommand, at: int | None) -> Script:
    """Return what is known after a command that may not run; ``at`` is where it starts a launcher."""
    first = command.words[0]
    leaves = first in ("exit", "return") and not command.otherwise
    decides = first in {*_EXPORTS, "unset"} or (not script.start and (leaves or first in ("cd", "ulimit", "exec")))
    if at is not None or (decides and not command.subshell) or (decides and first in _EXPORTS):
        known = replace(script, folder=None) if first == "cd" else script
        return _unread(known, command, f"{' '.join(command.words[:2])} … depends on a condition")
    return script if script.start else _not_followed(script, command)


def _not_followed(script: Script, command: ShellCommand) -> Script:
    """Return the script with a note on a command before its launcher, unless that is known to decide nothing."""
    words = [*itertools.dropwhile(_ASSIGNMENT.fullmatch, command.words)]
    if not words or words[0] in _KNOWN or words[:2] == ["command", "-v"]:
        return script
    what = " ".join(words[:_FEW_WORDS]) + " …" * (len(words) > _FEW_WORDS)
    may_make = script.may_make or words[0] not in _MAKE_NO_FILES
    return replace(_unread(script, command, f"{what} is not followed"), may_make=may_make)


def _moved(script: Script, command: ShellCommand) -> Script:
    """Return the script after ``cd``: in a directory that must be there, unless a program may have made it."""
    places = [word for word in command.words[1:] if word not in ("-P", "-L", "-e", "--")]
    if command.subshell:
        return script
    if len(places) != 1 or not is_path(places[0]) or (script.folder is None and not places[0].startswith("/")):
        unknown = replace(script, folder=None)
        return _unread(unknown, command, f"{' '.join(command.words)} is known only when it runs")
    folder = str(PurePosixPath(script.folder or "", places[0]))
    if script.may_make:
        unchecked = f"{' '.join(command.words)}: the lines before it may make that directory"
        return replace(_unread(script, command, unchecked), folder=None)
    own = Setting("cd", folder, script.path, command.line)
    return replace(script, folder=folder, folders=(*script.folders, own))


def is_path(word: str) -> bool:
    """Return True if a word of a script is a path as it stands: the shell replaces nothing in it."""
    return not re.search(r"[$`*?\[]", word) and not word.startswith(("~", "-"))


def _limited(script: Script, command: ShellCommand) -> Script:
    """Return the script after ``ulimit``."""
    options, value = "".join(word.strip("-") for word in command.words[1:-1]), command.words[-1]
    name = _LIMITS.get(options.strip("S"), "")
    if len(command.words) == 1 or value.startswith("-") or options.strip("SH") == "c":
        return script  # it only prints, or limits core dumps
    if command.subshell or not name or not re.fullmatch(r"[0-9]{1,18}|unlimited", value):
        return _unread(script, command, f"{' '.join(command.words)} is not followed")
    own = Setting(" ".join(command.words[:-1]), value, script.path, command.line)
    return replace(script, limits={**script.limits, name: own})


def _never_started(script: Script, command: ShellCommand, at: int) -> Script:
    started = _started(script, command, at)
    return replace(started, never=Setting("", command.never, script.path, command.line))


def _ends(command: ShellCommand) -> bool:
    """Return True for ``exit``, and for ``exec`` with a program in place of the script."""
    first, *rest = command.words
    return command.itself and (first == "exit" or (first == "exec" and bool(rest)))


def _set(script: Script, command: ShellCommand, variables: dict[str, Setting]) -> Script:
    """Return the script after a command that may set variables."""
    first, *rest = command.words
    if first == "unset" or (first in _EXPORTS and {"-n", "+x"} & {*rest}):
        return _with(script, _unset(script, command, [] if "-f" in rest else rest))
    if first == "export" or (first in _EXPORTS and "-x" in rest):
        return _with(script, (setting for word in rest for setting in _exported(script, command, word, variables)))
    words = [word for word in rest if not word.startswith("-")] if first in _ASSIGNS else command.words
    own = {match[1]: _setting(script, command, match) for match in map(_ASSIGNMENT.fullmatch, words) if match}
    if len(own) < len(words):
        return script  # variables of this one command
    variables |= own
    return _with(script, (setting for name, setting in own.items() if name in script.exports))


def _with(script: Script, settings: Iterable[Setting]) -> Script:
    """Return the script with more settings of exported variables."""
    history = dict(script.history)
    for setting in settings:
        history[setting.name] = (*history.get(setting.name, ()), setting)
    return replace(script, history=history)


def _unset(script: Script, command: ShellCommand, names: Iterable[str]) -> Iterator[Setting]:
    """Yield the end of each variable of ``names`` that the script has exported."""
    return (Setting(name, "", script.path, command.line, is_there=False) for name in names if name in script.exports)


def _taken_away(words: Sequence[str], exports: Iterable[str]) -> Iterator[str]:
    """Yield the variables that ``env`` before a command takes from it."""
    behind = [*itertools.dropwhile(lambda word: word.rpartition("/")[2] != "env", words)]
    if {"-", "-i", "--ignore-environment"} & {*behind}:
        yield from exports
    for before, word in itertools.pairwise(behind):
        yield word if before in ("-u", "--unset") else re.sub("^(-u|--unset=)", "", word)


def _setting(script: Script, command: ShellCommand, match: re.Match[str]) -> Setting:
    return Setting(match[1], match[2], script.path, command.line)


def _unread(script: Script, command: ShellCommand, why: str) -> Script:
    return replace(script, unread=(*script.unread, f"{script.path}:{command.line}: {why}"))


def _exported(script: Script, command: ShellCommand, word: str, variables: Mapping[str, Setting]) -> Iterator[Setting]:
    """Yield what one word of ``export`` sets: ``NAME=VALUE``, or a name that was assigned before."""
    if match := _ASSIGNMENT.fullmatch(word):
        yield _setting(script, command, match)
    elif word in variables:
        yield variables[word]


def _launcher_at(words: Sequence[str]) -> int | None:
    """Return the index of a launcher among the words of a command, behind ``exec``, ``env`` or ``numactl``, say."""
    if words[0] in _MENTIONS:
        return None
    return next((at for at in range(len(words) - 1) if _launcher(words[at:])), None)


def _launcher(words: Sequence[str]) -> tuple[Literal["torchrun", "accelerate"], int] | None:
    """Return the launcher at the start of ``words``, and how many of them name it."""
    name = words[0].rpartition("/")[2]
    if is_torchrun(words):
        return "torchrun", 1 if name == "torchrun" else 3
    if name == "accelerate-launch":
        return "accelerate", 1
    return ("accelerate", 2) if name == "accelerate" and words[1] == "launch" else None


def _started(script: Script, command: ShellCommand, at: int) -> Script:
    words = list(command.words)
    found = _launcher(words[at:])
    launcher, count = found or ("torchrun", 1)
    parsed = read_options(launcher, words[at + count :])
    options = {name: Setting(name, values[-1], script.path, command.line) for name, values in parsed.options.items()}
    script = _with(script, _unset(script, command, _taken_away(words[:at], [*script.exports])))
    script = _with(script, (_setting(script, command, own) for own in map(_ASSIGNMENT.fullmatch, words[:at]) if own))
    if script.start is not None:
        script = _unread(script, command, f"a second launcher; the one of line {script.start.line} is not read")
    return replace(
        script,
        launcher=launcher,
        program=words[at],
        start=Setting("", " ".join(words[at : at + count]), script.path, command.line),
        options=options,
        words=tuple(parsed.behind),
    )


def _with_lines(script: Script, text: str) -> dict[str, Setting]:
    """Return the options with the lines on which they are, within a command that goes on over several lines."""
    lines = text.splitlines()

    def line_of(name: str, first: int) -> int:
        spelled = re.compile(re.escape(name).replace(r"\-", "[-_]") + r"(?![\w-])")
        here = itertools.takewhile(_goes_on(lines), range(first, len(lines) + 1))
        numbers = [first, *(n + 1 for n in here if n < len(lines))]
        return max((n for n in numbers if spelled.search(lines[n - 1])), default=first)

    return {name: replace(own, line=line_of(name, own.line)) for name, own in script.options.items()}


def _goes_on(lines: Sequence[str]) -> Callable[[int], bool]:
    return lambda number: lines[number - 1].endswith("\\")
