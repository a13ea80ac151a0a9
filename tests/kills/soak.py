"""Repeat the common commands, and watch what grows: ``soak.py [--minutes N]``.

Half of the time goes to commands as processes, half to the Python API in this one process: open a cluster, validate,
close it. Tracebacks, other exit codes than the first time, and processes or temporary files that stay are faults. So
is growth of this process's descriptors, sockets, threads and memory, of the lab's server, and of a run in the store.
"""

import argparse
import contextlib
import gc
import os
import pathlib
import statistics
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
_WARM_UP = 5
_MOST_GROWTH = 0.10
"""Growth of memory between the second and the last fifth that counts as none: allocators keep some."""
COMMANDS = (
    ("ping",),
    ("facts", "--save", "saved"),
    ("validate", "-o", "report.json"),
    ("validate", "--from", "saved"),
    ("run", "all", "--", "uname -r"),
    ("provision", "p.yml"),
    ("provision", "p.yml", "--check"),
    ("place", "--layout", "dp=all", "--from", "saved"),
    ("state", "list"),
    ("drain", "gpu01", "--reason", "soak"),
    ("admit", "gpu01", "--force"),
    ("history",),
    ("journal", "verify"),
)


def main():
    """Soak for as long as asked, print what was measured, and return 1 if anything is wrong."""
    from tests.kills.world import World

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0, metavar="N", help="how long (60)")
    ends = time.monotonic() + parser.parse_args().minutes * 60
    with World() as world:
        soak = Soak(world)
        while time.monotonic() < ends or len(soak.samples) < 2 * _WARM_UP:
            soak.round()
        wrong = [*soak.wrong, *soak.growth()]
    sys.stdout.write("".join(f"FAILED {text}\n" for text in wrong) or "nothing grows, and nothing is left\n")
    return 1 if wrong else 0


class Soak:
    """The rounds so far: ``samples`` has one dictionary of figures for each, ``wrong`` what went wrong in them."""

    def __init__(self, world):
        self.world, self.samples, self.wrong, self.codes, self.commands = world, [], [], {}, 0
        self.runs = 0
        tempfile.tempdir = os.environ["TMPDIR"] = str(world.temporary)

    def round(self):
        """Run one command, open and validate for about as long, and take the figures."""
        words = COMMANDS[self.commands % len(COMMANDS)]
        began = time.monotonic()
        code, told = self.world.gpuops(*words)
        self.commands += 1
        if code != self.codes.setdefault(words, code) or "Traceback" in told or code in (2, 70):
            self.wrong.append(f"{' '.join(words)} ends with {code}, at first {self.codes[words]}: {told[-500:]}")
        self._validate_for(time.monotonic() - began)
        self.samples.append(self._figures())
        if self.commands % len(COMMANDS) == 0:
            self.wrong += [f"round {self.commands}: {text}" for text in self.world.left()]

    def _validate_for(self, seconds):
        import gpuops

        ends = time.monotonic() + seconds
        while True:
            with gpuops.Cluster.open(self.world.project / "inventory.yml", project=self.world.project) as cluster:
                conclusion = cluster.validate().conclusion()
            self.runs += 1
            if conclusion != "ok":
                self.wrong.append(f"validation {self.runs} is {conclusion}")
            if time.monotonic() > ends:
                return

    def _figures(self):
        gc.collect()
        own, server = _status("self"), _status(self.world.server)
        store = self.world.project / ".gpuops" / "state.db"
        links = list(_open_files())
        return {
            "memory KiB": own,
            "server KiB": server,
            "descriptors": len(links),
            "sockets": sum(link.startswith("socket:") for link in links),
            "threads": threading.active_count(),
            "temporary files": len(self._temporary()),
            "store bytes": store.stat().st_size if store.exists() else 0,
            "runs": self.runs + self.commands,
        }

    def _temporary(self):
        """The temporary files, and the half-written ones of the project."""
        return [*self.world.temporary.iterdir(), *self.world.project.rglob("*.part")]

    def growth(self):
        """Print the figures of the second and the last fifth, and yield what grows that should not."""
        samples = self.samples[_WARM_UP:]
        fifth = max(1, len(samples) // 5)
        sys.stdout.write(f"{self.commands} commands, {self.runs} validations in one process\n")
        for words, code in self.codes.items():
            if code:
                sys.stdout.write(f"{' '.join(words)} ends with {code} each time\n")
        for key in samples[0]:
            before, after = (statistics.median(each[key] for each in part)
                             for part in (samples[fifth : 2 * fifth] or samples, samples[-fifth:]))  # fmt: skip
            sys.stdout.write(f"{key:<16} {before:>12.0f} {after:>12.0f}\n")
            if key.endswith("KiB") and after > before * (1 + _MOST_GROWTH):
                yield f"{key} grows from {before:.0f} to {after:.0f}"
            if key in ("descriptors", "sockets", "threads", "temporary files") and after > before:
                yield f"{key} grow from {before:.0f} to {after:.0f}"
        first, last = samples[0], samples[-1]
        a_run = (last["store bytes"] - first["store bytes"]) / max(1, last["runs"] - first["runs"])
        sys.stdout.write(f"the store grows by {a_run:.0f} bytes a run\n")


def _open_files():
    """What each descriptor of this process leads to."""
    for link in pathlib.Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the one that lists them
            yield str(link.readlink())


def _status(pid):
    """Resident memory of a process in KiB."""
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


if __name__ == "__main__":
    sys.exit(main())
