"""Profiles: the expected properties of a type of machine, every number with its source and grade."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuops.content import find, listing
from gpuops.document import YamlNode
from gpuops.document import load as load_document

FOLDER = "checks/profiles"
GRADES = ("measured-here", "measured-published", "vendor-floor", "datasheet", "guess")
"""From best to worst. A value with the grade ``guess`` can warn, but never fail."""


@dataclass(frozen=True)
class Expected:
    """One expected value, its source, and how reliable it is (one of `GRADES`)."""

    value: Any
    source: str
    grade: str


@dataclass(frozen=True)
class Match:
    """Rule that detects machines of a profile: the GPU's name, and the number of GPUs.

    The name may stand after the maker's, and before a dash: "A100-SXM4" is "NVIDIA A100-SXM4-40GB", but "H200" is not
    "NVIDIA H200 NVL", which is another board.
    """

    gpu_name: str
    gpu_count: int

    def fits(self, gpu_name: str, gpu_count: int) -> bool:
        """Return True if a machine with these GPUs has this profile."""
        return self.names(gpu_name) and self.gpu_count == gpu_count

    def names(self, gpu_name: str) -> bool:
        """Return True if this is the GPU of the profile."""
        return re.search(rf"(?<!\w){re.escape(self.gpu_name)}(?=-|$)", gpu_name, re.IGNORECASE) is not None


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
    required=frozenset({"gpu-lost"}),  # a machine for which not even this is known is not healthy
    about="no expected values; only checks that need none are run",
)


def load(name: str, project: Path | None = None) -> Profile:
    """Load the profile called ``name``, from the project's ``checks/profiles`` or the built-in ones."""
    return _read(find(FOLDER, name, ".yml", project).path)


def known(project: Path | None = None) -> list[Profile]:
    """Return all profiles; a project's own profile hides the built-in one of the same name."""
    return [_read(file.path) for file in listing(FOLDER, ".yml", project).values()]


def detect(gpu_name: str, gpu_count: int, profiles: Sequence[Profile], *, has_nvswitch: bool = False) -> Profile:
    """Return the profile whose ``match`` fits this machine, or `NO_PROFILE`.

    A machine that lost GPUs still has its profile, so that the loss is judged: a board with NVLink is known by its
    NVSwitches, or because more than half of its GPUs are there. Clouds sell 1, 2 and 4 GPUs of a board of 8, not more.
    """
    exact = next((p for p in profiles if p.match and p.match.fits(gpu_name, gpu_count)), None)
    if exact is not None:
        return exact
    named = [(p, p.match) for p in profiles if p.match and p.match.names(gpu_name) and gpu_count < p.match.gpu_count]
    return next(
        (
            profile
            for profile, match in named
            if (profile.get("nvlink.links") and 2 * gpu_count > match.gpu_count)
            or (profile.get("nvswitch") and has_nvswitch)
        ),
        NO_PROFILE,
    )


def _read(path: Path) -> Profile:
    root = load_document(path)
    top = root.only(("name", "about", "match", "required", "values"), "in a profile")
    if "name" not in top or "values" not in top:
        raise root.fail("a profile needs a name and values")
    required = frozenset(item.text("a check's name") for item in top["required"].list()) if "required" in top else ()
    return Profile(
        name=top["name"].text("the profile's name"),
        values=dict(_values(top["values"], "")),
        required=frozenset(required),
        match=_match(top["match"]) if "match" in top else None,
        about=top["about"].text() if "about" in top else "",
    )


def _match(node: YamlNode) -> Match:
    entries = node.only(("gpu_name", "gpu_count"), "in match")
    if len(entries) != 2:
        raise node.fail("match needs gpu_name and gpu_count")
    return Match(entries["gpu_name"].text(), entries["gpu_count"].integer(low=1))


def _values(node: YamlNode, prefix: str) -> Iterator[tuple[str, Expected]]:
    """Yield ``gpu: {count: {value: 8, source: …, grade: …}}`` as ``gpu.count``."""
    for key, child in node.map("a map of values").items():
        if "value" not in child.map(f"{prefix}{key}: value, source and grade"):
            yield from _values(child, f"{prefix}{key}.")
            continue
        entries = child.only(("value", "source", "grade"), f"in {prefix}{key}")
        missing = {"value", "source", "grade"} - set(entries)
        if missing:
            raise child.fail(f"{prefix}{key} needs {', '.join(sorted(missing))}")
        if entries["value"].empty:
            raise entries["value"].fail(f"{prefix}{key} has no value")
        grade = entries["grade"].text()
        if grade not in GRADES:
            raise entries["grade"].fail(f'unknown grade "{grade}"; choose one of {", ".join(GRADES)}')
        yield prefix + key, Expected(entries["value"].plain(), entries["source"].text(), grade)
