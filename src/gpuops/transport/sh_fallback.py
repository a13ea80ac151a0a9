"""Fallback for nodes without Python: one POSIX sh script answers the same questions, one after another.

It does not do everything that the agent does: stdout and stderr are merged, and deadlines need ``timeout`` on the node.
It covers what matters (nvidia-smi, /sys, /proc). A command reads its stdin from a pipe.
"""

from __future__ import annotations

import math
import re
import secrets
import shlex
from collections.abc import Iterable, Iterator, Sequence

from gpuops.errors import LostError
from gpuops.shell import Command, Completed, Files, NodeQuestion
from gpuops.transport.stream import Stream

START_LINE = "exec /bin/sh -s"

_CAP_BYTES = 4 * 1024 * 1024
_FUNCTIONS = r"""
cd /; LC_ALL=C; PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin; export LC_ALL PATH; hung=
limit() {
    seconds=$1; shift
    if timeout -k 1 1 true 2>/dev/null; then timeout -k 1 "$seconds" "$@"
    elif command -v timeout >/dev/null 2>&1; then timeout "$seconds" "$@"
    else "$@"
    fi
}
root() {
    seconds=$1; shift
    if [ "$(id -u)" = 0 ]; then limit "$seconds" "$@"
    elif command -v sudo >/dev/null 2>&1; then limit "$seconds" sudo -n -- "$@"
    else echo "sudo: not installed" >&2; return 1
    fi
}
show() {
    if { text=$(cat "$1" && echo .); } 2>/dev/null; then printf '%s\0%s\0' "$1" "${text%.}"
    elif ls "$1/" >/dev/null 2>&1; then printf '%s\0%s\0' "$1" "$(readlink "$1" 2>/dev/null)"
    fi
}
"""
_Tree = dict[str, "_Tree"]
_GLOB = re.compile(r"[A-Za-z0-9_./*:+-]+\Z")


def batch(node: str, stream: Stream, questions: Sequence[NodeQuestion]) -> list[Completed]:
    """Ask all questions in one round trip through ``stream``, which `START_LINE` opened."""
    mark = f"gpuops-{secrets.token_hex(12)}"
    stream.write(_script(mark, questions).encode("utf-8", "surrogateescape"))
    seen = _read(node, stream, sum(q.timeout_seconds for q in questions) + 5, mark)
    return list(_unpack(node, questions, seen.decode("utf-8", "replace"), mark))


def _script(mark: str, questions: Sequence[NodeQuestion]) -> str:
    commands = (
        f"echo; echo {mark} {number} begin; {_run(question)}; echo; echo {mark} {number} $status"
        for number, question in enumerate(questions)
    )
    return "\n".join([_FUNCTIONS, *commands, f"echo {mark} all; exit 0", ""])


def _run(question: NodeQuestion) -> str:
    """Return a command that sets ``$status``, to ``not-asked`` if the program hung before in this lane."""
    run = f"{_stdin(question)} | ({_line(question)}) 2>&1; status=$?"
    if isinstance(question, Files) or not question.lane or question.words[0] == "sh":
        return run
    name = shlex.quote(f"/{question.lane}/{question.words[0]}/")
    return f"case $hung in *{name}*) status=not-asked ;; *) {run}; [ $status != 124 ] || hung=$hung{name} ;; esac"


def _line(question: NodeQuestion) -> str:
    if isinstance(question, Files):
        return "; ".join(_shown(_tree(filter(_GLOB.match, question.globs))))
    seconds = math.ceil(question.timeout_seconds)
    plain = f"limit {seconds} {shlex.join(question.words)}"
    root = f"root {seconds} {shlex.join(question.root_words or question.words)}"
    return {"never": plain, "if-refused": f"{plain} || {root}", "if-possible": root, "always": root}[question.become]


def _tree(globs: Iterable[str]) -> _Tree:
    """Return the globs by segment, so that each directory is listed once: a thousand processes take a loaded node long.

    An empty segment is the end of a glob.
    """
    tree: _Tree = {}
    for glob in globs:
        place = tree
        for segment in (*glob.strip("/").split("/"), ""):
            place = place.setdefault(segment, {})
    return tree


def _shown(tree: _Tree, path: str = "", depth: int = 0) -> Iterator[str]:
    """Yield commands that show what a tree of globs matches below ``path``."""
    for segment, below in tree.items():
        if not segment:
            yield f'show "{path}"'
        elif "*" not in segment:
            yield from _shown(below, f"{path}/{segment}", depth)
    name = f"name{depth}"  # POSIX sh has no local variables
    cases = [
        f"case ${name} in {segment}) {'; '.join(_shown(below, f'{path}/${name}', depth + 1))} ;; esac"
        for segment, below in tree.items()
        if "*" in segment
    ]
    if cases:
        yield f'for {name} in $(ls "{path}/" 2>/dev/null); do {"; ".join(cases)}; done'


def _stdin(question: NodeQuestion) -> str:
    """Return a command that writes the question's stdin; octal escapes in printf work for any byte and in any shell."""
    data = question.stdin.encode("utf-8", "surrogateescape") if isinstance(question, Command) else b""
    return "printf '" + "".join(chr(b) if chr(b).isalnum() and b < 128 else f"\\{b:03o}" for b in data) + "'"


def _read(node: str, stream: Stream, seconds: float, mark: str) -> bytes:
    seen = bytearray()
    end = f"\n{mark} all\n".encode()
    while end not in seen[-len(end) - 65536 :]:
        try:
            data = stream.read(seconds)
        except TimeoutError as error:
            raise LostError(
                node, f"no answer within {seconds:g} s, and the node has no Python to enforce deadlines"
            ) from error
        if len(seen) > _CAP_BYTES:
            raise LostError(node, f"the answer is longer than {_CAP_BYTES >> 20} MiB, and the node has no Python")
        if not data:
            line = Completed(node, Files(()), 1, seen.decode("utf-8", "replace")).last_line()
            raise LostError(node, f"its login shell exited without an answer: {line or 'no output'}")
        seen += data
    return bytes(seen)


def _unpack(node: str, questions: Sequence[NodeQuestion], text: str, mark: str) -> Iterator[Completed]:
    for number, question in enumerate(questions):
        match = re.search(rf"{mark} {number} begin\n(.*?)\n{mark} {number} (\d+|not-asked)\n", text, re.DOTALL)
        if not match:
            raise LostError(node, f"no answer to: {question}")
        if match[2] == "not-asked":
            yield Completed(node, question, 137, timed_out=True, state=match[2])
            continue
        status = int(match[2])
        timed_out = status == 124 and isinstance(question, Command)
        out = match[1]
        yield Completed(node, question, status, out, out if status else "", timed_out=timed_out)
