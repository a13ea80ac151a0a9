"""A node without Python: the same questions as one POSIX sh script, one after another.

It brings what matters (nvidia-smi, /sys, /proc), not everything that the agent does: streams are merged, and a deadline
needs ``timeout`` on the node.
"""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Iterator, Sequence

from gpuops.errors import LostError
from gpuops.shell import Command, Completed, Files, Question
from gpuops.transport.stream import OpenStream, Stream

_CAP_BYTES = 64 * 1024 * 1024
_FILE = (
    'for p in {globs};do if [ -L "$p" ]&&[ -d "$p" ];then printf "%s\\0%s\\0" "$p" "$(readlink "$p")";'
    'elif [ -d "$p" ];then printf "%s\\0\\0" "$p";'
    'elif [ -r "$p" ];then printf "%s\\0" "$p";head -c {limit} "$p" 2>/dev/null;printf "\\0";fi;done'
)
_GLOB = re.compile(r"[A-Za-z0-9_./*:+-]+\Z")


def batch(node: str, open_stream: OpenStream, questions: Sequence[Question]) -> list[Completed]:
    """Ask everything through one ``sh``, in one round trip."""
    mark = f"gpuops-{secrets.token_hex(12)}"
    stream = open_stream("exec /bin/sh -s")
    try:
        stream.write(_script(mark, questions).encode("utf-8", "surrogateescape"))
        seen = _read(node, stream, sum(q.timeout_seconds for q in questions) + 5, mark)
    finally:
        stream.close()
    return list(_unpack(node, questions, seen.decode("utf-8", "replace"), mark))


def _script(mark: str, questions: Sequence[Question]) -> str:
    lines = ["cd /;LC_ALL=C;PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin;export LC_ALL PATH"]
    lines.append('limit() { n=$1;shift;if command -v timeout >/dev/null 2>&1;then timeout $n "$@";else "$@";fi;}')
    for number, question in enumerate(questions):
        lines.append(
            f"echo;echo {mark} {number} begin;({_line(question)}) </dev/null 2>&1;echo;echo {mark} {number} $?"
        )
    return "\n".join([*lines, f"echo {mark} all;exit 0", ""])


def _line(question: Question) -> str:
    if isinstance(question, Files):
        return _FILE.format(globs=" ".join(g for g in question.globs if _GLOB.match(g)), limit=question.limit_bytes)
    plain = f"limit {question.timeout_seconds:.0f} {shlex.join(question.words)}"
    root = f"limit {question.timeout_seconds:.0f} sudo -n -- {shlex.join(question.root_words or question.words)}"
    return {"never": plain, "if-refused": f"{plain} || {root}", "always": root}[question.become]


def _read(node: str, stream: Stream, seconds: float, mark: str) -> bytes:
    seen = bytearray()
    end = f"\n{mark} all\n".encode()
    while end not in seen[-len(end) - 65536 :]:
        try:
            data = stream.read(seconds)
        except TimeoutError as error:
            raise LostError(node, f"no answer within {seconds:g} s, and no Python there to keep deadlines") from error
        if not data or len(seen) > _CAP_BYTES:
            raise LostError(node, "the connection ended in the middle of the answer; the node has no usable Python")
        seen += data
    return bytes(seen)


def _unpack(node: str, questions: Sequence[Question], text: str, mark: str) -> Iterator[Completed]:
    for number, question in enumerate(questions):
        found = re.search(rf"{mark} {number} begin\n(.*?)\n{mark} {number} (\d+)\n", text, re.DOTALL)
        if not found:
            raise LostError(node, f"no answer to: {question}")
        status = int(found[2])
        timed_out = status == 124 and isinstance(question, Command)
        out = found[1]
        yield Completed(node, question, status, out, out if status else "", timed_out=timed_out)
