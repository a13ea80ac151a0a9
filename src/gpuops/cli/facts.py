"""``gpuops facts``: everything that the probes know of each node."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuops.cli._options import Target, target_options
from gpuops.cli._outcomes import exit_code, reasons

if TYPE_CHECKING:
    from gpuops.facts import Facts
    from gpuops.probing import Probe


@click.command()
@target_options
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of a readable tree.")
@click.option("--save", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Keep them, for --from.")
@click.option("--probe", "names", multiple=True, metavar="NAME", help="Only this probe; may be given again.")
def command(target: Target, *, as_json: bool, save: Path | None, names: tuple[str, ...]) -> int:
    """Collect facts of every node in one round trip each.

    What is saved are the nodes' own answers, so that `gpuops validate --from DIR` can judge them again later, with
    newer parsers and checks and without any network.
    """
    from gpuops import facts

    probes = _chosen(names)
    outcomes = target.each(
        lambda transport, host: facts.gather(host.name, transport.batch, probes, keep_answers=save is not None),
        "gathering facts",
    )
    found = [o.value for o in outcomes if o.value is not None]
    if save is not None:
        write_all(found, save)
        click.echo(f"{len(found)} nodes saved in {save}", err=True)
    else:
        click.echo(_json(found) if as_json else "\n".join(_tree(found)))
    from gpuops.cli._options import tell

    for reason, nodes in reasons(outcomes).items():
        tell(f"{', '.join(nodes)}: {reason}")
    return exit_code(outcomes)


def _chosen(names: tuple[str, ...]) -> list[Probe[Any]]:
    from gpuops.errors import ContentError, did_you_mean
    from gpuops.probes import every_probe

    known = every_probe()
    for name in names:
        if name not in known:
            raise ContentError(f'no probe called "{name}"{did_you_mean(name, known) or "; known: " + ", ".join(known)}')
    return [known[name] for name in names] or list(known.values())


def write_all(found: list[Facts], folder: Path) -> None:
    """Save each node's answers as ``folder/NODE.json``."""
    from gpuops.errors import OutputError
    from gpuops.facts import to_document
    from gpuops.report.output import write

    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder}: cannot be made: {error.strerror}") from error
    for facts in found:
        write(to_document(facts), folder / f"{facts.node}.json")


def _json(found: list[Facts]) -> str:
    import json

    return json.dumps({f.node: {name: _told(value) for name, value in f.values.items()} for f in found}, indent=1)


def _tree(found: list[Facts]) -> list[str]:
    from gpuops.cli._values import lines

    return [line for f in found for line in lines({f.node: {name: _told(v) for name, v in f.values.items()}})]


def _told(value: object) -> Any:
    from gpuops.cli._values import plain
    from gpuops.probing import Unknown

    return {"unknown": value.why} if isinstance(value, Unknown) else plain(value)
