"""The process that runs a project's tests for `gpuops validate`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from gpuops.testing.channel import Channel

_MEANT_FOR_OTHER_RUNS = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTEST_DISABLE_PLUGIN_AUTOLOAD")
_MOLECULE = "MOLECULE_INVENTORY_FILE"


def main() -> None:
    """Run the tests that gpuops names on stdin, and send what becomes of each to gpuops."""
    channel = Channel(sys.argv[1], *_pipes())
    for name in _MEANT_FOR_OTHER_RUNS:
        os.environ.pop(name, None)
    os.chdir(channel.request["project"])
    import pytest

    from gpuops.testing.backend import GpuopsBackend
    from gpuops.testing.recorder import Recorder

    GpuopsBackend.reach = channel
    _prepare_for_molecule(list(channel.hosts))
    status = pytest.main(_arguments(channel.request), plugins=[Recorder(channel)])
    channel.send({"end": int(status)})


def _pipes() -> tuple[Any, Any]:
    """Return the pipes to and from gpuops, and let tests read nothing, and print to stderr."""
    into, out = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - the new stdin
    return into, out


def _arguments(request: dict[str, Any]) -> list[str]:
    """Return pytest's arguments: no settings and no conftest.py but those beside the tests, and all of the tests."""
    folder = request["folder"]
    return [
        f"--hosts={','.join(f'gpuops://{name}' for name in request['hosts'])}",
        f"--rootdir={folder}",
        f"--confcutdir={folder}",
        f"-c{os.devnull}",
        "--continue-on-collection-errors",
        "--quiet",
        "-pno:cacheprovider",
        "-pno:timeout",  # the plugin pytest-timeout has the same mark, and calls what is late a failure
        *(str(Path(folder, name)) for name in request["files"]),
    ]


def _prepare_for_molecule(names: list[str]) -> None:
    """Let the usual first lines of a molecule test work, which ask Ansible for hosts; ``--hosts`` overrides them."""
    from testinfra.utils.ansible_runner import AnsibleRunner

    os.environ.setdefault(_MOLECULE, os.devnull)
    AnsibleRunner.get_hosts = lambda _self, _pattern="all": names
