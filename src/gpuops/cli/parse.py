"""``gpuops parse``: what gpuops reads in a text that a tool printed, here and now, without any node."""

from __future__ import annotations

import dataclasses
import importlib
import json
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import IO, Any, NamedTuple

import click

from gpuops.errors import InputError, did_you_mean
from gpuops.probing import Probe, Unknown
from gpuops.shell import Completed

_UNITS = {
    "mib": "MiB",
    "kib": "KiB",
    "gib": "GiB",
    "celsius": "°C",
    "watts": "W",
    "percent": "%",
    "seconds": "s",
    "mbps": "Mbit/s",
    "gbps": "Gbit/s",
    "gb_per_s": "GB/s",
    "gt_per_s": "GT/s",
}
"""The unit that the end of a field's name stands for."""


class Kind(NamedTuple):
    """One kind of text: what prints it, and what reads it."""

    printed_by: str
    parse: Callable[[str], object]


def kinds() -> dict[str, Kind]:
    """Every text that gpuops reads, by name: the answer of each probe, and what its tools print in other formats."""
    return dict(sorted((dict(_answers()) | _texts()).items()))


def _answers() -> Iterator[tuple[str, Kind]]:
    probes = importlib.import_module("gpuops.probes")
    for module in pkgutil.iter_modules(probes.__path__, "gpuops.probes."):
        for probe in vars(importlib.import_module(module.name)).values():
            if isinstance(probe, Probe):
                yield probe.name, Kind(str(probe.question), partial(_read_answer, probe))


def _read_answer(probe: Probe[Any], text: str) -> object:
    return probe.read(Completed("", probe.question, 0, text))


def _texts() -> dict[str, Kind]:
    from gpuops.probes.expectations import KINDS
    from gpuops.probes.ib import parse_ibstat
    from gpuops.probes.lspci import parse_lspci_links
    from gpuops.probes.nvidia_smi.csv import parse_gpu_csv
    from gpuops.probes.nvidia_smi.failure import parse_error
    from gpuops.probes.nvidia_smi.listing import parse_gpu_list
    from gpuops.probes.nvidia_smi.query import parse_query
    from gpuops.probes.nvidia_smi.xml import parse_xml

    return {
        "nvsmi_xml": Kind("nvidia-smi -q -x", parse_xml),
        "nvsmi_q": Kind("nvidia-smi -q", parse_query),
        "nvsmi_csv": Kind("nvidia-smi --query-gpu=... --format=csv", parse_gpu_csv),
        "nvsmi_L": Kind("nvidia-smi -L", parse_gpu_list),
        "nvsmi_error": Kind("nvidia-smi, when it fails", lambda text: parse_error(text) or Unknown("no known failure")),
        "lspci": Kind("lspci -vv", parse_lspci_links),
        "ibstat": Kind("ibstat", parse_ibstat),
        "inventory": Kind("an inventory for gpuops or Ansible, YAML or INI", KINDS["inventory"]),
    }


class _ParseCommand(click.Command):
    """Lists the kinds below its help, which only then needs every parser."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The kinds, and what prints each."""
        super().format_epilog(ctx, formatter)
        with formatter.section("Kinds"):
            formatter.write_dl([(name, _shorten(kind.printed_by)) for name, kind in kinds().items()])


def _shorten(command: str) -> str:
    line = " ".join(command.split())
    return line if len(line) <= 55 else f"{line[:52]}..."


@click.command("parse", cls=_ParseCommand)
@click.argument("kind")
@click.argument("file", type=click.File("rb"))
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "expect"]),
    default="text",
    show_default=True,
    help="text has units; expect is the JSON of the capture collection.",
)
@click.pass_context
def command(ctx: click.Context, kind: str, file: IO[bytes], form: str) -> None:
    """Show what gpuops reads in FILE (- for standard input), the output of a tool of kind KIND.

    Ends with 3 where the text cannot be read, and says why.
    """
    value = _parser(kind, expect=form == "expect")(file.read().decode(errors="replace"))
    shown = {"unknown": value.why} if isinstance(value, Unknown) else _plain(value)
    if form == "text":
        click.echo("\n".join(_lines(shown)))
    else:
        click.echo(json.dumps(shown, indent=1))
    ctx.exit(3 if isinstance(value, Unknown) else 0)


def _parser(name: str, *, expect: bool) -> Callable[[str], object]:
    from gpuops.probes.expectations import KINDS

    known = KINDS if expect else {kind: found.parse for kind, found in kinds().items()}
    name = name.replace("-", "_")
    if name not in known:
        hint = did_you_mean(name, known) or f"; known: {', '.join(known)}"
        raise InputError(f'no kind called "{name}"{" with an expectation" if expect else ""}{hint}')
    return known[name]


def _plain(value: object) -> Any:
    """The value as JSON has it; a pair that is a key becomes two words."""
    if dataclasses.is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {" ".join(key) if isinstance(key, tuple) else str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, (tuple, list, set, frozenset)):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _lines(value: Any) -> Iterator[str]:
    """``name: value unit`` in lines, nested by two spaces; each item of a list begins with a dash."""
    if not _nests(value):
        yield _words(value)
    elif isinstance(value, dict):
        for name, entry in value.items():
            yield from _entry(name, entry)
    else:
        for item in value:
            yield from (f"{'  ' if n else '- '}{line}" for n, line in enumerate(_lines(item)))


def _nests(value: Any) -> bool:
    if isinstance(value, list):
        return any(isinstance(item, (dict, list)) for item in value)
    return isinstance(value, dict) and bool(value)


def _entry(name: str, value: Any) -> Iterator[str]:
    if _nests(value):
        yield from (f"{_printable(name)}:", *(f"  {line}" for line in _lines(value)))
        return
    suffix = max((suffix for suffix in _UNITS if f"_{name}".endswith(f"_{suffix}")), key=len, default="")
    unit = f" {_UNITS[suffix]}" if suffix and isinstance(value, (int, float)) else ""
    yield f"{_printable(name.removesuffix(f'_{suffix}') if suffix else name)}: {_words(value)}{unit}".rstrip()


def _words(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return ", ".join(map(_words, value)) or "none"
    if value is None or isinstance(value, bool):
        return {None: "not told", True: "yes", False: "no"}[value]
    return _printable(str(value))


def _printable(text: str) -> str:
    """The text without control characters: it comes from a node, and goes to a terminal."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)
