"""Kill commands with -9, and see that one plain rerun ends where an undisturbed run does: ``kills.py [VERB]...``.

The client, a process on a host, or the server's side of a connection is killed: at every line of the journal, and at
random instants. Then the same command runs once more, or ``--resume`` continues it. Its end state must be that of an
undisturbed run; no lock needs a person; no file is half written; and no process, unit, lease or drain is left.
"""

import argparse
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections import Counter

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
LONGEST_SECONDS = 600.0
"""Time limit of one run, on a machine that may be busy with other things."""


def main():
    """Shoot, print a table, and return 1 if anything did not recover."""
    from tests.kills.verbs import VERBS
    from tests.kills.world import TARGETS, World, chance_of

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("verbs", nargs="*", metavar="VERB", default=[], help=f"of {', '.join(VERBS)} (default: all)")
    parser.add_argument("--shots", type=int, default=200, metavar="N", help="random instants, shared by all (200)")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="choose other instants (default: 1)")
    parser.add_argument("--no-lines", action="store_true", help="leave out the lines of the journal")
    parser.add_argument("--minutes", type=float, default=600.0, metavar="M", help="start no shot after this time (600)")
    options = parser.parse_args()
    names, chance = options.verbs or list(VERBS), chance_of(options.seed)
    ends = time.monotonic() + 60 * options.minutes
    with World() as world:
        ranges = {name: Range(world, name, VERBS[name], chance) for name in names}
        shots = [(names[n % len(names)], TARGETS[n // len(names) % len(TARGETS)], 0) for n in range(options.shots)]
        for name, each in ranges.items() if not options.no_lines else ():
            shots += [(name, target, line) for line in range(1, each.lines + 1) for target in TARGETS]
        for name, target, line in shots:
            if time.monotonic() > ends:
                sys.stdout.write("the time is over; the other shots were not fired\n")
                break
            ranges[name].shoot(target, line)
    return table(ranges.values())


class Range:
    """One verb and what became of the shots at it: by target, how many there were, and which did not recover."""

    def __init__(self, world, name, verb, chance):
        self.world, self.name, self.verb, self.chance = world, name, verb, chance
        self.shots, self.failed, self.late = Counter(), [], Counter()
        if verb.before == "admitted" and not (world.folder / "admitted").exists():
            self._admit()
        self.clean, self.seconds, self.lines = self._undisturbed()

    def _admit(self):
        from tests.kills.verbs import VERBS

        self.world.restore("bare")
        code, told = self.world.gpuops(*VERBS["onboard"].words)
        if code:
            raise SystemExit(f"onboard ends with {code}: {told}")
        self.world.keep("admitted")

    def _undisturbed(self):
        self.world.restore(self.verb.before)
        began = time.monotonic()
        code, told = self.world.gpuops(*self.verb.words)
        seconds = time.monotonic() - began
        journals = self.world.project.rglob("journal.jsonl") if self.verb.lines else ()
        lines = max((len(path.read_text().splitlines()) for path in journals), default=0)
        left = list(self.world.left())
        if code or left:
            raise SystemExit(f"{self.name} ends with {code} and leaves {left}: {told}")
        sys.stdout.write(f"{self.name}: {seconds:.1f} s undisturbed, {lines} lines of journal\n")
        sys.stdout.flush()
        return (self.verb.end(self.world), self.world.names()), seconds, lines

    def shoot(self, target, line=0):
        """Kill as the journal's ``line`` is on disk, or at a random instant."""
        self.world.restore(self.verb.before)
        instant = self.chance.random() * self.seconds
        process = self.world.start(*self.verb.words, line=line)
        if self._is_due(process, line, instant):
            self.world.kill(target, process, self.chance)
            process.send_signal(signal.SIGCONT)
        else:
            self.late[target] += 1
        self._finish(process, target, f"at line {line}" if line else f"after {instant:.2f} s")

    def _is_due(self, process, line, instant):
        """Wait for the line or the instant; return False if the run came to its end before."""
        if line:
            _, status = os.waitpid(process.pid, os.WUNTRACED)
            if not os.WIFSTOPPED(status):
                process.returncode = os.waitstatus_to_exitcode(status)
            return os.WIFSTOPPED(status)
        try:
            process.wait(instant)
        except subprocess.TimeoutExpired:
            return True
        return False

    def _finish(self, process, target, when):
        """Let the run end, run the command once more, and note what is wrong then."""
        try:
            process.wait(LONGEST_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        first = self.world.told()
        wrong = [text for text in (self.verb.between(self.world), _crash(first)) if text]
        run = re.search(r"\brun (\d{8}-\d{6}-\d{6})", first)
        journal = run and list(self.world.project.rglob(f"{run[1]}/journal.jsonl"))
        resumes = self.name == "provision" and journal and self.chance.random() < 0.5
        code, told = self.world.gpuops(
            *self.verb.words, *(("--resume", run[1]) if resumes else ()), seconds=LONGEST_SECONDS
        )
        wrong += self._wrong(code, told)
        self.shots[target] += 1
        sys.stdout.write(f"{self.name}, {target} killed {when}: {'FAILED' if wrong else 'recovered'}\n")
        if wrong:
            self.failed.append(
                f"{self.name}, {target} killed {when}{', resumed' if resumes else ''}: {'; '.join(wrong)}"
            )
            sys.stdout.write(f"FAILED {self.failed[-1]}\n{first}\n--- then\n{told}\n")
        sys.stdout.flush()

    def _wrong(self, code, told):
        """What is wrong after the second run, in words."""
        if code:
            return [f"the second run ends with {code}", *filter(None, [_crash(told)])]
        wrong = [f"left: {text}" for text in self.world.left()]
        end, names = self.verb.end(self.world), self.world.names()
        if end != self.clean[0]:
            wrong.append(f"another end: {end} instead of {self.clean[0]}")
        if names != self.clean[1]:
            wrong.append(f"other files: {set(names) ^ set(self.clean[1])}")
        return wrong + ["a lock needs a person"] * ("--break-lock" in told)


def _crash(told):
    return "a traceback" if "Traceback" in told else ""


def table(ranges):
    """Print what became of the shots; return 1 if any did not recover."""
    rows = [("verb", "killed", "shots", "late", "failed")]
    for each in ranges:
        for target in each.shots:
            failed = sum(f"{each.name}, {target} " in text for text in each.failed)
            rows.append((each.name, target, each.shots[target], each.late[target], failed))
    for row in rows:
        sys.stdout.write("{:<10} {:<7} {:>5} {:>5} {:>6}\n".format(*row))
    shots, failed = sum(row[2] for row in rows[1:]), sum(row[4] for row in rows[1:])
    sys.stdout.write(f"{shots} shots, {shots - failed} recovered, {failed} failed\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
