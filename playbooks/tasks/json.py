"""Values in a JSON file; its other content stays."""

import json as parser
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuops import Failed, Mode, NodePath, Plan, task, use


@dataclass(frozen=True)
class Params:
    """``values`` are merged into the file ``path``, map by map; a value of null removes its key (RFC 7396).

    An existing file keeps its mode and owner; a new one gets ``mode``, ``owner`` and ``group``. ``validate`` is a
    command that must accept the new file; the file's name is appended to it (``[dockerd, --validate, --config-file]``).
    """

    path: NodePath
    values: Mapping[str, Any]
    mode: Mode = "0644"
    owner: str = "root"
    group: str = "root"
    validate: tuple[str, ...] = ()


@task
def json(params: Params) -> Plan:
    """Lists and scalars are replaced as a whole. A file that has these values already is not rewritten."""
    file = yield from use("read", path=params.path)
    text = file["content"] if file else ""
    try:
        old = parser.loads(text) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        yield Failed(f"{params.path} is not JSON ({error}), so values cannot be merged")
    new = _merged(old, params.values)
    if new != old:
        content = parser.dumps(new, indent=4, ensure_ascii=False) + "\n"
        place = {"path": params.path, "mode": params.mode, "owner": params.owner, "group": params.group, "keep": True}
        yield from use("file", content=content, validate=params.validate, **place)


def _merged(old: object, patch: object) -> object:
    """Return ``old`` with ``patch`` applied, as in RFC 7396."""
    if not isinstance(patch, Mapping):
        return patch
    kept = dict(old) if isinstance(old, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            kept.pop(key, None)
        else:
            kept[key] = _merged(kept.get(key), value)
    return kept
