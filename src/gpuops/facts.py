"""Facts of one node: its parsed answers. They are saved as raw answers, so that a newer parser can read them again."""

from __future__ import annotations

import contextlib
import datetime as dt
import gc
import json
import multiprocessing
import pickle
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast

from gpuops.document import Where, is_directory, read_bytes, regular
from gpuops.errors import InputError
from gpuops.inventory import machine_vars
from gpuops.inventory.names import check_host
from gpuops.probing import Probe, Unknown
from gpuops.proposal import propose
from gpuops.reasons import Excluded
from gpuops.shell import Command, Completed, Files, Question, Resources

T = TypeVar("T")
Item = TypeVar("Item")
_MOST_BYTES = 128 << 20
"""Ten times as much as a node may answer; JSON escapes what is not printable."""
Ask = Callable[[Sequence[Question]], list[Completed]]
SCHEMA = "gpuops.facts/1"


@dataclass(frozen=True)
class Facts:
    """Values of one node's probes at ``taken_at`` (UTC); ``answers`` are kept only if they will be saved.

    ``profile`` is the one that the inventory named for the node, and ``declared`` what else it says about the machine
    (`gpuops.inventory.machine_vars`). If saved facts lack all answers, ``excluded`` is why.
    """

    node: str
    taken_at: dt.datetime
    values: Mapping[str, object]
    answers: tuple[Completed, ...] = field(default=(), repr=False)
    profile: str | None = None
    excluded: Excluded | None = None
    declared: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __getitem__(self, probe: Probe[T]) -> T | Unknown:
        """Return the value of ``probe``, or `Unknown`."""
        if probe.name not in self.values:
            return Unknown(f"{probe.name} was not collected")
        return cast("T | Unknown", self.values[probe.name])

    def only(self, probes: Iterable[Probe[Any]]) -> Facts:
        """Return the same facts with only the values of ``probes``."""
        return replace(self, values={p.name: self.values[p.name] for p in probes if p.name in self.values}, answers=())

    def joined(self, later: Facts) -> Facts:
        """Return the same facts updated with those of ``later``."""
        return replace(self, values={**self.values, **later.values}, answers=(*self.answers, *later.answers))

    def with_answer(self, answer: Completed, probe: Probe[Any]) -> Facts:
        """Return the same facts and the value of ``probe`` in a later ``answer``."""
        values = {**self.values, probe.name: probe.read(answer)}
        return replace(self, values=values, answers=(*self.answers, answer))


def questions(probes: Iterable[Probe[Any]]) -> list[Question]:
    """Return each question of ``probes`` to a node once, in order: several probes may read the same answer."""
    return list(dict.fromkeys(probe.question for probe in probes if probe.cost != "recalled"))


def gather(node: str, ask: Ask, probes: Sequence[Probe[Any]], *, keep_answers: bool = False) -> Facts:
    """Ask ``node`` all questions of ``probes`` in one round trip (``ask`` is a transport's ``batch``)."""
    answers = ask(questions(probes))
    return read(node, dt.datetime.now(dt.timezone.utc), answers, probes, keep_answers=keep_answers)


def read(
    node: str,
    taken_at: dt.datetime,
    answers: Iterable[Completed],
    probes: Iterable[Probe[Any]],
    *,
    keep_answers: bool = False,
) -> Facts:
    """Parse ``answers`` into facts; a probe whose question was not asked is `Unknown`."""
    by_question = {answer.question: answer for answer in answers}
    found = ((probe, by_question.get(probe.question)) for probe in probes if probe.cost != "recalled")
    values = {probe.name: probe.read(answer) for probe, answer in found if answer is not None}
    return Facts(node, taken_at, values, tuple(by_question.values()) if keep_answers else ())


def to_document(facts: Facts) -> str:
    """Return the answers of ``facts`` as one JSON document, for `load`."""
    return json.dumps(
        {
            "schema": SCHEMA,
            "node": facts.node,
            "taken_at": facts.taken_at.isoformat(timespec="seconds"),
            **({"profile": facts.profile} if facts.profile else {}),
            **({"declared": machine_vars.to_document(facts.declared)} if facts.declared else {}),
            **({"excluded": facts.excluded.to_document()} if facts.excluded else {}),
            "answers": [_saved(answer) for answer in facts.answers],
        },
        indent=1,
    )


def _saved(answer: Completed) -> dict[str, Any]:
    question = {k: v for k, v in asdict(answer.question).items() if k != "stdin"}
    rest = {k: v for k, v in asdict(answer).items() if k not in ("node", "question")}
    return {"kind": type(answer.question).__name__.lower(), "question": question, **rest}


def load(path: Path, probes: Sequence[Probe[Any]], *, keep_answers: bool = False) -> Facts:
    """Load the facts saved in ``path`` with today's parsers; raise `InputError` if it is not such a document."""
    try:
        document = json.loads(read_bytes(path, _MOST_BYTES).decode())
        if document["schema"] != SCHEMA:
            raise InputError(f"{path}: schema {document['schema']} is not {SCHEMA}; save the facts again")
        node = check_host(_of_type("node", document["node"], str), Where(str(path)), "node name")
        answers = [_restored(node, answer) for answer in document["answers"]]
        taken_at = dt.datetime.fromisoformat(document["taken_at"]).astimezone(dt.timezone.utc)
        profile = _of_type("profile", document.get("profile", ""), str) or None
        declared = machine_vars.from_document(document.get("declared", {}))
        excluded = Excluded.from_document(node, document["excluded"]) if "excluded" in document else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise InputError(f"{path}: not facts saved by gpuops ({type(error).__name__}: {error})") from error
    loaded = read(node, taken_at, answers, probes, keep_answers=keep_answers)
    return replace(loaded, profile=profile, excluded=excluded, declared=declared)


_QUESTIONS: dict[str, type[Question]] = {"files": Files, "command": Command, "resources": Resources}
_TYPES: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("out", "err", "state", "become", "lane"), str),
    **dict.fromkeys(("exit", "limit_bytes"), int),
    **dict.fromkeys(("seconds", "timeout_seconds"), (int, float)),
    **dict.fromkeys(("timed_out", "truncated"), bool),
    **dict.fromkeys(("words", "root_words", "globs", "paths"), tuple),
}


def _restored(node: str, saved: dict[str, Any]) -> Completed:
    kind, question = saved.pop("kind"), saved.pop("question")
    fields = tuple((key, tuple(value) if isinstance(value, list) else value) for key, value in question.items())
    for key, value in saved.items():
        if not isinstance(value, _TYPES[key]):
            _of_type(key, value, _TYPES[key])
    return Completed(node, _question(kind, fields), **saved)


@lru_cache(maxsize=1024)  # all nodes were asked the same
def _question(kind: str, fields: tuple[tuple[str, Any], ...]) -> Question:
    for key, value in fields:
        _of_type(key, value, _TYPES[key])
        for word in value if isinstance(value, tuple) else ():
            _of_type(key, word, str)
    return _QUESTIONS[kind](**dict(fields))


def _of_type(key: str, value: Any, expected: type | tuple[type, ...]) -> Any:
    if not isinstance(value, expected):
        raise TypeError(f"{key} is {value!r:.40}")
    return value


def saved_names(folder: Path) -> list[str]:
    """Return the nodes with saved facts in ``folder``, from its file names; raise `InputError` if there are none."""
    return [file.stem for file in _saved_files(folder)]


def _saved_files(folder: Path) -> list[Path]:
    files = sorted(folder.glob("*.json")) if is_directory(folder) else []
    if not files:
        raise InputError(f"{folder}: no saved facts; to save some: {propose('facts', '--save', str(folder))}")
    for file in files:
        check_host(file.stem, Where(str(regular(file))), "node name")  # it will appear in launch files and commands
    return files


def load_folder(folder: Path, probes: Sequence[Probe[Any]]) -> list[Facts]:
    """Return the facts in every ``*.json`` in ``folder``, by name."""
    return of_folder(folder, probes, lambda facts: facts)


def of_folder(
    folder: Path,
    probes: Sequence[Probe[Any]],
    work: Callable[[Facts], T],
    nodes: Collection[str] | None = None,
    *,
    keep_answers: bool = False,
) -> list[T]:
    """Return the results of ``work`` on the facts of ``nodes``, by default of every ``*.json`` in ``folder``, by name.

    Many files are read in parallel: ``work`` must be pure, and its results should be small, because they are sent
    between processes.
    """
    files = [file for file in _saved_files(folder) if nodes is None or file.stem in nodes]

    def read_one(file: Path) -> T:
        return work(load(file, probes, keep_answers=keep_answers))

    return side_by_side(read_one, files)


class SavedFacts(Mapping[str, Facts]):
    """The facts of ``nodes`` in ``folder``, by name; they are read when the first of them is looked at.

    All facts of thousands of nodes take seconds to read, and much memory.
    """

    def __init__(self, folder: Path, probes: Sequence[Probe[Any]], nodes: Collection[str]) -> None:
        """Read nothing yet."""
        self._folder, self._probes, self._nodes = folder, probes, tuple(nodes)

    @cached_property
    def _facts(self) -> dict[str, Facts]:
        found = of_folder(self._folder, self._probes, lambda facts: facts, frozenset(self._nodes))
        return {facts.node: facts for facts in found}

    def __getitem__(self, node: str) -> Facts:
        """Return the facts of ``node``."""
        return self._facts[node]

    def __iter__(self) -> Iterator[str]:
        """Return the names of the nodes, in the order in which they were given."""
        return iter(self._nodes)

    def __len__(self) -> int:
        """Return the number of nodes."""
        return len(self._nodes)


def _may_fork() -> bool:
    """Return False in a process with threads: a forked child could wait forever for a lock that one of them held."""
    return threading.active_count() == 1 and "fork" in multiprocessing.get_all_start_methods()


def side_by_side(work: Callable[[Item], T], items: Sequence[Item]) -> list[T]:
    """Return the result of ``work`` for each item: of many, by one process per core; in this one if it has threads.

    The processes are forks, so ``work`` may use all that is known here, but only its results come back.
    """
    if len(items) < _MANY or not _may_fork():
        return [work(item) for item in items]
    context = multiprocessing.get_context("fork")  # probes contain functions, which cannot be pickled
    with ProcessPoolExecutor(mp_context=context, initializer=_begin, initargs=(work,)) as workers:
        try:
            with _without_collection():
                return list(workers.map(_go_on, items, chunksize=_MANY // 4))
        except (pickle.PicklingError, AttributeError, TypeError):  # results cannot be sent
            workers.shutdown(cancel_futures=True)
    return [work(item) for item in items]


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """Let no garbage be collected: results of thousands of nodes hold none, and are looked through again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


_MANY = 64
_works: list[Callable[[Any], Any]] = []


def _begin(work: Callable[[Any], Any]) -> None:
    gc.disable()  # a worker exits before garbage collection would pay off
    _works.append(work)


def _go_on(item: Any) -> Any:
    return _works[-1](item)
