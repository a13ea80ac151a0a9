"""A made-up node for the tests of playbooks' tasks: it says what a script tells, and notices what nobody scripted."""

import fnmatch
import grp
import os
import pathlib
import pwd
import subprocess

import pytest

from gpuops.playbook.parameters import as_params
from gpuops.playbook.planning import plan
from gpuops.playbook.task import Machine, TaskRegistry
from gpuops.shell import Command, Completed

ROOT = pathlib.Path(__file__).parents[3]


@pytest.fixture(scope="session")
def library():
    """The tasks of this checkout."""
    return TaskRegistry(ROOT)


class ScriptedNode:
    """Answers a command by the longest beginning of its words that is scripted, a file by its path.

    A value is a text (exit 0), an exit code, or a tuple of exit code, stdout and stderr. The tasks file and read see
    the same files, as root's and of mode 644; one that is not scripted is not there.
    """

    ABSENT = (0, "", "stat: cannot statx 'x': No such file or directory")

    def __init__(self, script):
        self.script = script
        self.asked = []

    def batch(self, questions):
        self.asked += map(str, questions)
        return [Completed("n1", q, *self.answer(q)) for q in questions]

    def answer(self, question):
        if not isinstance(question, Command):
            return 0, "".join(
                f"{p}\0{self.script[p]}\0" for g in question.globs for p in fnmatch.filter(self.script, g)
            )
        line = " ".join(question.words)
        starts = [start for start in self.script if line.startswith(start)]
        look = line.startswith("sh -c stat -c %a:%U:%G")
        if look and question.words[4] in self.script:
            return 0, f"644:root:root:0:0:regular file\n{self.script[question.words[4]]}"
        if look and not starts:
            return self.ABSENT
        assert starts, f"the script has no answer to: {question}"
        said = self.script[max(starts, key=len)]
        return (0, said) if isinstance(said, str) else (said,) if isinstance(said, int) else said


@pytest.fixture(scope="session")
def planned(library):
    """What a task plans on a node that answers as its script says: ``planned("sysctl", script, key=…, value=…)``."""

    def planned(task_name, script, machine=None, /, **params):
        task = library[task_name]
        return plan(task, as_params(task, params), machine or Machine("n1"), ScriptedNode(script).batch, library)

    return planned


class ThisMachine:
    """Runs commands as the tests' own user, whoever they ask to become."""

    def batch(self, questions):
        return [self.run(q) for q in questions]

    def run(self, command):
        done = subprocess.run(command.words, input=command.stdin, capture_output=True, text=True, check=False)
        return Completed("here", command, done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="session")
def me():
    """The tests' own user, as owner and group of files."""
    return {"owner": pwd.getpwuid(os.geteuid()).pw_name, "group": grp.getgrgid(os.getegid()).gr_name}


@pytest.fixture
def here(library):
    """A task on this very machine: ``plan`` and ``apply`` (which gives what a second look would still change)."""

    class Here:
        def plan(self, name, /, **params):
            task = library[name]
            return plan(task, as_params(task, params), Machine("here"), ThisMachine().batch, library)

        def apply(self, name, /, **params):
            found = self.plan(name, **params)
            assert found.stop is None
            for change in found.changes:
                done = ThisMachine().run(change.command)
                assert done.exit == 0, done
            return self.plan(name, **params)

    return Here()
