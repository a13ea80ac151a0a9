"""NVIDIA's bug report: a gzip file of sections, of which those with users' data are removed.

Each part of the report is a gzip member of its own. A report that was killed ends in the middle of one, and the rest of
it counts. Blocks of base64, such as the NVML log, are read too; what is binary in them stays, unless it contains a
secret of this process.
"""

from __future__ import annotations

import base64
import gzip
import io
import re
import zlib
from collections import Counter

from gpuops.bundle.contents import LeftOut
from gpuops.bundle.private import REMOVED, Cleaned, Private, cleaned
from gpuops.secret import redact

_MOST_BYTES = 512 * 2**20
_RULE = "____________________________________________\n"
_PRIVATE_TITLE = re.compile(
    r"(?:\S*/)?(?:env|printenv|ps|pstree|top|lsof|w|who|last|history|crontab|docker|podman|crictl)\b"
    r"|(?:\S*/)?coredumpctl\b|(?:\S*/)?journalctl -b \S+ \S*(?:_COMM=|SYSLOG_IDENTIFIER=)"
    r"|(?:\*\*\* |base64 \"?)(?:/home/|/root/|/etc/(?:passwd|shadow)|/proc/\d+/)"
    r"|.*(?:/\.(?:nv|config|local|ssh|nvidia-settings-rc|netrc)\b|_history\b|authorized_keys)"
)
_BLOCK = re.compile(r"(?:^[A-Za-z0-9+/]{60,76}\n){2,}(?:^[A-Za-z0-9+/]{1,76}={0,2}$)?", re.MULTILINE)


def cleaned_report(packed: bytes, private: Private, name: str) -> tuple[bytes, dict[str, int], list[LeftOut]]:
    """Return the report packed again without private data, what was removed by kind, and the sections left out."""
    text, is_whole = _unpacked(packed)
    first, *sections = text.decode("utf-8", "replace").split(_RULE)
    removed: Counter[str] = Counter()
    left_out = [] if is_whole else [LeftOut(f"{name}: its end", "too_large", f"more than {_MOST_BYTES >> 20} MiB")]
    kept = [first]
    for section in sections:
        title = next((line for line in section.splitlines() if line.strip()), "").strip()
        if _PRIVATE_TITLE.match(title):
            shown = cleaned(title, private).text
            left_out.append(LeftOut(f"{name}: {shown}", "user_data", "files, logs or processes of users"))
            section = f"\n{shown}\n\n{REMOVED}\n\n"  # noqa: PLW2901 - it replaces the section
            removed["sections"] += 1
        kept.append(section)
    result = _cleaned_with_blocks(_RULE.join(kept), private)
    return gzip.compress(result.text.encode(), 6, mtime=0), dict(removed + Counter(result.removed)), left_out


def _unpacked(packed: bytes) -> tuple[bytes, bool]:
    """Return the text of all members, as far as they go, and whether it is not longer than is allowed."""
    text = io.BytesIO()
    while packed:
        member = zlib.decompressobj(wbits=31)
        try:
            text.write(member.decompress(packed, _MOST_BYTES - text.tell() + 1))
        except zlib.error:
            break
        if text.tell() > _MOST_BYTES:
            return text.getvalue()[:_MOST_BYTES], False
        packed = member.unused_data
    return text.getvalue(), True


def _cleaned_with_blocks(text: str, private: Private) -> Cleaned:
    removed: Counter[str] = Counter()

    def replace(match: re.Match[str]) -> str:
        try:
            inside = base64.b64decode(match[0])
        except ValueError:
            return match[0]
        if b"\0" in inside:
            return REMOVED if _has_secret(inside, private) else match[0]
        result = cleaned(inside.decode("utf-8", "replace"), private)
        removed.update(result.removed)
        return base64.encodebytes(result.text.encode()).decode() if result.removed else match[0]

    text = _BLOCK.sub(replace, text)
    result = cleaned(text, private)
    return Cleaned(result.text, dict(removed + Counter(result.removed)))


def _has_secret(content: bytes, private: Private) -> bool:
    text = content.decode("latin-1")  # keeps every byte
    return redact(text) != text or any(value in text for value in private.values)
