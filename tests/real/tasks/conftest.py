"""A machine like this one, of which nothing stays: playbooks' tasks run there with its own programs."""

import os
import pathlib
import subprocess

import pytest

from gpuops.playbook.parameters import as_params
from gpuops.playbook.planning import plan
from gpuops.playbook.task import Machine, TaskRegistry
from gpuops.shell import Command, Completed

ROOT = pathlib.Path(__file__).parents[3]
# An overlay over the whole file system, in namespaces of its own: what is written there, mounted, or called by another
# name is gone with the last process in it.
ENTER = """\
set -e
mount --make-rprivate /; mount -t tmpfs none "$1"; cd "$1"; mkdir upper work root
mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root
for place in proc dev sys; do mount --rbind /$place root/$place; done
mount -t tmpfs none root/run; mount -t tmpfs none root/tmp
echo ready; exec sleep infinity
"""
READ_FILES = """\
for glob in "$@"; do for path in $glob; do
    [ -f "$path" ] && [ -r "$path" ] && { printf '%s\\0' "$path"; cat "$path"; printf '\\0'; }
    [ -d "$path" ] && printf '%s\\0\\0' "$path"
done; done; exit 0
"""
SOMEBODY = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--")


class Jail:
    """A machine like this one, of which nothing stays."""

    def __init__(self, process, folder):
        self.enter = ["nsenter", "-t", str(process.pid), "-m", "-u", "--", "chroot", folder / "root"]
        self.library = TaskRegistry(ROOT)

    def run(self, *words, stdin=""):
        env = {"PATH": os.environ["PATH"] + ":/usr/sbin:/sbin", "LC_ALL": "C"}
        return subprocess.run([*self.enter, *words], input=stdin, capture_output=True, text=True, env=env, check=False)

    def batch(self, questions):
        return [self.answer(question) for question in questions]

    def answer(self, question):
        """As the agent on a node: what need not be root is asked as somebody else, and again where that is refused."""
        files = ("sh", "-c", READ_FILES, "sh", *getattr(question, "globs", ()))
        words, stdin = (question.words, question.stdin) if isinstance(question, Command) else (files, "")
        become = getattr(question, "become", "never")
        done = self.run(*([] if become == "always" else SOMEBODY), *words, stdin=stdin)
        if become == "if-refused" and done.returncode not in (0, 127):
            again = self.run(*words, stdin=stdin)
            done = again if again.returncode == 0 else done
        return Completed("jail", question, done.returncode, done.stdout, done.stderr)

    def look(self, name, params):
        task = self.library[name]
        return plan(task, as_params(task, params), Machine("gpu01"), self.batch, self.library)

    def plan(self, name, params):
        found = self.look(name, params)
        assert found.stop is None, found.stop
        return found

    def apply(self, name, /, **params):
        """Phases until nothing is left to do; what was done. A second time there is nothing."""
        made = []
        while changes := self.plan(name, params).changes:
            assert len(made) < 20, made
            for change in changes:
                done = self.answer(change.command)
                assert done.exit in change.exits, done
                made.append(change.what)
        assert made
        assert self.plan(name, params).later == []
        return made

    def read(self, path):
        return self.run("cat", path).stdout


@pytest.fixture
def jail(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can have a file system of its own")
    words = ["unshare", "--mount", "--uts", "sh", "-c", ENTER, "sh", tmp_path]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        yield Jail(process, tmp_path)
        process.kill()
