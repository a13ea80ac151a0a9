"""The archive of one node: a tar file, compressed, that only its owner can read, with a manifest as its first file."""

from __future__ import annotations

import datetime as dt
import hashlib
import io
import json
import re
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpuops.bundle.contents import NEVER, Contents, File
from gpuops.bundle.items import MANIFEST
from gpuops.errors import OutputError
from gpuops.files.replacing import write_atomic
from gpuops.version import __version__

SCHEMA = "gpuops.bundle/1"
_STAMP = "%Y%m%dT%H%M%SZ"
_SUFFIX = ".tar.gz"


def manifest_of(node: str, at: dt.datetime, serials: Sequence[Mapping[str, str]], contents: Contents) -> dict[str, Any]:
    """Return the manifest of a bundle."""
    return {
        "schema": SCHEMA,
        "gpuops": __version__,
        "node": node,
        "at": at.astimezone(dt.timezone.utc).isoformat(timespec="seconds"),
        "serials": [dict(serial) for serial in serials],
        "files": [_entry(file) for file in contents.files],
        "left_out": [vars(each) for each in (*contents.left_out, *NEVER)],
    }


def _entry(file: File) -> dict[str, Any]:
    return {
        "name": file.name,
        "bytes": len(file.content),
        "sha256": hashlib.sha256(file.content).hexdigest(),
        "command": file.command,
        "exit": file.exit,
        "needs_root": file.needs_root,
        "removed": dict(sorted(file.removed.items())),
    }


def write_bundle(directory: Path, at: dt.datetime, manifest: Mapping[str, Any], contents: Contents) -> Path:
    """Write the archive to ``directory`` with mode 0600; return its path. Raise `OutputError` if it cannot."""
    stem = f"{_safe(manifest['node'])}-{at.astimezone(dt.timezone.utc):{_STAMP}}"
    path = directory / f"{stem}{_SUFFIX}"
    text = json.dumps(manifest, indent=1).encode()
    try:
        write_atomic(path, _packed(stem, at, [File(MANIFEST, text, ""), *contents.files]), 0o600)
    except OSError as error:
        raise OutputError(f"{path}: cannot write: {error.strerror}; -o DIR names another directory") from error
    return path


def _packed(stem: str, at: dt.datetime, files: Sequence[File]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for file in files:
            entry = tarfile.TarInfo(f"{stem}/{file.name}")
            entry.size, entry.mode, entry.mtime = len(file.content), 0o600, int(at.timestamp())
            archive.addfile(entry, io.BytesIO(file.content))
    return packed.getvalue()


def prune(directory: Path, node: str, most: int) -> None:
    """Delete the oldest bundles of ``node`` in ``directory`` above ``most``."""
    name = re.compile(rf"{re.escape(_safe(node))}-\d{{8}}T\d{{6}}Z{re.escape(_SUFFIX)}")
    bundles = sorted(path for path in directory.iterdir() if name.fullmatch(path.name))
    for path in bundles[: max(0, len(bundles) - most)]:
        path.unlink(missing_ok=True)


def _safe(node: str) -> str:
    """Return a node's name as a part of a file's name."""
    return re.sub(r"[^\w.-]", "_", node, flags=re.ASCII).lstrip(".") or "node"
