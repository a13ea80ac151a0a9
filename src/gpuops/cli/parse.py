"""``gpuops parse``: what gpuops reads in a text that a tool printed, here and now, without any node."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import IO, Any, NamedTuple

import click

from gpuops.errors import InputError, did_you_mean
from gpuops.probing import Probe, Unknown
from gpuops.shell import Completed


class Kind(NamedTuple):
    """One kind of text: what prints it, and what reads it."""

    printed_by: str
    parse: Callable[[str], object]


def kinds() -> dict[str, Kind]:
    """Every text that gpuops reads, by name: the answer of each probe, and what its tools print in other formats."""
    return dict(sorted((dict(_answers()) | _texts()).items()))


def _answers() -> Iterator[tuple[str, Kind]]:
    from gpuops.probes import every_probe

    for name, probe in every_probe().items():
        yield name, Kind(str(probe.question), partial(_read_answer, probe))


def _read_answer(probe: Probe[Any], text: str) -> object:
    return probe.read(Completed("", probe.question, 0, text))


def _texts() -> dict[str, Kind]:
    from gpuops.probes.expectations import KINDS
    from gpuops.probes.host.lspci import parse_lspci_links
    from gpuops.probes.network.gids import parse_show_gids
    from gpuops.probes.network.ib import parse_ibstat
    from gpuops.probes.network.ib_write_bw import parse_ib_write_bw
    from gpuops.probes.network.ibnetdiscover import parse_ibnetdiscover
    from gpuops.probes.nvidia.nccl_log import parse_nccl_log
    from gpuops.probes.nvidia.nccl_tests import parse_nccl_tests
    from gpuops.probes.nvidia.nvidia_smi.csv import parse_gpu_csv
    from gpuops.probes.nvidia.nvidia_smi.failure import parse_error
    from gpuops.probes.nvidia.nvidia_smi.listing import parse_gpu_list
    from gpuops.probes.nvidia.nvidia_smi.query import parse_query
    from gpuops.probes.nvidia.nvidia_smi.xml import parse_xml

    return {
        "nvsmi_xml": Kind("nvidia-smi -q -x", parse_xml),
        "nvsmi_q": Kind("nvidia-smi -q", parse_query),
        "nvsmi_csv": Kind("nvidia-smi --query-gpu=... --format=csv", parse_gpu_csv),
        "nvsmi_L": Kind("nvidia-smi -L", parse_gpu_list),
        "nvsmi_error": Kind("nvidia-smi, when it fails", lambda text: parse_error(text) or Unknown("no known failure")),
        "lspci": Kind("lspci -vv", parse_lspci_links),
        "ibstat": Kind("ibstat", parse_ibstat),
        "show_gids": Kind("show_gids", parse_show_gids),
        "ibnetdiscover": Kind("ibnetdiscover --ports", parse_ibnetdiscover),
        "nccl_log": Kind("NCCL, under NCCL_DEBUG=INFO", parse_nccl_log),
        "nccl": Kind("all_reduce_perf and its siblings of nccl-tests", parse_nccl_tests),
        "ib_write_bw": Kind("ib_write_bw", parse_ib_write_bw),
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
    from gpuops.report.values import lines, plain

    value = _parser(kind, expect=form == "expect")(file.read().decode(errors="replace"))
    shown = {"unknown": value.why} if isinstance(value, Unknown) else plain(value)
    if form == "text":
        click.echo("\n".join(lines(shown)))
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
