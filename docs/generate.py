"""Write what the pages take from the code: ``make docs``, or ``python docs/generate.py``.

A page's own words stay. What stands between ``<!-- from the code: NAME -->`` and ``<!-- end -->`` is made here, by the
function called NAME. ``tests/test_docs.py`` fails where a page is behind the code.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import inspect
import itertools
import re
import runpy
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner

from gpuops.catalogue import Catalogue
from gpuops.cli import program
from gpuops.cli._options import reaches
from gpuops.cli._terminal import exit_codes_of
from gpuops.render import abridged
from gpuops.shell import Command, Files, Question

FOLDER = Path(__file__).parent
_BUILT_IN = Catalogue()
_PART = re.compile(r"(<!-- from the code: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def current(page: str) -> str:
    """The text of a page with its parts made anew."""
    return _PART.sub(lambda part: part[1] + "\n".join(["", *_PARTS[part[2]](), "", part[3]]), page)


def layers() -> Iterator[str]:
    """Every layer, the highest first, with the modules and packages in it and what each says of itself."""
    by_layer: dict[int, list[str]] = {}
    for name, layer in runpy.run_path(str(FOLDER.parent / "tests" / "test_layers.py"))["FLOORS"].items():
        if importlib.util.find_spec(f"gpuops.{name}"):
            by_layer.setdefault(layer, []).append(name)
    yield from ("| layer | module | what it is |", "|---|---|---|")
    for layer, names in sorted(by_layer.items(), reverse=True):
        for name in sorted(names):
            yield f"| {layer} | `{name}` | {_about(name)} |"


def _about(name: str) -> str:
    """The first line of a module's docstring, without its name."""
    spec = importlib.util.find_spec(f"gpuops.{name}")
    text = ast.get_docstring(ast.parse(Path(str(spec and spec.origin)).read_text("utf-8"))) or ""
    line = " ".join(text.split("\n\n")[0].split())
    return line.removeprefix(f"{name.capitalize()}: ").replace("``", "`").replace("|", "\\|")


def verbs() -> Iterator[str]:
    """Every verb: how it is called, what it does, its options."""
    for context in walk(click.Context(program, info_name="gpuops")):
        verb = context.command
        yield from ("", f"## {context.command_path}", "")
        yield from ("```", " ".join([context.command_path, *verb.collect_usage_pieces(context)]), "```", "")
        yield from _paragraphs(verb.help or "")
        codes = exit_codes_of(verb)
        yield from ("Exit codes: " + ", ".join(f"{code} {meaning}" for code, meaning in codes.items()) + ".", "")
        options = [param for param in verb.params if isinstance(param, click.Option) and not param.hidden]
        shared = {option.name for option in options} >= set(_NODE_OPTIONS)
        yield from (_option(option) for option in options if not shared or option.name not in _NODE_OPTIONS)
        if shared:
            yield "- and the [options of every verb that talks to nodes](#options-of-every-verb-that-talks-to-nodes)"


def node_options() -> Iterator[str]:
    """The options that choose nodes and say how they are reached."""
    return map(_option, _NODE_OPTIONS.values())


def walk(context: click.Context) -> Iterator[click.Context]:
    """The program and every verb below it, each in its context."""
    yield context
    if isinstance(context.command, click.Group):
        for name in sorted(context.command.list_commands(context)):
            verb = context.command.get_command(context, name)
            if verb is not None:
                yield from walk(click.Context(verb, parent=context, info_name=name))


def _paragraphs(text: str) -> Iterator[str]:
    """Click's help as Markdown; a paragraph under a backspace, which click does not fold, is kept as it stands."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        kept = paragraph.removeprefix("\b\n")
        yield from (kept, "") if kept == paragraph else ("```", inspect.cleandoc(kept), "```", "")


def _option(option: click.Option) -> str:
    choices = "|".join(option.type.choices) if isinstance(option.type, click.Choice) else ""
    value = "" if option.is_flag or option.count else f" {option.metavar or choices or option.type.name.upper()}"
    default = f"Default: {option.default}." if option.show_default else ""
    return f"- `{', '.join(option.opts)}{value}`: {' '.join(filter(None, (option.help, default)))}".rstrip(": ")


def _no_command() -> None:
    """Take the options of every command that talks to nodes."""


_NODE_OPTIONS = {
    p.name: p
    for p in click.command()(reaches(limited=False)(_no_command)).params
    if isinstance(p, click.Option) and not p.hidden
}


def checks() -> Iterator[str]:
    """Every built-in check, as ``gpuops checks explain`` tells of it."""
    for check in _BUILT_IN.checks().values():
        yield from ("", f"### {check.name}", "", check.doc, "")
        yield f"- {check.scope}, {check.severity}, tags {_names(check.tags)}"
        yield f"- asks {_names(probe.name for probe in check.needs)}"
        yield from [f"- expects {_names(check.expects)}"] if check.expects else []
        yield from (f"- {label} {text}" for label, text in (("catches", check.catches), ("do:", check.fix)) if text)


def profiles() -> Iterator[str]:
    """Every built-in profile with its numbers."""
    for profile in _BUILT_IN.profiles().values():
        yield from ("", f"### {profile.name}", "", profile.about[:1].upper() + profile.about[1:] + ".", "")
        yield from ("| key | value | grade | source |", "|---|---|---|---|")
        for key, expected in profile.values.items():
            yield f"| `{key}` | {expected.value} | {expected.grade} | {expected.source} |"


def probes() -> Iterator[str]:
    """Every probe and its question."""
    for name, probe in sorted(_BUILT_IN.probes().items()):
        root = isinstance(probe.question, Command) and probe.question.become != "never"
        yield from ("", f"### {name}", "", *(["As root, where plain rights are refused.", ""] if root else []))
        yield from ("```sh", *_question(probe.question), "```")


def _question(question: Question) -> Iterator[str]:
    """What a person would type to see the same."""
    if isinstance(question, Files):
        for folder, names in groupby(question.globs, lambda path: path.rpartition("/")[0]):
            last = ",".join(path.rpartition("/")[2] for path in names)
            yield f"cat {folder}/{{{last}}}" if "," in last else f"cat {folder}/{last}"
    elif question.words[:2] == ("sh", "-c"):
        yield question.words[2].strip("\n")
    else:
        yield str(question)


def texts() -> Iterator[str]:
    """What ``gpuops parse`` reads beside the answers of the probes."""
    return (
        f"- `{name}`: {kind.printed_by}" for name, kind in _BUILT_IN.kinds().items() if name not in _BUILT_IN.probes()
    )


def faults() -> Iterator[str]:
    """Every fault of the lab, as ``gpuops lab faults`` lists them."""
    return iter(["```", CliRunner().invoke(program, ["lab", "faults"]).stdout.rstrip(), "```"])


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def launch_targets() -> Iterator[str]:
    """Every built-in launch target: what it is, what it writes, its rank order, what it refuses."""
    for target in _BUILT_IN.targets().values():
        yield from ("", f"## {target.name}", "", target.about, "")
        yield f"- writes: {', '.join(f'`{path}`' for path in target.files)}"
        yield from ([f"- start: `{abridged(target.start)}`"] if target.start else [])
        yield from (
            [f"- order of ranks: {' or '.join(f'`{order}`' for order in target.orders)}"] if target.orders else []
        )
        yield from (f"- refuses: {abridged(rule.because)}" for rule in target.rules)
        yield from ([f"- {target.note}"] if target.note else [])


def tasks() -> Iterator[str]:
    """Every built-in task: what holds after it, and its parameters."""
    for name, task in _BUILT_IN.tasks().items():
        yield from ("", f"### {name}", "", _plain(task.doc), "", _plain(task.params.__doc__), "")
        fields = dataclasses.fields(task.params)
        if fields:
            yield from ("| parameter | type | default |", "|---|---|---|", *map(_field, fields))


def _plain(text: str | None) -> str:
    """A docstring as Markdown."""
    return inspect.cleandoc(text or "").replace("``", "`")


def _field(field: dataclasses.Field[Any]) -> str:
    kind = field.type if isinstance(field.type, str) else getattr(field.type, "__name__", "")
    kind = str(field.type) if not isinstance(field.type, type) else kind
    kind = re.sub(r"typing\.Annotated\[str, '(\w+)'\]", r"\1", kind)
    kind = re.sub(r"typing\.Optional\[(\w+)\]", r"\1 | None", kind)
    kind = re.sub(r"\b(?:typing|collections\.abc|pathlib|gpuops\.secret)\.", "", kind).replace("|", "\\|")
    made = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
    default = "required" if made is dataclasses.MISSING else "" if made is None else f"`{made!r}`"
    return f"| `{field.name}` | {kind} | {default} |"


def playbooks() -> Iterator[str]:
    """Every built-in playbook with its plays and steps; what it is for stands in the comment at its head."""
    for name, playbook in _BUILT_IN.playbooks().items():
        about = " ".join(line.lstrip("# ") for line in _head(playbook.path.read_text("utf-8")))
        yield from ("", f"### {name}", "", about, "")
        for play in playbook.plays:
            yield f"- {play.name}, on `{play.hosts}`"
            yield from (f"  - {step.name} (`{step.task.name}`)" for step in play.every_step)


def _head(text: str) -> Iterable[str]:
    return itertools.takewhile(lambda line: line.startswith("#"), text.splitlines())


_PARTS: dict[str, Callable[[], Iterator[str]]] = {
    made.__name__: made
    for made in (layers, verbs, node_options, checks, profiles, probes, texts, faults, launch_targets, tasks, playbooks)
}


def main() -> None:
    """Bring every page up to date."""
    for page in sorted(FOLDER.glob("*.md")):
        before = page.read_text("utf-8")
        after = current(before)
        if after != before:
            page.write_text(after, "utf-8")
            print(f"{page.name} written")


if __name__ == "__main__":
    main()
