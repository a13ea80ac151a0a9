"""``gpuops facts``: everything that the probes know of each node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

    def deliver(found: list[Facts]) -> None:
        if save is None:
            click.echo(_json(found) if as_json else "\n".join(_tree(found)))
            return
        write_all(found, save)
        click.echo(f"{len(found)} nodes saved in {save}", err=True)

    return _collect(target, _chosen(names), deliver, keep_answers=save is not None)


def show(target: Target, probes: Sequence[Probe[Any]], picture: Callable[[Facts], Any]) -> int:
    """Ask the chosen hosts, and print what ``picture`` (plain maps and lists) makes of the facts; the exit code."""
    from gpuops.report.values import lines

    return _collect(
        target, probes, lambda found: click.echo("\n".join(lines({facts.node: picture(facts) for facts in found})))
    )


def _collect(
    target: Target,
    probes: Sequence[Probe[Any]],
    deliver: Callable[[list[Facts]], None],
    *,
    keep_answers: bool = False,
) -> int:
    from gpuops import facts
    from gpuops.cli._options import tell

    outcomes = target.each(
        lambda transport, host: facts.gather(host.name, transport.batch, probes, keep_answers=keep_answers),
        "gathering facts",
    )
    deliver([o.value for o in outcomes if o.value is not None])
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

    return json.dumps({f.node: whole(f) for f in found}, indent=1)


def _tree(found: list[Facts]) -> list[str]:
    from gpuops.report.values import lines

    return [line for f in found for line in lines({f.node: whole(f)})]


def whole(facts: Facts) -> dict[str, Any]:
    """All of a node's facts."""
    return {name: told(value) for name, value in facts.values.items()}


def told(value: object) -> Any:
    """A value, or why it is unknown."""
    from gpuops.probing import Unknown
    from gpuops.report.values import plain

    return {"unknown": value.why} if isinstance(value, Unknown) else plain(value)
