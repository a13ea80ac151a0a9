"""Made-up nodes: each a map of settings, a boot and some units, that remembers what was done to it."""

import itertools
import threading
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from invoke import Result, UnexpectedExit

from gpuops.document import Where
from gpuops.errors import ConnectError, LostError
from gpuops.inventory import Host
from gpuops.playbook import locking, rebooting, systemd_unit
from gpuops.playbook.loading import load_playbook
from gpuops.playbook.provisioning import PlaybookRun, RunOptions, StepSelection, assign
from gpuops.playbook.task import TaskRegistry
from gpuops.shell import Command, Completed

TASKS = {
    "put": '''
"""A setting of a made-up node."""
from dataclasses import dataclass
from gpuops import Change, Command, Failed, Files, NeedsOperator, Plan, read_files, task

@dataclass(frozen=True)
class Params:
    key: str
    value: str
    detach: bool = False
    after: str = ""

@task
def put(params: Params) -> Plan:
    """The setting has its value; ``after`` names another setting that must be there first."""
    from gpuops import Later
    found = read_files((yield Files((f"/{params.key}", f"/{params.after}"))).out)
    if params.after and f"/{params.after}" not in found:
        yield Later(f"{params.after} is not there yet")
    elif found.get(f"/{params.key}") != params.value:
        command = Command(("put", params.key, params.value), become="always")
        yield Change(f"{params.key} = {params.value}", command, before=found.get(f"/{params.key}", ""),
                     after=params.value, detach=params.detach)
    return found.get(f"/{params.key}")
''',
    "both": '''
"""Two settings, the second of which can only be told after the first."""
from dataclasses import dataclass
from gpuops import Plan, task, use

@dataclass(frozen=True)
class Params:
    first: str
    second: str

@task
def both(params: Params) -> Plan:
    """One and then the other."""
    yield from use("put", key=params.first, value="1")
    yield from use("put", key=params.second, value="1", after=params.first)
''',
    "act": '''
"""Something that is done."""
from dataclasses import dataclass
from typing import Literal
from gpuops import Change, Command, Plan, task

@dataclass(frozen=True)
class Params:
    what: str
    kind: Literal["act", "restart", "rebuild", "state"] = "act"

@task
def act(params: Params) -> Plan:
    """Once a run."""
    yield Change(params.what, Command(("act", params.what), become="always"), kind=params.kind)
''',
    "look": '''
"""A setting, as a value."""
from dataclasses import dataclass
from gpuops import Files, Plan, read_files, task

@dataclass(frozen=True)
class Params:
    key: str

@task
def look(params: Params) -> Plan:
    """What the setting is."""
    found = read_files((yield Files((f"/{params.key}",))).out)
    return {"text": found.get(f"/{params.key}", "")}
''',
    "stop": '''
"""An end."""
from dataclasses import dataclass
from gpuops import Failed, NeedsOperator, Plan, task

@dataclass(frozen=True)
class Params:
    operator: str = ""
    failed: str = ""
    bug: bool = False

@task
def stop(params: Params) -> Plan:
    """Goes no further."""
    if params.bug:
        raise KeyError("a bug of the task")
    if params.failed:
        yield Failed(params.failed)
    if params.operator:
        yield NeedsOperator(params.operator)
''',
    "call": '''
"""What Fabric's users write."""

def call(c, words: str, bug: bool = False):
    if bug:
        raise KeyError("a bug of the function")
    c.run(words)
''',
    "reboot": '''
"""A reboot."""
from dataclasses import dataclass
from gpuops import Change, Plan, task

@dataclass(frozen=True)
class Params:
    reason: str

@task
def reboot(params: Params) -> Plan:
    """Once a run."""
    yield Change("reboot", reboot=params.reason, kind="rebuild")
''',
}


@dataclass
class MadeUpNode:
    """``lose``: the connection breaks before or after the next changing command has its effect.

    ``unit_story``: what the next questions about a unit meet before it has ended: that it runs, or an error.
    """

    name: str
    settings: dict = field(default_factory=dict)
    done: list = field(default_factory=list)
    asked: list = field(default_factory=list)
    refuse: set = field(default_factory=set)
    forget: set = field(default_factory=set)
    lose: str = ""
    boots: int = 0
    down: int = 0
    stays_away: bool = False
    units: dict = field(default_factory=dict)
    unit_story: list = field(default_factory=list)
    system: str = "running"
    lock: str = ""
    lock_file: str = "owner"
    busy: str = ""
    closed: int = 0
    unreachable: bool = False

    def batch(self, questions):
        if self.unreachable or (self.stays_away and self.down):
            raise ConnectError(self.name, "nobody answers")
        if self.down:
            self.down -= 1
            raise ConnectError(self.name, "it is rebooting")
        return [Completed(self.name, q, *self.answer(q)) for q in questions]

    def run(self, command):
        return self.batch([command])[0]

    @property
    def connection(self):
        """A Fabric connection, as far as a function needs one here."""

        def run(line):
            exit_, *said = self.do(line.split())
            if exit_:
                raise UnexpectedExit(Result(command=line, exited=exit_, stdout=said[0], stderr=said[1]))

        return SimpleNamespace(run=run)

    def close(self):
        self.closed += 1

    def answer(self, question):
        if not isinstance(question, Command):
            files = {f"/{k}": v for k, v in self.settings.items()}
            files["/proc/sys/kernel/random/boot_id"] = f"boot-{self.boots}\n"
            files["/proc/sys/kernel/osrelease"] = "6.8.0-45-generic\n"
            return 0, "".join(f"{g}\0{files[g]}\0" for g in question.globs if g in files)
        return getattr(self, "_" + question.words[0].replace("-", "_"))(question)

    def _sh(self, command):
        script, words = command.words[2], command.words[4:]
        if script == locking._TAKE:
            return self._locked(command.stdin, *words[1:])
        if script == locking._RELEASE:
            self.lock = "" if words[1] == self.lock_file else self.lock
            return (0,)
        if script == systemd_unit._START:
            self.units[f"{words[1]}.service"] = self.do(words[3:])
            return (0,)
        assert "systemctl stop" in script, script
        self.units.pop(words[0])
        return (0,)

    def _locked(self, owner, file, instead):
        if self.lock and self.lock_file != instead:
            return 75, f"{self.lock_file}\n{self.lock}"
        self.lock, self.lock_file = owner, file
        return (0,)

    def do(self, words):
        """A change: refused, lost on its way there or back, forgotten, or made."""
        assert self.lock, f"{words} without a lock"
        lost, self.lose = self.lose, ""
        if lost == "before":
            raise LostError(self.name, "the connection broke")
        if " ".join(words) in self.refuse:
            return 1, "", "refused"
        self.done.append(" ".join(words))
        if words[0] == "put" and words[1] not in self.forget:
            self.settings[words[1]] = words[2]
        if lost == "after":
            raise LostError(self.name, "the connection broke")
        return (0,)

    def _put(self, command):
        return self.do(command.words)

    _act = _put

    def _systemd_run(self, command):
        assert command == rebooting._REBOOT
        self.done.append("reboot")
        self.boots, self.down, self.lock = self.boots + 1, 2, ""
        return (0,)

    def _systemctl(self, command):
        if command.words[1] == "show":
            ended = self.units.get(command.words[-1])
            if ended and self.unit_story:
                event = self.unit_story.pop(0)
                if isinstance(event, Exception):
                    raise event
                return 0, f"LoadState=loaded\n{event}\n"
            if ended is None:
                return 0, "LoadState=not-found\nActiveState=inactive\n"
            return 0, f"LoadState=loaded\nActiveState=active\nSubState=exited\nExecMainStatus={ended[0]}\n"
        if command.words[1] == "list-units":
            return 0, "".join(f"{name} loaded active running it\n" for name in self.units)
        if command.words[1] == "is-system-running":
            return 0, f"{self.system}\n"
        return 0, "nvidia-dcgm.service loaded failed failed DCGM\n" if self.system == "degraded" else ""

    def _tail(self, _command):
        return 0, "the last line of its log\n"


class World:
    """Made-up nodes and a project with made-up tasks, and a way to run playbooks over them."""

    def __init__(self, folder, names=("n1",)):
        self.folder = folder
        self.nodes = {name: MadeUpNode(name) for name in names}
        self.hosts = {name: Host(name, name, Where("inventory.yml", 1, 1), groups=("all",)) for name in names}
        self.slept = []
        tasks = folder / "playbooks" / "tasks"
        tasks.mkdir(parents=True)
        for path in (folder, tasks.parent, tasks):
            path.chmod(0o755)
        for name, text in TASKS.items():
            (tasks / f"{name}.py").write_text(text)
        self.library = TaskRegistry(folder)
        self.order = RunOptions("1.0", folder / "runs", "ops")
        self.last = None

    def write(self, text, name="p.yml"):
        path = self.folder / name
        path.write_text(text)
        return path

    def prepare(self, text=None, hosts=None, *, selection=None, **order):
        selection = selection or StepSelection()
        if text is not None:
            self.write(text)
        playbook = load_playbook(str(self.folder / "p.yml"), self.library, self.folder)
        chosen = hosts or list(self.hosts.values())
        assignments = assign(playbook, lambda _pattern: chosen, selection, order.get("environment", {}))
        made = PlaybookRun(
            playbook, assignments, selection, RunOptions(**{**vars(self.order), **order}), library=self.library,
            open_transport=lambda host: self.nodes[host.name], busy=lambda host, _ask: self.nodes[host.name].busy,
        )  # fmt: skip
        for session in made._sessions.values():
            session.sleep = self.slept.append
            ticks = itertools.count(0.0, 0.001)
            session.clock = lambda ticks=ticks, session=session: next(ticks) + sum(self.slept)
        return made

    def run(self, text=None, hosts=None, **order):
        self.last = self.prepare(text, hosts, **order)
        return self.last.run()

    @property
    def node(self):
        return self.nodes["n1"]

    def statuses(self, record):
        return [(r.node, r.name, r.status) if len(self.nodes) > 1 else (r.name, r.status) for r in record.results]


@pytest.fixture
def world(tmp_path):
    """One made-up node, n1."""
    return World(tmp_path)


@pytest.fixture
def cluster(tmp_path):
    """Makes as many made-up nodes as are named."""
    return lambda *names: World(tmp_path, names)


@pytest.fixture(autouse=True)
def _no_thread_is_left():
    before = set(threading.enumerate())  # a timer of another file's test may still run
    yield
    assert not [thread for thread in threading.enumerate() if not thread.daemon and thread not in before]


@pytest.fixture(scope="session")
def steps():
    """A playbook's text of one play for all nodes, from the text of its steps and handlers."""

    def text(*lines, handlers=()):
        play = "- hosts: all\n  tasks:\n" + "".join(f"    - {line}\n" for line in lines)
        return play + ("  handlers:\n" + "".join(f"    - {line}\n" for line in handlers) if handlers else "")

    return text
