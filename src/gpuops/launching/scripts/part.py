"""The part of one node in a job that is started by scripts: its plan, and what its script says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from gpuops.collective.preflight.causes import EACH
from gpuops.launching.plan import NodePlan
from gpuops.launching.scripts.reading import Script, Setting

MASTERS = {"torchrun": ("--master-addr", "--master-port"), "accelerate": ("--main-process-ip", "--main-process-port")}
"""The options of the rendezvous."""
_ENDPOINT = "--rdzv-endpoint"
_DEFAULTS: Mapping[str, str] = {
    "--nnodes": "1",
    "--nproc-per-node": "1",
    "--node-rank": "0",
    "--master-addr": "127.0.0.1",
    "--master-port": "29500",
    "--rdzv-backend": "static",
    "--rdzv-id": "none",
    "--num-machines": "1",
    "--machine-rank": "0",
}
"""What torchrun (torch/distributed/run.py) and accelerate launch take for an option that is not there."""


@dataclass(frozen=True)
class Part:
    """The part of the ``index``-th node."""

    index: int
    node: NodePlan
    script: Script

    @property
    def name(self) -> str:
        """The name of the node."""
        return self.node.name

    def option(self, name: str) -> Setting | None:
        """Return an option of the launcher, else the variable that torchrun reads for it, else its default."""
        if self.script.launcher == "accelerate" and not self.node.config_text:
            return self.script.options.get(name)  # another configuration counts
        variable = self.script.exports.get(f"PET_{name.removeprefix('--').replace('-', '_').upper()}")
        default = self._default(name, _DEFAULTS[name]) if name in _DEFAULTS else None
        return self.script.options.get(name) or (variable if self.script.launcher == "torchrun" else None) or default

    def _default(self, name: str, value: str) -> Setting:
        start = self.script.start
        return Setting(name, value, self.script.path, start.line if start else 1, is_there=False)

    @property
    def is_alone(self) -> bool:
        """True if the launcher starts this node for itself."""
        return "--standalone" in self.script.options

    @property
    def is_static(self) -> bool:
        """True if the script numbers its node; other backends number the nodes themselves."""
        backend = self.option("--rdzv-backend")
        return self.script.launcher == "accelerate" or backend is None or backend.value == "static"

    @property
    def master(self) -> Setting | None:
        """The address of the rendezvous; None if there is none, or it is unknown."""
        return self._rendezvous(0, "host of", r"\A(.*?)(?::\d+)?\Z")

    @property
    def port(self) -> Setting | None:
        """The port of the rendezvous; None if there is none, or it is unknown."""
        return self._rendezvous(1, "port of", r":(\d+)\Z")

    def _rendezvous(self, half: int, what: str, of_endpoint: str) -> Setting | None:
        own = None if self.is_alone else self.option(MASTERS[self.script.launcher][half])
        endpoint = self.option(_ENDPOINT)
        if own is None or endpoint is None:
            return own
        match = re.search(of_endpoint, endpoint.value)
        value = match[1] if match else _DEFAULTS["--master-port"]
        return replace(endpoint, name=f"{what} {_ENDPOINT}", value=value)

    def marked(self, text: str) -> str:
        """Return a text with a mark in place of the node's name, so that it is equal for all nodes."""
        return re.sub(rf"(?<![A-Za-z0-9]){re.escape(self.name)}(?![A-Za-z0-9])", EACH, text)

    def place(self, setting: Setting | None = None) -> str:
        """Return the file and line of a setting, else of the launcher, with the mark."""
        where = setting or self.script.start
        return self.marked(where.place if where else self.script.path)
