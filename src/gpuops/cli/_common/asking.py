"""What people type: values of options, as numbers, words and variables, and answers to questions."""

from __future__ import annotations

import functools
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from gpuops.placement import Placement

_SCOPES = {"node": "node", "rail": "rail", "pairs": "pair", "pair": "pair", "group": "group"}
_FRESH = "gpuops.fresh"
_LARGEST = 1e16  # parameters or tokens


class Number(click.FloatRange):
    """A finite number in a range: nan and inf are none, and no timeout or duration needs more than 10,000,000."""

    _MOST = 1e7

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number; `click.BadParameter` for anything else."""
        number = float(super().convert(value, param, ctx))
        if not abs(number) <= self._MOST:
            self.fail(f"{value} is not a number up to {self._MOST:,.0f}", param, ctx)
        return number


def seconds_of(_ctx: object, _param: object, text: str) -> float:
    """Return the seconds of ``30m``, ``90s``, ``2h`` or a plain number; `click.BadParameter` for anything else."""
    return _seconds(text, "30m, 90s, 2h or seconds")


def _seconds(text: str, expected: str) -> float:
    match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)([smh]?)", text.strip())
    seconds = float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]] if match else 0.0
    if not seconds:
        raise click.BadParameter(f'"{text}" is not a time; expected {expected}')
    return seconds


def time_limit_of(_ctx: object, _param: object, text: str) -> int:
    """Return the seconds of ``24h``, ``90m``, ``24:00:00`` or Slurm's ``2-12:00:00``; 0 if ``text`` is empty."""
    if not text:
        return 0
    match = re.fullmatch(r"(?:(\d{1,4})-)?(\d{1,4}):([0-5]\d):([0-5]\d)", text.strip())
    if match is None:
        return math.ceil(_seconds(text, "24h, 90m, HH:MM:SS, D-HH:MM:SS or seconds"))
    days, hours, minutes, seconds = (int(digits or 0) for digits in match.groups())
    if not (limit := ((days * 24 + hours) * 60 + minutes) * 60 + seconds):
        raise click.BadParameter(f'"{text}" is no time at all; omit --time for that of the queue')
    return limit


fresh_option = click.option("--fresh", is_flag=True, is_eager=True, expose_value=False, help="Query every node again.",
    callback=lambda ctx, _param, fresh: ctx.meta.update({_FRESH: fresh}))  # fmt: skip


def age_of(ctx: click.Context, param: object, text: str) -> float:
    """Return the seconds that an answer may be old; 0 with ``--fresh``."""
    return 0.0 if ctx.meta.get(_FRESH) else seconds_of(ctx, param, text)


class MayBeEmpty(click.Option):
    """An option whose empty value takes back what the job's launch directory records."""


def refuse_empty(command: click.Command, ctx: click.Context, args: list[str]) -> None:
    """Raise `click.BadParameter` for an empty value of an option that has no use for one."""
    parser = command.make_parser(ctx)
    parser.ignore_unknown_options = True
    given, _, _ = parser.parse_args(list(args))
    for param in (each for each in command.get_params(ctx) if not isinstance(each, (MayBeEmpty, click.Argument))):
        value = given.get(param.name or "")
        for each in value if isinstance(value, (list, tuple)) else [value]:
            not_empty(ctx, param, each)


def not_empty(ctx: click.Context, param: click.Parameter, text: str | None) -> str | None:
    """Return ``text``; `click.BadParameter` if it is empty, as an unset variable of a shell is: it would mean all."""
    if isinstance(text, str) and not text.strip():
        raise click.BadParameter("it is empty; is a variable of your shell unset?", ctx, param)
    return text


def pattern_of(ctx: click.Context, param: click.Parameter, text: str | None) -> str | None:
    """Return the pattern ``text``; `click.BadParameter` if it is a layout and the command has an option for one."""
    has_layout = any(each.name == "layout" for each in ctx.command.params)
    if has_layout and re.match(r"(tp|cp|ep|dp|pp)=", text or ""):
        raise click.BadParameter(f'"{text}" is a layout; use --layout {text}')
    return not_empty(ctx, param, text)


def one_inventory(_ctx: object, _param: object, given: tuple[str, ...]) -> str | None:
    """Return the only inventory; `click.UsageError` if there are several: the last alone would be used."""
    if len(given) > 1:
        raise click.UsageError(
            f"--inventory is given {len(given)} times, and only one can be used; a directory may hold several files"
        )
    return given[0] if given else None


def words_of(_ctx: object, _param: object, text: str | None) -> tuple[str, ...]:
    """Return the words of ``a,b,c``."""
    return tuple(word.strip() for word in (text or "").split(",") if word.strip())


def scopes_of(_ctx: object, _param: object, text: str | None) -> tuple[str, ...]:
    from gpuops.collective.request import SCOPES
    from gpuops.errors import InputError, did_you_mean

    words = [word.strip() for word in text.split(",")] if text else list(SCOPES)
    for word in words:
        if word not in _SCOPES:
            raise InputError(
                f'unknown scope "{word}"{did_you_mean(word, _SCOPES) or "; use node, rail, pairs or group"}'
            )
    return tuple(dict.fromkeys(_SCOPES[word] for word in words))


def variables_of(_ctx: object, _param: object, words: Sequence[str]) -> dict[str, Any]:
    """Return the variables of ``NAME=VALUE`` (a YAML value) and ``@FILE`` (a YAML mapping); later ones win."""
    from gpuops.playbook.parameters import extra_variables

    return extra_variables(words)


def layout_of(_ctx: object, _param: object, text: str) -> str:
    """Return the degrees of a layout: ``text`` itself, or all of those in the YAML file of this name that a plan saved.

    A file is a whole layout: what it does not name has its default, as for ``place`` and ``render``.
    """
    if not text.endswith((".yml", ".yaml")):
        return text
    from gpuops.document import load
    from gpuops.layout import parse_layout, spelled_out

    keys = load(Path(text)).only({"layout"}, "in a saved layout")
    if "layout" not in keys:
        raise click.BadParameter(f'{text} has no key "layout"; expected a file of gpuops plan --save')
    return spelled_out(parse_layout(keys["layout"].text()))


def sizes_of(_ctx: object, _param: object, text: str | None) -> dict[str, int]:
    """Return the sizes of ``70B`` or ``params=70B,layers=80``; `click.BadParameter` for a word that is not one."""
    sizes: dict[str, int] = {}
    for word in filter(None, re.split(r"[,\s]+", text or "")):
        key, equals, value = word.partition("=")
        key, value = (key, value) if equals else ("params", key)
        if key in sizes:
            raise click.BadParameter(f'"{key}" is given twice')
        sizes[key] = _number(value, f'"{word}" is not a size; expected 70B, or layers=80')
    return sizes


def tokens_of(_ctx: object, _param: object, text: str | None) -> int | None:
    """Return the number of ``15T`` or ``300B``; `click.BadParameter` for anything else."""
    return None if text is None else _number(text.strip(), f'"{text}" is not a number of tokens; expected 300B or 15T')


def _number(text: str, message: str) -> int:
    """Return the number of ``70B``; `click.BadParameter` with ``message`` if it is none."""
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,6})?)([KMBT]?)", text.upper())
    number = float(match[1]) * {"": 1, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}[match[2]] if match else math.inf
    if number > _LARGEST:
        raise click.BadParameter(message)
    return round(number)


def environment_of_job(_ctx: object, _param: object, words: Sequence[str]) -> dict[str, str]:
    """Return the variables of ``NAME=VALUE``, or of ``NAME`` with its value here, which keeps a secret out of argv."""
    variables: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise click.BadParameter(f'"{name}" is not the name of a variable; expected NAME=VALUE or NAME')
        if not equals and name not in os.environ:
            raise click.BadParameter(f'"{name}" is not set here; set it, or use {name}=VALUE')
        variables[name] = value if equals else os.environ[name]
    return variables


def with_recorded(job: Mapping[str, Any], folder: Path, placement: Placement, target: str) -> dict[str, Any]:
    """Return ``job`` with what ``folder`` records of one that ``placement`` moved, unless the command line sets it."""
    from gpuops.render.recorded import recorded_job

    ctx = click.get_current_context()
    unset = {name for name in ctx.params if ctx.get_parameter_source(name) is ParameterSource.DEFAULT}
    unset |= set() if ctx.params["words"] else {"command"}
    recorded = recorded_job(folder, placement, target)
    return {**job, **{name: value for name, value in recorded.items() if name in unset}}


def confirmed(question: str) -> bool:
    """Ask on stderr for a yes or no; the end of the input means no."""
    try:
        return click.confirm(question, default=False, err=True)
    except click.Abort as stop:  # for Ctrl-C, too
        if not isinstance(stop.__context__, EOFError):
            raise
    click.echo(err=True)
    return False


def unexpected(ctx: click.Context, extra: Sequence[str]) -> str:
    """Return the error for words beyond the arguments; it proposes one pattern if the last argument is a pattern."""
    last = next((param for param in reversed(ctx.command.params) if isinstance(param, click.Argument)), None)
    words = [ctx.params.get(last.name or ""), *extra] if last and "PATTERN" in last.make_metavar(ctx) else []
    hint = f"; several hosts are one PATTERN: {','.join(map(str, words))}" if words else ""
    return f'unexpected argument "{extra[0]}"{hint}'


def in_our_words(error: click.ClickException) -> str:
    """Return click's message as other errors are: one line in lower case, our quotes, and no name of a click type."""
    message = " ".join(error.format_message().replace(". Choose from:", "; choose from").split()).rstrip(".")
    if isinstance(error, (click.BadParameter, click.NoSuchOption, click.BadOptionUsage)):
        message = re.sub(r"'([^'\"]*)'", r'"\1"', message)
        message = message.replace("valid integer range", "valid integer").replace("valid float range", "valid number")
    return message[:1].lower() + message[1:]


def declares(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Let PATTERN declare nodes with their GPUs: they go into the request, and need no inventory."""

    @functools.wraps(verb)
    def with_nodes(*, pattern: str | None, **options: Any) -> Any:
        from gpuops.errors import NoInventoryError
        from gpuops.inventory.declared import declared_gpus, with_gpus

        if counts := declared_gpus(pattern or ""):
            if options["folder"] or options["local"]:
                raise click.UsageError(f'"{pattern}" declares nodes, which excludes --from and --local')
            options["request"] = replace(options["request"], gpus_by_node=counts)
            pattern, options["inventory"] = (",".join(counts), options["inventory"] or f"{','.join(counts)},")
        try:
            return verb(pattern=pattern, **options)
        except NoInventoryError as error:
            hint = f"; nodes with their number of GPUs need none: {example}" if (example := with_gpus(pattern)) else ""
            raise NoInventoryError(f"{error}{hint}") from None

    return _adding(_REPLACED, _LAUNCH_DIRECTORY)(with_nodes)


_REPLACED = click.option("--replace", "replaced", metavar="PATTERN",
    callback=lambda _ctx, _param, text: () if text is None else (text,),
    help="Replace these lost nodes of --of by the best spares; all other ranks, and the layout, stay.")  # fmt: skip
_LAUNCH_DIRECTORY = click.option("--of", "earlier", type=click.Path(path_type=Path, file_okay=False),
    default=Path("launch"), show_default=True, metavar="DIR", help="The launch directory of --replace.")  # fmt: skip


def _adding(*options: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds ``options`` to a command, which lists them in this order."""
    return lambda verb: functools.reduce(lambda command, option: option(command), reversed(options), verb)


_MEETING = (
    click.option("--master", metavar="ADDRESS", default="",
        help="Address of the rendezvous (default: the first node's)."),
    click.option("--port", metavar="PORT", type=click.IntRange(1024, 65535),
        help="Port of the rendezvous (default: one for each job)."),
)  # fmt: skip
meets = _adding(*_MEETING)
"""Adds the options of a job's rendezvous."""
describes_job = _adding(
    click.option("--name", metavar="NAME", default="train", show_default=True, help="Name of the job."),
    *_MEETING,
    click.option("--queue", cls=MayBeEmpty, metavar="NAME", default="", help="Queue or partition of the scheduler."),
    click.option("--time", "time_seconds", cls=MayBeEmpty, callback=time_limit_of, metavar="TIME", default="",
        help="Time limit of the job, such as 24h or 24:00:00 (default: that of the queue)."),
    click.option("--image", cls=MayBeEmpty, metavar="IMAGE", default="", help="The job's container image."),
    click.option("--mount", "mounts", metavar="SOURCE:TARGET", multiple=True,
        help="Mount a directory of the nodes in the container; repeatable."),
)  # fmt: skip
"""Adds the options that describe the job of launch files: its name, rendezvous, queue, time, image and mounts."""
lasts = _adding(
    click.option("--days", type=Number(0, min_open=True), metavar="N",
        help="Also report when a job of N days without a failure ends, and how many spares pay off."),
    click.option("--tokens", callback=tokens_of, metavar="N", help="The same for a job of N tokens, such as 15T."),
    click.option("--checkpoint-time", "checkpoint_seconds", callback=seconds_of, default="60s", show_default=True,
        metavar="TIME", help="Training time that a checkpoint costs."),
    click.option("--restart-time", "restart_seconds", callback=seconds_of, default="10m", show_default=True,
        metavar="TIME", help="Time from a failure to the next step, with a spare."),
    click.option("--repair-time", "repair_seconds", callback=seconds_of, default="48h", show_default=True,
        metavar="TIME", help="Time until a failed node is back."),
)  # fmt: skip
"""Adds the options that say how long a job is, and what a checkpoint, a restart and a repair take."""
stores = _adding(
    click.option("--host-memory", "host_gib", type=Number(1), metavar="GIB",
        help="Host memory in each node (default: as the nodes report, else 2048)."),
    click.option("--nvme", "nvme_gib", type=Number(1), metavar="GIB", help="Size of the NVMe drives in each node."),
)  # fmt: skip
"""Adds the options that say what a node has beside its GPUs."""
