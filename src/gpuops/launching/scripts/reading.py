"""The script of a node as a shell reads it: what it exports, and the options of the launcher that it starts; pure.

Commands that run only under a condition, other scripts and variables are not followed: what they decide is ``unread``.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from gpuops.collective.preflight.launch_command import is_torchrun, read_options
from gpuops.document import parse
from gpuops.errors import DocumentError
from gpuops.render.shell_lines import shell_lines, shell_words

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL | re.ASCII)
_OPENS = frozenset("if case for while until select {".split())
_CLOSES = frozenset("fi esac done }".split())
_CONNECTS = frozenset("then else elif do ! time".split())
_TESTS = frozenset("[ [[ test".split())
_EXPORTS = frozenset("export declare typeset".split())
_ASSIGNS = frozenset("declare typeset readonly".split())
"""Commands that set a variable and leave it exported if it was."""
_OTHER_SCRIPTS = frozenset("source . eval".split())
_MENTIONS = frozenset("echo printf type which hash command ls pip pip3 [ [[ test".split())
"""Commands after which a launcher's name is only a word."""
_OPERATOR = re.compile(r"[();<>|&]+")
_EXPANDED = re.compile(r"[$`]")
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
    that ends the script. ``options`` are by their names with dashes, ``words`` are behind them: the job's program with
    its arguments. ``unread`` are the sentences about what was not followed, each with its line.
    """

    path: str
    history: Mapping[str, tuple[Setting, ...]] = field(default_factory=dict, hash=False)
    launcher: Literal["torchrun", "accelerate"] = "torchrun"
    program: str = ""
    start: Setting | None = None
    end: Setting | None = None
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


@dataclass(frozen=True)
class _Command:
    """One simple command; it may not run if ``depends`` on another command, or on a condition.

    One that does not, but is in a subshell or behind ``&&``, is not one of the script ``itself``.
    """

    words: tuple[str, ...]
    line: int
    depends: bool
    itself: bool


def read_script(path: str, text: str) -> Script:
    """Read the script ``text`` of the file ``path``."""
    script, variables = Script(path), dict[str, Setting]()
    try:
        commands = list(_commands(text))
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


def _commands(text: str) -> Iterator[_Command]:
    """Yield the simple commands of a script; bodies of here-documents are left out."""
    depth, subshells = 0, 0
    for line in shell_lines(text):
        words = shell_words(_without_substitutions(line.text))
        depends, tested = False, False
        for operators, command in _simple(words):
            subshells = max(0, subshells + operators.count("(") - operators.count(")"))
            operator = operators.strip("();")
            if not command:
                continue
            plain = tuple(itertools.dropwhile(_CONNECTS.__contains__, command))
            depends = operator in ("&&", "||") and (depends or tested or operator == "||")
            tested = command[0] in _TESTS
            depth += plain[:1] != () and plain[0] in _OPENS
            if plain:
                yield _Command(plain, line.number, depth > 0 or depends, not subshells and operator not in ("&&", "||"))
            depth -= command[0] in _CLOSES and depth > 0


def _without_substitutions(line: str) -> str:
    """Return a line with ``$_`` in place of what another command prints; raise `ValueError` if that spans lines."""
    line = re.sub(r"`[^`]*`", "$_", line)
    while (start := line.find("$(")) >= 0:
        depth = 0
        for at in range(start + 1, len(line)):
            depth += (line[at] == "(") - (line[at] == ")")
            if not depth:
                break
        else:
            raise ValueError("no end of $(")
        line = f"{line[:start]}$_{line[at + 1 :]}"
    return line


def _simple(words: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each command of a line, without its redirections, and the operators before it; last those at the end."""
    operators, command, redirects = "", list[str](), False
    for word in (*words, ";"):
        if not _OPERATOR.fullmatch(word):
            if not redirects:
                command.append(word)
        elif "<" in word or ">" in word:
            redirects = True  # a file, or the number of a descriptor
        else:
            if command:
                yield operators, tuple(command)
            operators, command, redirects = word if command else operators + word, [], False
    yield operators, ()


def _after(script: Script, command: _Command, variables: dict[str, Setting]) -> Script:
    """Return what is known of the script after one more command; ``variables`` are those that it has assigned."""
    at = _launcher_at(command.words)
    if command.words[0] in _OTHER_SCRIPTS:
        return _unread(script, command, f"{' '.join(command.words)} is not followed")
    if command.depends:
        sets = command.words[0] in {*_EXPORTS, "unset"}
        what = f"{' '.join(command.words[:2])} … depends on a condition"
        return _unread(script, command, what) if sets or at is not None else script
    if at is not None:
        return _started(script, command, at)
    if _ends(command) and not script.start and not script.end:
        return replace(script, end=Setting("", " ".join(command.words), script.path, command.line))
    return _set(script, command, variables)


def _ends(command: _Command) -> bool:
    """Return True for ``exit``, and for ``exec`` with a program in place of the script."""
    first, *rest = command.words
    return command.itself and (first == "exit" or (first == "exec" and bool(rest)))


def _set(script: Script, command: _Command, variables: dict[str, Setting]) -> Script:
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


def _unset(script: Script, command: _Command, names: Iterable[str]) -> Iterator[Setting]:
    """Yield the end of each variable of ``names`` that the script has exported."""
    return (Setting(name, "", script.path, command.line, is_there=False) for name in names if name in script.exports)


def _taken_away(words: Sequence[str], exports: Iterable[str]) -> Iterator[str]:
    """Yield the variables that ``env`` before a command takes from it."""
    behind = [*itertools.dropwhile(lambda word: word.rpartition("/")[2] != "env", words)]
    if {"-", "-i", "--ignore-environment"} & {*behind}:
        yield from exports
    for before, word in itertools.pairwise(behind):
        yield word if before in ("-u", "--unset") else re.sub("^(-u|--unset=)", "", word)


def _setting(script: Script, command: _Command, match: re.Match[str]) -> Setting:
    return Setting(match[1], match[2], script.path, command.line)


def _unread(script: Script, command: _Command, why: str) -> Script:
    return replace(script, unread=(*script.unread, f"{script.path}:{command.line}: {why}"))


def _exported(script: Script, command: _Command, word: str, variables: Mapping[str, Setting]) -> Iterator[Setting]:
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


def _started(script: Script, command: _Command, at: int) -> Script:
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
