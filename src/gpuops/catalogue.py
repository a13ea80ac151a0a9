"""The content of gpuops and of a project, each kind by name.

A method imports what it needs: a list of checks must not load the template engine.
"""

from __future__ import annotations

import datetime as dt
import functools
import shlex
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from gpuops.content import ByName, ContentFile, listing
from gpuops.errors import InputError
from gpuops.probing import Probe, Unknown
from gpuops.shell import Command, Completed, Files, Question

if TYPE_CHECKING:
    from gpuops.judging import Check, Waiver
    from gpuops.playbook.play import Playbook
    from gpuops.playbook.task import TaskRegistry
    from gpuops.profile import Profile
    from gpuops.render import Target

T = TypeVar("T")
_BIN = ("/usr/bin", "/usr/sbin", "/bin", "/sbin")
_LONGEST_LIST = 40


class Kind(NamedTuple):
    """A kind of text: the program that prints it, and the function that reads it."""

    printed_by: str
    parse: Callable[[str], object]


def _once(make: Callable[[Catalogue], T]) -> Callable[[Catalogue], T]:
    """Return ``make`` as a method that computes its value once, whichever thread calls it first."""

    @functools.wraps(make)
    def kept(self: Catalogue) -> T:
        with self._lock:
            if make.__name__ not in self._kept:
                self._kept[make.__name__] = make(self)
            value: T = self._kept[make.__name__]
            return value

    return kept


class Catalogue:
    """The content of ``project`` and of gpuops; without a project, only built-in content.

    A project's own ``checks/``, ``checks/profiles/``, ``playbooks/`` and ``templates/`` hide built-in content of the
    same name; its ``waivers.yml`` and the ``shadow:`` of its gpuops.yml say which findings do not count. Each kind is
    read once, when it is first used; a changed file needs a new catalogue. Safe to use from several threads. Broken
    content and unknown names raise `gpuops.errors.ContentError`, for names with the nearest one.
    """

    def __init__(self, project: Path | None = None) -> None:
        self.project = project
        self._lock = threading.RLock()
        self._kept: dict[str, Any] = {}

    @_once
    def checks(self) -> Mapping[str, Check]:
        """Return every check; those that gpuops.yml puts in shadow are."""
        from gpuops.judging import discover, put_in_shadow
        from gpuops.project import load_project

        checks = put_in_shadow(discover(self.project), load_project(self.project).shadow)
        return ByName("check", checks, checks.__getitem__, "; to list them: gpuops checks list")

    @_once
    def waivers(self) -> tuple[Waiver, ...]:
        """Return every waiver of the project, also those that have expired; their hosts are patterns."""
        from gpuops.judging import load_waivers

        if self.project is None:
            return ()
        return load_waivers(self.project, self.checks(), dt.datetime.now(dt.timezone.utc).date())

    @_once
    def profiles(self) -> Mapping[str, Profile]:
        """Return every profile, by the name that hosts use."""
        from gpuops.profile import check_keys, known

        profiles = {profile.name: profile for profile in known(self.project)}
        check_keys(profiles.values(), lambda: [key for check in self.checks().values() for key in check.reads])
        return ByName("profile", profiles, profiles.__getitem__)

    @_once
    def playbooks(self) -> Mapping[str, Playbook]:
        """Return every playbook; each is read when it is first used."""
        from gpuops.playbook.loading import load_playbook

        files = listing("playbooks", ".yml", self.project)
        return ByName("playbook", files, lambda name: load_playbook(str(files[name].path), self.tasks(), self.project))

    @_once
    def fixes(self) -> Mapping[str, ContentFile]:
        """Return every playbook that fixes the finding of a check, by the name of the check."""
        return listing("playbooks/fixes", ".yml", self.project)

    @_once
    def tasks(self) -> TaskRegistry:
        """Return every task of playbooks; each is loaded when it is first used."""
        from gpuops.playbook.task import TaskRegistry

        return TaskRegistry(self.project)

    @_once
    def targets(self) -> Mapping[str, Target]:
        """Return every launch target."""
        from gpuops.render import targets

        return targets(self.project)

    @_once
    def probes(self) -> Mapping[str, Probe[Any]]:
        """Return every probe."""
        from gpuops.probes import every_probe

        probes = every_probe()
        return ByName("probe", probes, probes.__getitem__)

    @_once
    def kinds(self) -> Mapping[str, Kind]:
        """Return every kind of text that can be parsed: the answer of each probe, and other formats of its tools."""
        kinds = dict(sorted({**dict(_answers(self.probes())), **_texts()}.items()))
        return ByName("kind", kinds, kinds.__getitem__)

    def parse(self, kind: str, text: str) -> object | Unknown:
        """Return what gpuops reads in a text of ``kind`` (a name in `kinds`); `Unknown` if it cannot be read."""
        return self.kinds()[kind].parse(text)

    def sudoers(self, user: str) -> str:
        """Return a sudoers file that lets ``user`` (``%group``) run without a password what probes need as root."""
        lines = ["# Commands that gpuops runs as root; none of them changes the node."]
        for program, *arguments in self._root_commands():
            rest = " ".join(map(_escaped, arguments)) or '""'
            names = ", ".join(f"{folder}/{program} {rest}" for folder in _BIN)
            lines.append(f"{user} ALL=(root) NOPASSWD: {names}")
        return "\n".join([*lines, ""])

    def _root_commands(self) -> list[tuple[str, ...]]:
        from gpuops.judging import probes_of

        probes = [*self.probes().values(), *probes_of(self.checks().values())]
        questions = [p.question for p in probes if isinstance(p.question, Command) and p.question.become != "never"]
        return list(dict.fromkeys(question.root_words or question.words for question in questions))


def _escaped(argument: str) -> str:
    """Escape the characters that sudoers gives a meaning."""
    return "".join(f"\\{c}" if c in ",:=\\*?[]! " else c for c in argument)


def _answers(probes: Mapping[str, Probe[Any]]) -> Iterator[tuple[str, Kind]]:
    for name, probe in probes.items():
        yield name, Kind(_in_brief(probe.question), partial(_read_answer, probe))


def _in_brief(question: Question) -> str:
    """Return what prints an answer, in one short line."""
    if isinstance(question, Files):
        first, *more = question.globs
        return f"cat {first}" + (f" and {len(more)} more" if more else "")
    if isinstance(question, Command) and question.words[:2] == ("sh", "-c"):
        return shlex.join(question.root_words) or "a script, see docs/probes.md"
    return str(question)


def _read_answer(probe: Probe[Any], text: str) -> object:
    return probe.read(Completed("", probe.question, 0, text))


def _texts() -> dict[str, Kind]:
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
        "inventory": Kind("an inventory for gpuops or Ansible, YAML or INI", _inventory),
    }


def _inventory(text: str) -> dict[str, Any] | Unknown:
    """Parse YAML or INI, by its looks, without any ``group_vars/`` next to it; passwords are masked."""
    import json
    from tempfile import TemporaryDirectory

    from gpuops.inventory import Inventory

    with TemporaryDirectory() as folder:
        file = Path(folder, "inventory")
        file.write_text(text, encoding="utf-8", errors="replace")
        try:
            groups = json.loads(Inventory.load(file, allow_empty=True).to_ansible_json())
        except InputError as error:
            return Unknown(str(error).replace(f"{folder}/", ""))
    hostvars = groups.pop("_meta")["hostvars"]
    filled = {name: {key: _summary(part) for key, part in group.items() if part} for name, group in groups.items()}
    return {"groups": {name: group for name, group in sorted(filled.items()) if group}, "hostvars": hostvars}


def _summary(names: Any) -> Any:
    """Summarize a long list by its length and ends."""
    if isinstance(names, list) and len(names) > _LONGEST_LIST:
        return {"n": len(names), "first": names[0], "last": names[-1]}
    return names
