"""Terminal: what a person meets: verbs by name, results on stdout, the events of an operation on stderr.

Events are a status line on a terminal, written over and gone in the end, and sentences anywhere.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import sys
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from gpuops.errors import LockedError
    from gpuops.events import Activity, Event, GateDone, LeftOut, Note, Progress, RoundStarted, StepDone
    from gpuops.reasons import Excluded
    from gpuops.report.page import Page


_MOST_LOCKED = 3


class Verbs(click.Group):
    """Finds verbs by listing the folder of ``package``: each module or package holds a click command as ``command``."""

    def __init__(self, *args: Any, package: str, **options: Any) -> None:
        super().__init__(*args, **options)
        self._package = package

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Every verb by name."""
        folder = importlib.import_module(self._package).__path__
        return sorted(m.name.replace("_", "-") for m in pkgutil.iter_modules(folder) if m.name[0] != "_")

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb ``cmd_name``, or None."""
        if cmd_name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"{self._package}.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, but with the nearest verb named when there is no such one."""
        from gpuops.errors import did_you_mean

        verbs = self.list_commands(ctx)
        if args and not args[0].startswith("-") and args[0] not in verbs:
            ctx.fail(f'no verb called "{args[0]}"{did_you_mean(args[0], verbs) or "; gpuops --help lists them"}')
        return super().resolve_command(ctx, args)


class Terminal:
    """A listener that draws events; ``name_width`` is how wide the name of a node is where gates are listed."""

    def __init__(self) -> None:
        self.name_width = 0
        self._is_terminal = sys.stderr.isatty()
        self._rounds_began: float | None = None

    def __call__(self, event: Event) -> None:
        """Draw ``event``; what nobody waits for is not drawn."""
        draw = getattr(self, f"_on_{type(event).__name__}", None)  # by name: --help must not load every event
        if draw is not None:
            draw(event)

    def _on_Progress(self, event: Progress) -> None:  # noqa: N802 - the event's name
        if event.done < event.total:
            self.show(f"{event.what}  {event.done}/{event.total}")
        else:
            self.clear()

    def _on_Activity(self, event: Activity) -> None:  # noqa: N802
        self.show(event.text)

    def _on_StepDone(self, event: StepDone) -> None:  # noqa: N802
        self.show(f"{event.host}: {event.status.replace('_', ' ')}   {event.name}")

    def _on_RoundStarted(self, event: RoundStarted) -> None:  # noqa: N802
        finished = event.number - 1
        if self._rounds_began is None or not finished:
            self._rounds_began = time.monotonic()
        seconds = (event.at_most - finished) * (time.monotonic() - self._rounds_began) / finished if finished else 0.0
        most = f"   at most {int(seconds) // 60}:{int(seconds) % 60:02} left" if seconds else ""
        groups = f"{event.groups} group{'s' if event.groups != 1 else ''}"
        self.show(f"round {event.number}: {event.why}   {groups}{most}")

    def _on_GateDone(self, event: GateDone) -> None:  # noqa: N802
        from gpuops.report.page import clean

        self.clear()
        label = f"{clean(event.host):<{self.name_width}}   {event.gate}"
        print_lines(page().labelled(label, clean(event.text), self.name_width + 16))

    def _on_Note(self, event: Note) -> None:  # noqa: N802
        tell(event.text)

    def _on_LeftOut(self, event: LeftOut) -> None:  # noqa: N802
        from gpuops.report.page import fold

        tell(f"left out: {fold(event.hosts)}: {event.why}")

    def show(self, text: str) -> None:
        """Write ``text`` in place of what stood on the status line."""
        from gpuops.report.page import clean

        if self._is_terminal:
            click.echo(f"\r\x1b[K  {clean(text)[:76]}", nl=False, err=True)

    def clear(self) -> None:
        """Remove the status line."""
        if self._is_terminal:
            click.echo("\r\x1b[K", nl=False, err=True)


@functools.cache
def terminal() -> Terminal:
    """The terminal of this program."""
    return Terminal()


def tell(sentence: str) -> None:
    """Say something beside the result."""
    from gpuops.report.page import clean

    terminal().clear()
    click.echo(f"gpuops: {clean(sentence)}", err=True)


def tell_excluded(excluded: Iterable[Excluded]) -> None:
    """Say who gave no answer, those for the same reason together."""
    from gpuops.report.answers import by_reason

    for why, hosts in by_reason(excluded).items():
        tell(f"{', '.join(hosts)}: {why}")


def page() -> Page:
    """The page that stdout is."""
    from gpuops.report.page import Page

    return Page.of(sys.stdout)


def print_lines(lines: Iterable[str]) -> None:
    """Write lines to stdout as they come."""
    for line in lines:
        click.echo(line)


def confirm(question: str) -> bool:
    """Ask a person; a program that reads stdin from elsewhere is never asked."""
    return sys.stdin.isatty() and click.confirm(question)


def log_to_stderr(verbose: int) -> None:
    """Show what the engine logs: each node's outcome, and from 2 on every question that is sent."""
    import logging

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            tell(record.getMessage())

    engine = logging.getLogger("gpuops")
    engine.addHandler(Handler())
    engine.setLevel(logging.INFO if verbose == 1 else logging.DEBUG)


def tell_locked(locked: Sequence[LockedError]) -> None:
    """Who holds the first nodes, and how many more there are."""
    for error in locked[:_MOST_LOCKED]:
        tell(str(error))
    if len(locked) > _MOST_LOCKED:
        tell(f"and {len(locked) - _MOST_LOCKED} more nodes are locked")
