"""Serial numbers of a node's parts, for the manifest."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpuops.facts import Facts
from gpuops.results.parts import parts_of

_HANDLE = re.compile(r"^(System|Base Board|Chassis) Information\n((?:\t.*\n)*)", re.MULTILINE)
_FIELD = re.compile(r"^\t(Serial Number|Product Name): *(.*?) *$", re.MULTILINE)
_PLACEHOLDERS = frozenset({"", "not specified", "to be filled by o.e.m.", "default string", "none", "0123456789"})


def serials_of(facts: Facts | None, dmidecode: str) -> list[dict[str, str]]:
    """Return each part with its place and serial number: those of the facts, and the system's from dmidecode."""
    parts = parts_of(facts) if facts else ()
    own = [{"kind": p.kind, "slot": p.slot, "serial": p.serial, "model": p.model} for p in parts]
    return [*_of_dmidecode(dmidecode), *own]


def _of_dmidecode(text: str) -> Iterator[dict[str, str]]:
    for kind, body in _HANDLE.findall(text):
        fields = dict(_FIELD.findall(body))
        serial = fields.get("Serial Number", "")
        if serial.lower() not in _PLACEHOLDERS:
            slot = kind.lower()
            yield {"kind": slot, "slot": slot, "serial": serial, "model": fields.get("Product Name", "")}
