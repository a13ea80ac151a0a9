"""A kernel module that is loaded now and at every boot, or never."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gpuops import Change, Command, Files, Later, Plan, read_files, task, use


@dataclass(frozen=True)
class Params:
    """``name`` of the module, its ``options``, and its ``state``: loaded, or blacklisted.

    ``at_boot`` loads the module at every boot; set it to false if a device loads its own module.
    """

    name: str
    options: Mapping[str, str] = field(default_factory=dict)
    state: Literal["loaded", "blacklisted"] = "loaded"
    at_boot: bool = True

    def __post_init__(self) -> None:
        """Raise `ValueError` for words that a file of modprobe.d cannot hold."""
        for word in (self.name, *self.options):
            if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]*", word):
                raise ValueError(f'"{word}" is not a valid name of a module or an option')
        for value in self.options.values():
            if not re.fullmatch(r"[!-\[\]-~]+", value):
                raise ValueError(f'an option\'s value must be one word without a backslash, found "{value}"')

    @property
    def kernel_name(self) -> str:
        """The name in the kernel's spelling."""
        return self.name.replace("-", "_")

    @property
    def conf(self) -> str:
        """The path of the file in modprobe.d."""
        return f"/etc/modprobe.d/gpuops-{self.kernel_name}.conf"

    @property
    def content(self) -> str:
        """The content of that file; empty if there is nothing to set."""
        options = " ".join(f"{key}={value}" for key, value in self.options.items())
        blacklist = f"blacklist {self.kernel_name}\n" if self.state == "blacklisted" else ""
        return blacklist + (f"options {self.kernel_name} {options}\n" if options else "")


@task
def kernel_module(params: Params) -> Plan:
    """The module is in the desired state; if modprobe.d changes, the initramfs is rebuilt.

    A module that is loaded although it is blacklisted, or with other options, needs a reboot; the task reboot_required
    records it.
    """
    place = f"/sys/module/{params.kernel_name}"
    answer = yield Files((params.conf, place, f"{place}/parameters/*"))
    seen = read_files(answer.out)
    if params.content:
        yield from use("file", path=params.conf, content=params.content)
        yield from use("initramfs", files=[params.conf], due=seen.get(params.conf) != params.content)
    if params.state == "loaded":
        yield from _loading(params, loaded=place in seen)
    if place in seen and (params.state == "blacklisted" or _differs(params.options, place, seen)):
        yield from use("reboot_required", reason=params.kernel_name)


def _loading(params: Params, *, loaded: bool) -> Plan:
    name = params.kernel_name
    if params.at_boot:
        yield from use("file", path=f"/etc/modules-load.d/gpuops-{name}.conf", content=f"{name}\n")
    if loaded:
        return
    module = yield Command(("modinfo", "-F", "filename", name))
    if module.exit != 0:
        yield Later(f"the running kernel has no module {name}; its package may not be installed yet")
    else:
        leaves = {f"/sys/module/{name}": {"kind": "directory", "content": ""}}
        yield Change(f"load {name}", Command(("modprobe", name), timeout_seconds=120, become="always"), leaves=leaves)


def _differs(options: Mapping[str, str], place: str, seen: Mapping[str, str]) -> bool:
    """Return True if an option that the kernel shows has another value."""
    shown = {key: seen.get(f"{place}/parameters/{key}") for key in options}
    return any(value is not None and _plain(value) != _plain(options[key]) for key, value in shown.items())


def _plain(value: str) -> str:
    """Return a value in one form: a switch is shown as Y or N, and a number may be written with 0x."""
    word = {"Y": "1", "N": "0"}.get(value.strip().upper(), value.strip())
    return str(int(word, 16)) if re.fullmatch("0x[0-9a-fA-F]+", word) else word
