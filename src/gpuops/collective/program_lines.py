"""The lines of a program that measures a fabric of its own: what it prints, strictly checked, and what it is sent."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, NoReturn, cast, get_args

from gpuops.errors import InputError
from gpuops.isolation.fabric import Fabric, FabricNic, FabricNode
from gpuops.isolation.rounds import GroupResult, RankGroup, Round, Trouble

END = b'{"end": true}\n'
_MAX_QUOTED = 80
_MAX_DETAIL = 300
"""Characters of a detail that are kept: reports repeat it."""
_MAX_GPUS = 64
_MAX_GB_PER_S = 1e6
_TROUBLES: tuple[str, ...] = get_args(Trouble)
_OTHER_PARTS = frozenset({"leaf", "unit", "spine"})
"""Words that begin the names of other parts, and so cannot be the name of a node."""


def parse_fabric(line: bytes) -> Fabric:
    """Return the fabric that the first line describes; raise `InputError` if it describes none."""
    document = _parse(line, "fabric")
    nodes = _field(document, "nodes", dict, "fabric")
    if not nodes:
        _refuse("fabric: nodes", nodes, "at least one node")
    return Fabric({_node_name(name): _node(name, node) for name, node in nodes.items()})


def request_line(number: int, planned: Round) -> bytes:
    """Return the request for round ``number`` (from 1)."""
    groups = [
        {"nodes": group.nodes, "gpus": group.gpus or None, "rail": group.rail, "variant": group.variant}
        for group in planned.groups
    ]
    return json.dumps({"round": number, "groups": groups}).encode() + b"\n"


def parse_figures(line: bytes, number: int, planned: Round) -> tuple[GroupResult, ...]:
    """Return the results of round ``number``, in the order of its groups; raise `InputError` if one is missing."""
    where = f"round {number}"
    figures = _field(_parse(line, where), "figures", list, where)
    if len(figures) != len(planned.groups):
        raise InputError(f"{where}: {len(figures)} figures (expected {len(planned.groups)}, one for each group)")
    results = zip(figures, planned.groups, strict=True)
    return tuple(_result(figure, group, f"{where}: figure {index}") for index, (figure, group) in enumerate(results))


def _node(name: str, document: Any) -> FabricNode:
    where = f"fabric: {_quoted(name)}"
    if not isinstance(document, dict):
        _refuse(where, document, "an object with gpus and nics")
    gpus = document.get("gpus")
    if isinstance(gpus, bool) or not isinstance(gpus, int) or not 0 <= gpus <= _MAX_GPUS:
        _refuse(f"{where}: gpus", gpus, f"a number from 0 to {_MAX_GPUS}")
    nics = tuple(_nic(nic, f"{where}: nic {index}") for index, nic in enumerate(_field(document, "nics", list, where)))
    if len({nic.name for nic in nics}) < len(nics) or len({nic.rail for nic in nics}) < len(nics):
        raise InputError(f"{where}: two of its nics have the same name or the same rail (expected one nic per rail)")
    unit = _optional_name(document, "unit", where)
    return FabricNode(name, tuple(range(gpus)), tuple(sorted(nics, key=lambda nic: nic.rail)), unit)


def _nic(document: Any, where: str) -> FabricNic:
    """Return a NIC; one without a line rate gets 0, as on a real node whose rate is unknown."""
    if not isinstance(document, dict):
        _refuse(where, document, "an object with name, rail and perhaps leaf and gb_per_s")
    name, rail, rate = _name(document.get("name"), where), document.get("rail"), document.get("gb_per_s", 0.0)
    if re.fullmatch(r"gpu\d+", name):
        _refuse(f"{where}: name", name, "a name that is not that of a GPU")
    if isinstance(rail, bool) or not isinstance(rail, int) or not 0 <= rail <= _MAX_GPUS:
        _refuse(f"{where}: rail", rail, f"a number from 0 to {_MAX_GPUS}")
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate < _MAX_GB_PER_S:
        _refuse(f"{where}: gb_per_s", rate, f"GB/s from 0 (unknown) to {_MAX_GB_PER_S:,.0f}")
    return FabricNic(name, rail, float(rate), _optional_name(document, "leaf", where))


def _result(document: Any, group: RankGroup, where: str) -> GroupResult:
    """Return a result; beside a trouble, a speed is not evidence: it is only in the detail, as with a real engine."""
    if not isinstance(document, dict):
        _refuse(where, document, "an object with gb_per_s and trouble")
    rate, trouble, detail = document.get("gb_per_s"), document.get("trouble", ""), document.get("detail", "")
    if trouble not in _TROUBLES:
        _refuse(f"{where}: trouble", trouble, "one of " + ", ".join(f'"{name}"' for name in _TROUBLES))
    if not isinstance(detail, str):
        _refuse(f"{where}: detail", detail, "a text")
    detail = detail if len(detail) <= _MAX_DETAIL else f"{detail[: _MAX_DETAIL - 1]}…"
    is_number = isinstance(rate, int | float) and not isinstance(rate, bool) and 0 <= rate < _MAX_GB_PER_S
    if not is_number and (rate is not None or not trouble):
        _refuse(f"{where}: gb_per_s", rate, f"GB/s from 0 to below {_MAX_GB_PER_S:,.0f}; null only beside a trouble")
    if not trouble:
        return GroupResult(group, float(cast("float", rate)), detail=detail)
    return GroupResult(group, None, trouble, detail=f"{rate:.4g} GB/s, {detail}".rstrip(", ") if is_number else detail)


def _node_name(name: str) -> str:
    if ":" in name or name in _OTHER_PARTS:
        _refuse("fabric: name of a node", name, f"no colon, and not {', '.join(sorted(_OTHER_PARTS))}")
    return _name(name, "fabric")


def _name(name: Any, where: str) -> str:
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        _refuse(f"{where}: name", name, "a text of printable characters")
    return name


def _optional_name(document: Mapping[str, Any], key: str, where: str) -> str | None:
    value = document.get(key)
    return None if value is None else _name(value, f"{where}: {key}")


def _field(document: Any, key: str, kind: type, where: str) -> Any:
    value = document.get(key) if isinstance(document, dict) else document
    if not isinstance(value, kind):
        _refuse(f"{where}: {key}", value, "an object" if kind is dict else "a list")
    return value


def _parse(line: bytes, where: str) -> Any:
    try:
        return json.loads(line.decode(), object_pairs_hook=_object, parse_constant=_constant)
    except (ValueError, RecursionError) as error:
        text = line.decode("utf-8", "replace").strip()
        raise InputError(f"{where}: {_quoted(text)} is not JSON ({error}); print one document per line") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    for key, count in Counter(key for key, _ in pairs).items():
        if count > 1:
            raise ValueError(f"{_quoted(key)} is there twice")
    return dict(pairs)


def _constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number of JSON")


def _refuse(where: str, value: Any, expected: str) -> NoReturn:
    shown = _quoted(value) if isinstance(value, str) else _quoted_json(value)
    raise InputError(f"{where}: {shown} (expected {expected})")


def _quoted_json(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}…"


def _quoted(value: object) -> str:
    """Return a text of the program for a message: shortened, with control characters escaped."""
    text = str(value)
    shortened = text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}…"
    return '"' + "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shortened) + '"'
