"""The options of a job in the comments of its script (``#SBATCH``, ``#PBS``, ``#flux:``), in one spelling; pure."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from gpuops.document import Where
from gpuops.errors import GpuopsError
from gpuops.inventory.names import node_set, unfold
from gpuops.inventory.patterns import split
from gpuops.render.options import FLUX, KEYED, PBS, SBATCH, Style, is_option, joined

_DIRECTIVE = re.compile(r"(?P<sentinel>#(?:SBATCH|PBS|BSUB)(?=[ \t\r])|\W*(?:flux|FLUX):)(?P<options>.*)")
"""Slurm and PBS look for their word at the start of a line; for Flux see its RFC 36."""
_FLUX_WORD = re.compile(r"\W*(?:flux|FLUX):")
_STYLE_BY_SYSTEM = {"#SBATCH": SBATCH, "#PBS": PBS, "#flux:": FLUX}
_HOSTS = ("--nodelist", "--exclude")


@dataclass(frozen=True)
class Directive:
    """One option of a job, on line ``number`` of its script; what has no value has an empty one.

    ``key`` tells an option that may be repeated from the others of its name; empty for those that may not.
    """

    number: int
    system: str
    name: str
    value: str = ""
    key: str = ""

    @property
    def is_decisive(self) -> bool:
        """True if it decides where ranks run, how many there are, or whether they start at all."""
        decisive = _style(self.system).decisive
        return self.name in decisive or f"{self.name} {self.key}" in decisive

    def __str__(self) -> str:
        """Return it as it is written in a script."""
        return f"{self.system} {joined((self.name, self.value) if self.value else (self.name,))}"


def read_directives(text: str) -> Iterator[Directive]:
    """Yield the options that the scheduler reads: those before the first command of the script.

    Flux takes only lines with the sentinel of the first one.
    """
    header = itertools.takewhile(lambda line: not line.strip() or line.lstrip().startswith("#"), text.split("\n"))
    sentinel = ""
    for number, line in enumerate(header, 1):
        match = _DIRECTIVE.match(line)
        if match is None:
            continue
        system = "#flux:" if _FLUX_WORD.fullmatch(match["sentinel"]) else match["sentinel"]
        if system == "#flux:":
            sentinel = sentinel or match["sentinel"]
        if system != "#flux:" or match["sentinel"] == sentinel:
            yield from _options(number, system, match["options"])


def misplaced_directives(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines for which flux refuses a script, each with the reason.

    Flux takes a comment that begins with its word for a directive. All have the sentinel of the first one, and none
    is behind the first line that does not begin as that sentinel does.
    """
    sentinel, last = "", 0
    for number, line in enumerate(text.split("\n"), 1):
        match = _FLUX_WORD.match(line)
        if match is None:
            begins_alike = line.startswith(re.sub(r"\w+:\Z", "", sentinel).rstrip())
            last = last or (number if sentinel and line.strip() and not begins_alike else 0)
        elif last:
            yield number, f"flux refuses the job: orphan directive, since line {last} ends them"
        elif sentinel and match[0] != sentinel:
            yield number, f"flux refuses the job: sentinel changed from {sentinel} to {match[0]}"
        else:
            sentinel = match[0]


def _options(number: int, system: str, text: str) -> Iterator[Directive]:
    """Yield the options of one line; slurm and flux let a comment follow them."""
    style = _style(system)
    try:
        words = shlex.split(text, comments=system != "#PBS")
    except ValueError:
        words = [text.strip()]
    while words:
        has_value = len(words) > 1 and not is_option(words[1])
        group, taken = style.first(words[: 1 + has_value])
        words = words[taken:]
        yield from _resources(number, system, *group)


def _resources(number: int, system: str, name: str, value: str = "") -> Iterator[Directive]:
    """Yield the option; each resource of PBS and each setting of Flux is one of its own."""
    if system == "#PBS" and name == "-l":
        for resource in value.split(","):
            yield Directive(number, system, name, resource, resource.partition("=")[0])
    else:
        key = value.partition("=")[0] if name in KEYED else ""
        yield Directive(number, system, name, _value(name, value), key)


def _style(system: str) -> Style:
    return _STYLE_BY_SYSTEM.get(system, Style({}))


def _value(name: str, value: str) -> str:
    """Return the value of an option; nodes are a set."""
    prefix = "host:" if name == "--requires" and value.startswith("host:") else ""
    if name not in _HOSTS and not prefix:
        return value
    try:
        names = [each for part in split(value.removeprefix(prefix), ",") for each in unfold(part, Where(name))]
    except GpuopsError:
        return value
    return prefix + node_set(names)
