"""Profiles: the expected properties of a type of machine, every number with its source and grade."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpuops.content import ContentFile, find, listing
from gpuops.document import Where, YamlNode
from gpuops.document import load as load_document
from gpuops.errors import DocumentError, did_you_mean

FOLDER = "checks/profiles"
GRADES = ("measured-here", "measured-published", "vendor-floor", "datasheet", "guess")
"""From best to worst. A value with the grade ``guess`` can warn, but never fail."""


@dataclass(frozen=True)
class Expected:
    """One expected value, its source, and how reliable it is (one of `GRADES`).

    ``inherited_from`` is the profile that sets it, if another one is ``like`` that profile. ``where`` is the place of
    its key in a file; None if it is not from a profile.
    """

    value: Any
    source: str
    grade: str
    inherited_from: str = ""
    where: Where | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Match:
    """Rule that detects machines of a profile: a name of the GPU, and the number of GPUs from ``fewest`` to ``most``.

    The name may follow the maker's, and precede a size of memory: "A100-SXM4" is "NVIDIA A100-SXM4-40GB". Nothing
    else may follow: "NVIDIA H200 NVL" is not an H200, "RTX 4090 D" is not an RTX 4090, and "L40S-48Q" is a virtual GPU.
    Without ``most``, any number of cards makes such a machine.
    """

    gpu_names: tuple[str, ...]
    fewest: int = 1
    most: int | None = None

    @property
    def gpu_count(self) -> int | None:
        """The number of GPUs of each such machine; None if it varies."""
        return self.most if self.most == self.fewest else None

    @property
    def spread(self) -> float:
        """How many counts are possible."""
        return math.inf if self.most is None else self.most - self.fewest

    def fits(self, gpu_name: str, gpu_count: int) -> bool:
        """Return True if a machine with these GPUs has this profile."""
        return self.names(gpu_name) and self.fewest <= gpu_count and (self.most is None or gpu_count <= self.most)

    def names(self, gpu_name: str) -> bool:
        """Return True if this is the GPU of the profile."""
        return any(
            re.search(rf"(?<!\w){re.escape(name)}(?:-\d+GB)?$", gpu_name, re.IGNORECASE) for name in self.gpu_names
        )


@dataclass(frozen=True)
class Profile:
    """Expected values under dotted keys (``gpu.count``); ``required`` names checks that must not be unknown."""

    name: str
    values: Mapping[str, Expected] = field(default_factory=dict, hash=False)
    required: frozenset[str] = frozenset()
    match: Match | None = None
    about: str = ""

    def __getitem__(self, key: str) -> Any:
        """Return the expected value of ``key``; checks declare their keys in ``expects``, so a `KeyError` is a bug."""
        return self.values[key].value

    def get(self, key: str, default: Any = None) -> Any:
        """Return the expected value of ``key``, or ``default`` if the profile does not set it."""
        return self.values[key].value if key in self.values else default

    def grade(self, keys: tuple[str, ...]) -> str:
        """Return the lowest grade among ``keys``: a judgement is only as reliable as its weakest number."""
        return max((self.values[k].grade for k in keys if k in self.values), key=GRADES.index, default=GRADES[0])

    def expecting(self, overrides: Mapping[str, Any], source: str) -> Profile:
        """Return this profile overridden by a host's own ``expect:`` values, which count as measured by the user."""
        own = {key: Expected(value, source, "measured-here") for key, value in overrides.items()}
        return Profile(self.name, {**self.values, **own}, self.required, self.match, self.about)


NO_PROFILE = Profile(
    "none",
    required=frozenset(
        {"gpu-count", "gpu-lost", "smi-errors"}
    ),  # a machine of which not even this is known is not healthy
    about="no expected values; only checks that need none are run",
)


def load(name: str, project: Path | None = None) -> Profile:
    """Load the profile called ``name``, from the project's ``checks/profiles`` or the built-in ones."""
    return _read(find(FOLDER, name, ".yml", project), project)


def known(project: Path | None = None) -> list[Profile]:
    """Return all profiles, the project's first; a project's own profile hides the built-in one of the same name."""
    files = sorted(listing(FOLDER, ".yml", project).values(), key=lambda file: file.origin != "project")
    return [_read(file, project) for file in files]


def load_file(path: Path, project: Path | None = None) -> Profile:
    """Load the profile in the file ``path``, wherever it is."""
    return _read(ContentFile(path.stem, path, "project"), project)


def chosen_profile(name: str, profiles: Mapping[str, Profile], project: Path | None = None) -> Profile:
    """Return the one of ``profiles`` called ``name``, or that in the file ``name``, which ends with .yml."""
    return load_file(Path(name), project) if Path(name).suffix in {".yml", ".yaml"} else profiles[name]


def detect(gpu_name: str, gpu_count: int, profiles: Sequence[Profile], *, has_nvswitch: bool = False) -> Profile:
    """Return the profile whose ``match`` fits this machine, or `NO_PROFILE`.

    Of several, the one with the fewest possible counts fits best, then the first one of ``profiles``.
    A machine that lost GPUs still has its profile, so that the loss is judged: a board with NVLink is known by its
    NVSwitches, or because more than half of its GPUs are there. Clouds sell 1, 2 and 4 GPUs of a board of 8, not more.
    """
    named = [(p, p.match) for p in profiles if p.match and p.match.names(gpu_name)]
    fitting = [(profile, match) for profile, match in named if match.fits(gpu_name, gpu_count)]
    if fitting:
        return min(fitting, key=lambda each: each[1].spread)[0]
    return next(
        (
            profile
            for profile, match in named
            if gpu_count < match.fewest
            and (
                (profile.get("nvlink.links") and 2 * gpu_count > match.fewest)
                or (profile.get("nvswitch") and has_nvswitch)
            )
        ),
        NO_PROFILE,
    )


def _read(file: ContentFile, project: Path | None, inheriting: tuple[Path, ...] = ()) -> Profile:
    """Read a profile and those that it is like; ``inheriting`` are the files that lead to this one."""
    root = load_document(file.path)
    top = root.only(("name", "about", "like", "match", "required", "values"), "in a profile")
    if "name" not in top or not {"values", "like"} & set(top):
        raise root.fail("a profile needs a name and values")
    base = _inherited(top["like"], file, project, (*inheriting, file.path)) if "like" in top else None
    own = dict(_values(top["values"], "", base)) if "values" in top else {}
    values = {**(base.values if base else {}), **own}
    required = frozenset(item.text("a check's name") for item in top["required"].list()) if "required" in top else None
    return Profile(
        name=top["name"].text("the profile's name"),
        values={key: expected for key, expected in values.items() if expected is not None},
        required=required if required is not None else base.required if base else frozenset(),
        match=_match(top["match"]) if "match" in top else None,
        about=top["about"].text() if "about" in top else "",
    )


def _inherited(like: YamlNode, file: ContentFile, project: Path | None, inheriting: tuple[Path, ...]) -> Profile:
    """Return the profile that ``like`` names, each value marked; the match and the description are not inherited.

    In a project, a profile that is like one of its own name is like the built-in one that it hides.
    """
    name = like.text("the name of a profile")
    files = {**listing(FOLDER, ".yml", project), **(listing(FOLDER, ".yml") if name == file.name else {})}
    if name not in files:
        raise like.fail(f'no profile named "{name}"{did_you_mean(name, files) or "; gpuops profiles list"}')
    if files[name].path in inheriting:
        circle = " -> ".join([*(path.stem for path in inheriting), name])
        raise like.fail(f"profiles inherit from each other in a circle: {circle}")
    base = _read(files[name], project, inheriting)
    marked = {k: replace(e, inherited_from=e.inherited_from or base.name) for k, e in base.values.items()}
    return replace(base, values=marked)


def _match(node: YamlNode) -> Match:
    entries = node.only(("gpu_name", "gpu_count"), "in match")
    if "gpu_name" not in entries:
        raise node.fail("match needs gpu_name")
    named = entries["gpu_name"]
    names = tuple(item.text() for item in ([named] if named.items is None else named.items))
    return Match(names, *(_counts(entries["gpu_count"]) if "gpu_count" in entries else ()))


def _counts(node: YamlNode) -> tuple[int, int]:
    """Return the smallest and the largest count in ``8`` or ``2-8``."""
    span = re.fullmatch(r"([1-9]\d{0,3})-([1-9]\d{0,3})", node.text("a number of GPUs"))
    if span is None:
        count = node.integer(low=1)
        return count, count
    if int(span[1]) >= int(span[2]):
        raise node.fail(f"the range {span[0]} is empty or of one count; write 4 or 2-8")
    return int(span[1]), int(span[2])


def _values(node: YamlNode, prefix: str, base: Profile | None) -> Iterator[tuple[str, Expected | None]]:
    """Yield ``gpu: {count: {value: 8, source: …, grade: …}}`` as ``gpu.count``; ``nic: ~`` drops what is inherited."""
    for key, child in node.map("a map of values").items():
        if child.empty and base is not None:
            yield from ((old, None) for old in base.values if f"{old}.".startswith(f"{prefix}{key}."))
            continue
        if "value" not in child.map(f"{prefix}{key}: value, source and grade"):
            yield from _values(child, f"{prefix}{key}.", base)
            continue
        entries = child.only(("value", "source", "grade"), f"in {prefix}{key}")
        missing = {"value", "source", "grade"} - set(entries)
        if missing:
            raise child.fail(f"{prefix}{key} needs {', '.join(sorted(missing))}")
        value = _value(entries["value"], prefix + key)
        grade = entries["grade"].text()
        if grade not in GRADES:
            raise entries["grade"].fail(f'unknown grade "{grade}"; choose one of {", ".join(GRADES)}')
        yield prefix + key, Expected(value, entries["source"].text(), grade, where=node.keys[key])


def _value(node: YamlNode, key: str) -> Any:
    """Return a value of the type that what reads ``key`` expects; keys of a project's own checks take any."""
    if node.empty:
        raise node.fail(f"{key} has no value")
    is_rate = re.fullmatch(_RATES, key)
    return _rates(node, key) if is_rate else _READERS[key](node, key) if key in _READERS else node.plain()


def _boolean(node: YamlNode, key: str) -> bool:
    return node.boolean(f"{key}: true or false")


def _count(node: YamlNode, key: str) -> int:
    return node.integer(f"{key}: a whole number", low=0)


def _number(node: YamlNode, key: str) -> float:
    """Return a number that is not negative, of the type that it is written as; a machine without NVLink has 0 GB/s."""
    number = node.number(f"{key}: a number")
    if number < 0:
        raise node.fail(f"{key} must be 0 or more, found {node.kind}")
    return int(number) if node.text().isdecimal() else number


def _words(node: YamlNode, key: str) -> str | list[str]:
    if node.items is None:
        return node.text(f"text or a list of it for {key}")
    return [item.text(f"text in {key}") for item in node.items]


def _rates(node: YamlNode, key: str) -> Any:
    """Return one rate, or the rate by payload or number of nodes."""
    if node.entries is None:
        return _number(node, key)
    for at in node.entries:
        if not re.fullmatch(r"\d+(\.\d+)?", at):
            raise DocumentError(node.keys[at], f'{key}: expected a number before the rate, found "{at}"')
    return {at: _number(rate, f"{key}, {at}") for at, rate in node.entries.items()}


_RATES = r"allreduce\.((ring|nvls|measured)\.[1-9]\d*|channel\.(tree|nvls))"
"""Keys of the bandwidth model, in GB/s."""
_READERS: Mapping[str, Callable[[YamlNode, str], Any]] = {
    **dict.fromkeys(("gpu.ecc", "gpu.persistence", "gpu.row_remap", "nvswitch"), _boolean),
    **dict.fromkeys(("gpu.count", "nic.count", "nvme.count", "nvswitches.count"), _count),
    **dict.fromkeys(("nvlink.links", "nvlink.domain_gpus", "pcie.generation", "pcie.width"), _count),
    **dict.fromkeys(("nvlink.gb_per_s", "nic.rate_gbps", "power.limit_watts", "pcie.host_gb_per_s"), _number),
    **dict.fromkeys(("topology.gpu_pairs", "nic.rails", "nic.link_layer"), _words),
    "allreduce.sharp": lambda node, _: node.plain(),
}


def check_keys(profiles: Iterable[Profile], of_checks: Callable[[], Iterable[str]]) -> None:
    """Raise `DocumentError` at a key that nothing reads: neither gpuops, nor a check, whose keys are ``of_checks``.

    A key in a group of its own (``fan.count``) may be for a project's tests, and is accepted.
    """
    unread = [(key, e.where) for p in profiles for key, e in p.values.items() if e.where and not _is_read(key)]
    known = {*_READERS, *of_checks()} if unread else set()
    for key, where in unread:
        if key not in known and where is not None and _is_builtin_group(key.split(".")[0]):
            hint = did_you_mean(key, known | _rate_keys(key)) or "; gpuops profiles show PROFILE lists keys"
            raise DocumentError(where, f'unknown key "{key}"{hint}')


def _is_builtin_group(group: str) -> bool:
    """Return True for a group that gpuops reads, or a slip of the pen in one: ``gpus``, but not ``cpu``."""
    return bool(difflib.get_close_matches(group, {key.split(".")[0] for key in _READERS}, 1, cutoff=0.8))


def _rate_keys(key: str) -> set[str]:
    """Return the keys of the bandwidth model that ``key`` may be meant as."""
    count = key.rpartition(".")[2]
    return {f"allreduce.{family}.{count}" for family in ("ring", "nvls", "measured")} | {
        f"allreduce.channel.{algorithm}" for algorithm in ("tree", "nvls")
    }


def _is_read(key: str) -> bool:
    return key in _READERS or bool(re.fullmatch(_RATES, key))
