"""gpuops as a process of its own, forked from one that has loaded it already.

The tests start gpuops hundreds of times, and loading it takes most of the time of a short command. How it starts from
nothing, and what a signal does meanwhile, is tested with ``python -m gpuops`` where that matters.
"""

import multiprocessing
import os
import pkgutil
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import gpuops
from gpuops.cli import program

_SELDOM = ("gpuops.lab", "gpuops.node", "gpuops.fabfile", "gpuops.__main__")
_processes = multiprocessing.get_context("forkserver")
_names = [module.name for module in pkgutil.walk_packages(gpuops.__path__, "gpuops.")]
_processes.set_forkserver_preload([__name__, *(name for name in _names if not name.startswith(_SELDOM))])


def _start(words, cwd, environment, output):
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    for number, path in enumerate(output, start=1):
        with path.open("wb") as file:
            os.dup2(file.fileno(), number)
    sys.argv = ["gpuops", *words]
    from gpuops.__main__ import main

    main()


def run_gpuops(*words, cwd=".", env=None, timeout=120, check=False):
    """Run ``gpuops WORDS`` without input, like `subprocess.run` with its output as text."""
    words = [str(word) for word in words]
    with tempfile.TemporaryDirectory() as folder:
        output = [Path(folder, name) for name in ("out", "err")]
        process = _processes.Process(target=_start, args=(words, str(cwd), dict(env or os.environ), output))
        process.start()
        process.join(timeout)
        late = process.is_alive()
        process.kill()
        process.join()
        if late:
            raise subprocess.TimeoutExpired(words, timeout)
        done = subprocess.CompletedProcess(words, process.exitcode, *(path.read_text("utf-8") for path in output))
    if check:
        done.check_returncode()
    return done


def proposed(text):
    """Return the words of the gpuops commands in an output, each to the end of its line."""
    verbs = "|".join(map(re.escape, program.list_commands(None)))
    return [
        shlex.split(line)[1:] for line in dict.fromkeys(re.findall(rf"\bgpuops (?:{verbs})\b.*$", text, re.MULTILINE))
    ]
