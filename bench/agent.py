"""Measure the CPU time that full facts cost a node: the agent on this machine and all that it starts.

    python bench/agent.py

The agent answers the questions of all cheap probes, over a pipe in place of SSH. What it asks a missing program costs
little, so a GPU node takes longer. The fastest of several rounds counts, because other programs only make one slower.
"""

import resource

from gpuops import facts
from gpuops.catalogue import Catalogue
from gpuops.document import Where
from gpuops.inventory import Host
from gpuops.shell import Command, Files
from gpuops.transport.local import open_local

ROUNDS = 15


def cpu_ms(questions):
    """Return the CPU time in ms of one batch, from the start of the agent to its end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    transport = open_local(Host("localhost", "localhost", Where("bench")))
    transport.batch(questions)
    transport.close()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def main():
    probes = [probe for probe in Catalogue().probes().values() if probe.cost == "cheap"]
    questions = facts.questions(probes)
    kinds = {"all": object, "files": Files, "commands": Command}
    for name, kind in kinds.items():
        asked = [question for question in questions if isinstance(question, kind)]
        fastest = min(cpu_ms(asked) for _ in range(ROUNDS))
        print(f"{name:9} {len(asked):3} questions  {fastest:6.1f} ms")


if __name__ == "__main__":
    main()
