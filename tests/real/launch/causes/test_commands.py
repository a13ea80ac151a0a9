"""Causes in commands that people type: named, mended as preflight prints it, and the command starts its job."""

import fnmatch
import re

import pytest
from tests.real.launch.causes.conftest import ADDRESSES, JOB
from tests.real.launch.causes.planted import chosen
from tests.real.launch.causes.typed import TYPED

PROGRAM = "#!/bin/sh\nexec hostname\n"


class Typed:
    """A command line, which `start` runs as its launcher is meant to be: torchrun on every host, mpirun once."""

    def __init__(self, job, words):
        self.job, self.hosts, self.words = job, job.hosts, words

    def preflight(self):
        return self.hosts.gpuops(f"preflight -i {self.hosts.inventory} --json -- {self.words}")

    def start(self):
        """What the command prints."""
        if "torchrun" not in self.words:
            return self.hosts.run(self.words)
        each = " ".join(f"(ssh {host} 'cd {JOB} && {self.words}' || echo failed) &" for host in ADDRESSES)
        return self.hosts.run(f"{each} wait")

    def carry_out(self, cause):
        fix = cause["fix"]
        if match := re.fullmatch(r"ssh-copy-id (n\d)   on this machine", fix):  # by the other key, as by a password
            self.hosts.run(f"ssh-copy-id -f -o IdentityFile={self.hosts.state}/login {match[1]}")
        elif match := re.fullmatch(r"ssh (n\d) true   on this machine, and compare and accept its host key", fix):
            self.hosts.run(f"ssh -o StrictHostKeyChecking=accept-new {match[1]} true")
        elif match := re.fullmatch(r"remove (n\d) from the command's hosts, or add it to the inventory", fix):
            self.words = self.words.replace(f",{match[1]}", "")
        elif fix.startswith("--"):
            names = {word.partition("=")[0] for word in fix.split()}
            words = [word for word in self.words.split() if word.partition("=")[0] not in names]
            self.words = " ".join(words).replace("torchrun", f"torchrun {fix}")
        else:
            self.job.carry_out(cause)


@pytest.fixture
def typed(job, need):
    """The job's files on the hosts, with a program that needs no torch."""
    need("mpirun")

    def make(words):
        job.render()
        job.hosts.run(f"printf '{PROGRAM.encode('unicode_escape').decode()}' >{JOB}/program && chmod +x {JOB}/program")
        job.hosts.copy(f"{JOB}/program")
        return Typed(job, words)

    return make


@pytest.mark.parametrize("planted", chosen(TYPED), ids=lambda planted: planted.about.replace(" ", "-"))
def test_cause_is_named_and_after_its_fix_the_job_starts(job, typed, planted):
    command = typed(planted.words)
    try:
        job.run_lines(planted.plant)
        code, document = command.preflight()
        first, *others = document["causes"]
        assert (code, first["test"], ",".join(first["nodes"])) == (planted.code, planted.test, planted.nodes), first
        assert fnmatch.fnmatchcase(first["why"], planted.why), first["why"]
        assert first["fix"] == planted.fix
        command.carry_out(first)
        code, document = command.preflight()
        assert (code, document["causes"]) == (0, []), (document["causes"], others)
        printed = command.start()
        expected = "sum 3 of 3" if "torchrun" in planted.words else "\n".join(ADDRESSES)
        assert expected in "\n".join(sorted(set(printed.splitlines()))), printed
    finally:
        job.run_lines(planted.back)
