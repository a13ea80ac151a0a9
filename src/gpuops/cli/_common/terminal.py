"""What a user meets: commands by name, results on stdout, events on stderr; a terminal also shows a status line."""

from __future__ import annotations

import functools
import importlib.util
import pkgutil
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuops.cli._common.asking import refuse_empty, unexpected
from gpuops.cli._common.live import LiveBlock
from gpuops.errors import format_count
from gpuops.reasons import EXIT_MEANINGS

if TYPE_CHECKING:
    from gpuops.errors import LockedError
    from gpuops.events import (
        Activity,
        Event,
        GateDone,
        GateStarted,
        HostActivity,
        JobLine,
        LeftOut,
        Note,
        Progress,
        RoundStarted,
        StepDone,
    )
    from gpuops.reasons import Excluded
    from gpuops.report.page import Page

_MOST_LOCKED = 3
_NAME = "gpuops: "
_SUMMARY = re.compile(r'^def command\(.*?^    """(.+?)\.?(?:""")?$', re.DOTALL | re.MULTILINE)
_SUFFIX = {"table": ".txt", "json": ".json", "svg": ".svg", "junit": ".xml", "yaml": ".yml", "csv": ".csv"}


def exits(**meanings: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add a command's own words for its exit codes: ``failed`` (1), ``incomplete`` (3) and ``locked`` (4).

    An empty text means the words of `reasons.EXIT_MEANINGS`. A code that is not named does not occur.
    """
    numbers = {"ok": 0, "failed": 1, "invalid": 2, "incomplete": 3, "locked": 4}
    own = {numbers[name]: text or EXIT_MEANINGS[numbers[name]] for name, text in meanings.items()}

    def decorate(verb: Callable[..., Any]) -> Callable[..., Any]:
        verb.__dict__["exit_codes"] = own
        return verb

    return decorate


def exit_codes_of(command: click.Command) -> dict[int, str]:
    """Return the exit codes that ``command`` can end with, with their meanings."""
    common = {code: EXIT_MEANINGS[code] for code in (0, 2, 70, 130)}
    return dict(sorted({**common, **getattr(command.callback, "exit_codes", {})}.items()))


class Command(click.Command):
    """A command whose help ends with its exit codes."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the epilogue and the table of exit codes."""
        super().format_epilog(ctx, formatter)
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in exit_codes_of(self).items()])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does, but refuse empty values, and propose one pattern if there are too many words."""
        if not ctx.resilient_parsing:
            refuse_empty(self, ctx, args)
        is_strict, ctx.allow_extra_args = not (ctx.allow_extra_args or ctx.resilient_parsing), True
        extra = super().parse_args(ctx, args)
        return ctx.fail(unexpected(ctx, extra)) if extra and is_strict else extra


class WithWords(Command):
    """A command that takes one PATTERN before ``--`` and ``words`` after it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Split the command line at the first ``--``; without one, `without_dashes` decides."""
        at = args.index("--") if "--" in args else len(args)
        rest = super().parse_args(ctx, args[:at])
        before = [word for word in (ctx.params.get("pattern"), *(ctx.params.get("words") or ())) if word]
        if at == len(args):
            ctx.params["pattern"], ctx.params["words"] = self.without_dashes(tuple(before))
        elif len(before) > 1:
            ctx.fail(f'unexpected argument "{before[1]}" before --; only one PATTERN is allowed there')
        else:
            ctx.params["words"] = tuple(args[at + 1 :])
        return rest

    def without_dashes(self, words: tuple[str, ...]) -> tuple[str | None, tuple[str, ...]]:
        """Return the pattern and the words of a command line without ``--``: all are words."""
        return None, words


class Commands(Command, click.Group):
    """Finds commands by listing the folder of ``package``: each module or package holds one as ``command``."""

    command_class = Command

    def __init__(self, *args: Any, package: str = "", **options: Any) -> None:
        super().__init__(*args, **options)
        self._package = package

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the name of every command, sorted."""
        if not self._package:
            return super().list_commands(ctx)
        folder = importlib.import_module(self._package).__path__
        return sorted(m.name.replace("_", "-") for m in pkgutil.iter_modules(folder) if m.name[0] != "_")

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command ``cmd_name``, or None."""
        if not self._package or cmd_name not in self.list_commands(ctx):
            return super().get_command(ctx, cmd_name)
        module = importlib.import_module(f"{self._package}.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve as click does, but name the nearest command if there is none of that name."""
        from gpuops.errors import did_you_mean

        names = self.list_commands(ctx)
        if args and not args[0].startswith("-") and args[0] not in names:
            hint = did_you_mean(args[0], names) or f"; to list them: {ctx.command_path} --help"
            ctx.fail(f'no command named "{args[0]}"{hint}')
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by section, each with its whole summary."""
        width = max(map(len, self.list_commands(ctx)), default=0)
        for title, names in self.sections(ctx):
            with formatter.section(title):
                formatter.write_dl([(f"{name:<{width}}", self._summary(ctx, name)) for name in names])

    def sections(self, ctx: click.Context) -> Iterator[tuple[str, Sequence[str]]]:
        """Yield the title of each section, and the names of its commands."""
        yield "Commands", self.list_commands(ctx)

    def _summary(self, ctx: click.Context, name: str) -> str:
        spec = importlib.util.find_spec(f"{self._package}.{name.replace('-', '_')}") if self._package else None
        if spec and spec.origin:  # read, because importing every command takes most of the time of --help
            return str(_SUMMARY.findall(Path(spec.origin).read_text("utf-8"))[0])
        command = self.get_command(ctx, name)
        return command.get_short_help_str(limit=200).rstrip(".") if command else ""


class PatternOrCommand(Commands):
    """Commands, in place of which a PATTERN may stand; without one, the group itself runs."""

    def __init__(self, *args: Any, **options: Any) -> None:
        own = {"invoke_without_command": True, "subcommand_metavar": "[PATTERN | COMMAND [ARGS]...]"}
        super().__init__(*args, **{**options, **own})

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the first word as the pattern, unless it is a command or looks like one."""
        from gpuops.errors import did_you_mean

        _, words, _ = self.make_parser(ctx).parse_args(list(args))
        names = self.list_commands(ctx)
        is_pattern = bool(words) and words[0] not in names and not did_you_mean(words[0], names)
        at = len(args) - len(words)
        if not is_pattern:
            return super().parse_args(ctx, args)
        if words[1:] and not words[1].startswith("-"):
            ctx.fail(f'unexpected argument "{words[1]}" after PATTERN')
        rest = super().parse_args(ctx, [*args[:at], *args[at + 1 :]])
        ctx.params["pattern"] = words[0]
        return rest


@dataclass(frozen=True)
class Output:
    """Where a result goes: ``form`` is the format on stdout, ``files`` are the files to write, with their formats."""

    form: str
    files: Mapping[Path, str]

    def with_file(self, path: Path, form: str, *, quiet: bool = False) -> Output:
        """Return this output with one more file; if ``quiet``, the table is not printed."""
        return Output("" if quiet and self.form == "table" else self.form, {**self.files, path: form})

    def publish(self, **renderers: Callable[[Page], str | Iterable[str]]) -> None:
        """Write the result, rendered by the renderer of each format: to the files, and to stdout.

        As with ``validate``: a format other than table goes to the files alone, if there are any.
        """
        from gpuops.report.output import write
        from gpuops.report.page import Page

        texts = {path: _text(renderers[form](Page())) for path, form in self.files.items()}
        for path, text in texts.items():
            write(text, path)
        if self.form == "table" or (self.form and not self.files):
            click.echo(_text(renderers[self.form](page())), nl=False)


def _text(rendered: str | Iterable[str]) -> str:
    if isinstance(rendered, str):
        return rendered if rendered.endswith("\n") else f"{rendered}\n"
    return "".join(f"{line}\n" for line in rendered)


def output_options(*formats: str) -> list[Callable[..., Any]]:
    """Return the options ``--format``, ``--json`` and ``-o``."""
    suffixes = ", ".join(_SUFFIX[form] for form in formats)
    about = f"Write the result to FILE, in --format or the format of its suffix ({suffixes}); repeatable."
    path, names = click.Path(path_type=Path), "|".join(formats)
    return [
        click.option("--format", "form", metavar=names, default="table", show_default=True, help="Output format."),
        click.option("--json", "as_json", is_flag=True, help="Short for --format json."),
        click.option("-o", "--output", "paths", type=path, multiple=True, metavar="FILE", help=about),
    ]


def shows(*formats: str, creates: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add `output_options`; the verb gets its checked ``output``. ``creates`` creates directories of files."""
    suffixes = {name: _SUFFIX[name] for name in formats}

    def decorate(verb: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(verb)
        def with_output(*, form: str, as_json: bool, paths: tuple[Path, ...], **options: Any) -> Any:
            from gpuops.report.output import create_directory, formats_of

            form = "json" if as_json else form
            for path in paths if creates else ():
                create_directory(path)
            return verb(output=Output(form, formats_of(form, paths, suffixes)), **options)

        return functools.reduce(lambda verb, option: option(verb), reversed(output_options(*formats)), with_output)

    return decorate


class Terminal:
    """Listener that draws events; ``name_width`` is the width of a node's name in the list of gates."""

    def __init__(self) -> None:
        self.name_width = 0
        self.verbosity = 0
        self.lists_gates = True
        self.lists_job_lines = True
        self._live = LiveBlock()
        self._rounds_began: float | None = None

    def __call__(self, event: Event) -> None:
        """Draw ``event`` if there is a method for it."""
        draw = getattr(self, f"_on_{type(event).__name__}", None)  # by name: --help must not load every event
        if draw is not None:
            draw(event)

    def _on_Progress(self, event: Progress) -> None:  # noqa: N802 - the event's name
        if not self._live.has_rows:  # with many nodes at work, each does something else
            self._live.show(f"{event.what}  {event.done}/{event.total}" if event.done < event.total else "")

    def _on_Activity(self, event: Activity) -> None:  # noqa: N802
        self._live.show(event.text)

    def _on_StepDone(self, event: StepDone) -> None:  # noqa: N802
        if not self._live.has_rows:
            self._live.show(f"{event.host}: {event.status.replace('_', ' ')}   {event.name}")

    def _on_GateStarted(self, event: GateStarted) -> None:  # noqa: N802
        self._live.note(event)

    def _on_HostActivity(self, event: HostActivity) -> None:  # noqa: N802
        if sentence := self._live.note(event):
            tell(sentence)

    def _on_RoundStarted(self, event: RoundStarted) -> None:  # noqa: N802
        finished = event.number - 1
        if self._rounds_began is None or not finished:
            self._rounds_began = time.monotonic()
        seconds = (event.at_most - finished) * (time.monotonic() - self._rounds_began) / finished if finished else 0.0
        most = f"   at most {int(seconds) // 60}:{int(seconds) % 60:02} left" if seconds else ""
        groups = format_count(event.groups, "group")
        self._live.show(f"round {event.number}: {event.why}", f"   {groups}{most}")

    def _on_GateDone(self, event: GateDone) -> None:  # noqa: N802
        from gpuops.report.page import clean

        self._live.note(event)
        label = f"{clean(event.host):<{self.name_width}}   {event.gate}"
        with self._live.out_of_the_way():
            if self.lists_gates:
                print_lines(page().labelled(label, clean(event.text), self.name_width + 16))

    def _on_JobLine(self, event: JobLine) -> None:  # noqa: N802
        from gpuops.report.jobs import job_line

        if self.lists_job_lines:
            with self._live.out_of_the_way():
                print_lines([job_line(event.ranks, event.nodes, event.text)])

    def _on_Note(self, event: Note) -> None:  # noqa: N802
        tell(event.text)

    def _on_LeftOut(self, event: LeftOut) -> None:  # noqa: N802
        from gpuops.report.page import fold

        tell(f"excluded: {fold(event.hosts)}: {event.why}")

    def clear(self) -> None:
        """Remove the status line and the table of nodes."""
        self._live.close()

    def note(self, sentence: str) -> None:
        """Print a sentence above the status line."""
        with self._live.out_of_the_way():
            for line in sentence_lines(sentence):
                click.echo(line, err=True)


@functools.cache
def terminal() -> Terminal:
    """Return the terminal of this program."""
    return Terminal()


def tell(sentence: str) -> None:
    """Print a sentence on stderr, beside the result."""
    terminal().note(sentence)


def sentence_lines(sentence: str) -> Iterator[str]:
    """Yield a sentence as stderr shows it: folded on a terminal, one line in a file."""
    from gpuops.report.page import Page, clean

    if sys.stderr.isatty():
        yield from Page.of(sys.stderr).labelled(_NAME, clean(sentence), len(_NAME))
    else:
        yield f"{_NAME}{clean(sentence)}"


def tell_excluded(excluded: Iterable[Excluded]) -> None:
    """Print which nodes gave no answer, those with the same reason together."""
    from gpuops.report.answers import by_reason

    for why, hosts in by_reason(excluded).items():
        tell(f"{', '.join(hosts)}: {why}")


def page() -> Page:
    """Return the page that stdout is."""
    from gpuops.report.page import Page

    return Page.of(sys.stdout)


def terminal_page() -> Page | None:
    """Return the page that stdout is, if it is a terminal."""
    return page() if sys.stdout.isatty() else None


def print_lines(lines: Iterable[str]) -> None:
    """Write lines to stdout as they come."""
    for line in lines:
        click.echo(line)


def log_to_stderr(verbose: int) -> None:
    """Log the outcome of each node to stderr, and from 2 on each query; the counts of all calls add up."""
    import logging

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            tell(record.getMessage())

    engine = logging.getLogger("gpuops")
    if verbose and not terminal().verbosity:
        engine.addHandler(Handler())
    terminal().verbosity += verbose
    if verbose:
        engine.setLevel(logging.INFO if terminal().verbosity == 1 else logging.DEBUG)


def tell_locked(locked: Sequence[LockedError]) -> None:
    """Print who holds the first nodes, and how many more there are."""
    for error in locked[:_MOST_LOCKED]:
        tell(str(error))
    if len(locked) > _MOST_LOCKED:
        tell(f"and {len(locked) - _MOST_LOCKED} more nodes are locked")
