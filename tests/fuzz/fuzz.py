"""Give every reader of foreign bytes odd input until the time is over: ``fuzz.py [WORD]... [--minutes N]``.

A reader may refuse an input with one of gpuops' own errors. Any other exception, ten seconds, or 1 GiB of memory is a
fault; its input is kept in ``seeds/READER/``, from where the tests read it for ever after. Hypothesis edits usual
inputs; atheris, if it is installed, changes bytes and keeps what reaches new code. A WORD chooses the readers whose
name has it.
"""

import argparse
import hashlib
import os
import pathlib
import random
import resource
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parents[2]
CORPUS = ROOT / ".fuzz"
"""What atheris found worth keeping; not a part of the tree."""
MOST_BYTES = 1 << 30
_ENGINES = ("hypothesis", "atheris")


def main():
    """Run each reader under each engine in a process of its own; return 1 if any has a fault."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--minutes", type=float, default=60.0, metavar="N", help="time for all of them (default: 60)")
    parser.add_argument("--seed", type=int, default=None, metavar="S", help="repeat a run (default: another each time)")
    parser.add_argument("--engine", choices=_ENGINES, help="use one engine only")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    if options.child:
        return _child(options.child, options.engine, options.minutes * 60, seed)
    return _all(options, seed)


def _all(options, seed):
    from tests.fuzz.every import READERS

    engines = [options.engine] if options.engine else [each for each in _ENGINES if _is_there(each)]
    names = [name for name in READERS if any(word in name for word in options.words or [""])]
    jobs = [(name, engine) for name in names for engine in engines]
    sys.stdout.write(f"{len(names)} readers, {' and '.join(engines)}, seed {seed}\n")
    faulty = 0
    for number, (name, engine) in enumerate(jobs):
        words = [sys.executable, __file__, "--child", name, "--engine", engine, "--seed", str(seed + number)]
        words += ["--minutes", str(options.minutes / len(jobs))]
        sys.stdout.flush()
        faulty += subprocess.run(words, cwd=ROOT, check=False, stdin=subprocess.DEVNULL).returncode != 0
    sys.stdout.write(f"{faulty} of {len(jobs)} runs found a fault\n" if faulty else "no fault\n")
    return min(faulty, 1)


def _is_there(engine):
    import importlib.util

    return importlib.util.find_spec(engine) is not None


class Faults:
    """The faults of one reader, each kept once."""

    def __init__(self, reader):
        self.reader, self.seen, self.count = reader, set(), 0

    def attempt(self, content):
        """Return the error that reading ``content`` ended with; None if it is no fault, or a known one."""
        from tests.fuzz.reader import attempt, place_of

        self.count += 1
        try:
            attempt(self.reader, content)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            place = place_of(error)
            return None if place in self.seen else (place, error)
        return None

    def keep(self, content, place, error):
        """Write the input to its folder, and say where."""
        from tests.fuzz.reader import SEEDS

        self.seen.add(place)
        path = SEEDS / self.reader.name / hashlib.sha256(content).hexdigest()[:12]
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        sys.stdout.write(f"  {place}: {str(error)[:150]!r}; kept in {path.relative_to(ROOT)}\n")


def _child(name, engine, seconds, seed):
    from tests.fuzz.every import READERS

    os.environ["HOME"] = os.environ["XDG_STATE_HOME"] = str(ROOT / ".fuzz" / "home")
    (ROOT / ".fuzz" / "home").mkdir(parents=True, exist_ok=True)
    faults, began = Faults(READERS[name]), time.monotonic()
    if engine == "atheris":
        return _atheris(faults, seconds, seed)
    used = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_BYTES, used + MOST_BYTES))
    _hypothesis(faults, seconds, seed)
    return _told(faults, engine, time.monotonic() - began)


def _told(faults, engine, seconds):
    sys.stdout.write(f"{faults.reader.name:<26} {engine:<11} {faults.count:>8} inputs in {seconds:.0f} s, ")
    sys.stdout.write(f"{len(faults.seen) or 'no'} fault{'s' * (len(faults.seen) != 1)}\n")
    sys.stdout.flush()
    return min(len(faults.seen), 1)


def _hypothesis(faults, seconds, seed):
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import seed as seeded
    from tests.fuzz.inputs import inputs

    ends, last = time.monotonic() + seconds, []

    def one(content):
        found = faults.attempt(content) if time.monotonic() < ends or last else None
        if found:
            last[:] = [content, *found]
            raise AssertionError(found[0])

    strategy = inputs(faults.reader)
    while time.monotonic() < ends:
        phases = (Phase.generate, Phase.shrink)
        profile = settings(max_examples=200, deadline=None, database=None, phases=phases,
                           suppress_health_check=list(HealthCheck), report_multiple_bugs=False)  # fmt: skip
        try:
            seeded(seed)(profile(given(strategy)(one)))()
        except AssertionError:
            faults.keep(*last)
            last.clear()
        seed += 1000


def _atheris(faults, seconds, seed):
    import atheris

    began = time.monotonic()
    corpus = CORPUS / faults.reader.name
    corpus.mkdir(parents=True, exist_ok=True)
    for content in faults.reader.usual():
        (corpus / hashlib.sha256(content).hexdigest()[:16]).write_bytes(content)
    atheris.instrument_all()

    def one(content):
        found = faults.attempt(content)
        if found:
            faults.keep(content, *found)
        if time.monotonic() - began > seconds:
            os._exit(_told(faults, "atheris", time.monotonic() - began))

    limits = [f"-rss_limit_mb={MOST_BYTES >> 19}", "-max_len=20000", "-verbosity=0", f"-seed={seed}"]
    atheris.Setup([sys.argv[0], str(corpus), *limits], one)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
