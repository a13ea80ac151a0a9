"""Facts of a lab host without SSH: its files and programs answer the probes in this process."""

import datetime as dt
import json
from fnmatch import fnmatchcase

from gpuops.facts import read
from gpuops.judging import discover, judge_node
from gpuops.lab import sandbox
from gpuops.lab.faults.catalogue import faulted
from gpuops.lab.shims.fakeroot import Tree
from gpuops.lab.tools.programs import PROGRAMS, run
from gpuops.lab.tools.redfish import resource
from gpuops.probes.host.kernel_log import kernel_log
from gpuops.probes.network.transceivers import transceivers
from gpuops.profile import load
from gpuops.shell import Completed, Files, Resources
from gpuops.transport.redfish_walk import read_paths

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)


class LabTree(Tree):
    """The files of a node, whose tokens stay as they are."""

    def __init__(self, node):
        self.tree = sandbox._layout(node)
        self.folders = {}

    def refresh(self):
        """Nothing changes here."""

    def answer(self, question):
        """What the agent would send."""
        paths = [path for glob in question.globs for path in self.expand(glob)]
        contents = ((path, self.content(path)) for path in paths)
        return "".join(f"{path}\0{text[: question.limit_bytes]}\0" for path, text in contents if text is not None)

    def expand(self, glob):
        paths = [""]
        for segment in glob.strip("/").split("/"):
            if "*" not in segment:
                paths = [f"{path}/{segment}" for path in paths]
                continue
            found = [(path, self.tree["folders"].get(self.followed(path or "/", follow=True), ())) for path in paths]
            paths = [f"{path}/{name}" for path, names in found for name in sorted(names) if fnmatchcase(name, segment)]
        return paths

    def content(self, path):
        at, plain = self.followed(path, follow=True), self.followed(path, follow=False)
        if at in self.tree["folders"]:
            return self.tree["links"].get(plain, "")
        return self.tree["files"].get(at)


def from_bmc(node, question, host="n1"):
    """What the BMC of a lab node answers over Redfish; it has none if the machine has none."""
    if node.bmc is None:
        return Completed(host, question, 127, err="bmc_address is not set")
    if node.bmc.refuses_login:
        return Completed(host, question, 1, err="it refused the login")
    return Completed(host, question, 0, json.dumps(read_paths(question.paths, lambda path: resource(node, path))))


def facts_of(node, probes, **answers):
    """The facts of a lab node; scripts of a shell answer only what ``answers`` has by probe name."""
    tree = LabTree(node)

    def answered(probe):
        question = probe.question
        if probe.name in answers:
            return Completed("n1", question, 0, answers[probe.name])
        if isinstance(question, Files):
            return Completed("n1", question, 0, tree.answer(question))
        if isinstance(question, Resources):
            return from_bmc(node, question)
        if question == transceivers.question:
            reports = (f"-- {nic.name}\n{run(node, 'mlxlink', ('-d', nic.name), root=True).out}" for nic in node.nics)
            return Completed("n1", question, 0, "".join(reports) + "-- end\n")
        words = ("dmesg",) if question == kernel_log.question else question.root_words or question.words
        if words[0] not in PROGRAMS:
            return Completed("n1", question, 127, "", f"{words[0]}: not found")
        told = run(node, words[0], words[1:], root=True)
        return Completed("n1", question, told.code, told.out, told.err)

    return read("n1", NOW, [answered(probe) for probe in probes], probes)


def judged(machine, *faults, profile=None, **answers):
    """Every verdict of node scope by check, on a lab machine with ``faults``."""
    checks = [c for c in discover().values() if c.scope != "group" and c.level != "burnin"]
    probes = list(dict.fromkeys(probe for c in checks for probe in c.needs))
    facts = facts_of(faulted(machine, faults), probes, **answers)
    return {v.check: v for v in judge_node(checks, facts, profile or load(machine))}


def findings(verdicts):
    """(check, part, severity) of every finding above info."""
    return [(v.check, f.part, f.severity) for v in verdicts.values() for f in v.findings if f.severity != "info"]
