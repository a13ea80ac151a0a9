"""The file at a path of the node, as a value; all tasks that inspect files use it."""

from dataclasses import dataclass
from typing import Literal

from gpuops import Command, Failed, NodePath, Plan, task

# a missing file is an answer, but a file that cannot be inspected is not, so root retries only that
_LOOK = """\
stat -c %a:%U:%G:%u:%g:%F -- "$1" || { stat -- "$1" 2>&1 | grep -q "No such file"; exit; }
if [ -h "$1" ]; then readlink -- "$1"; elif [ -f "$1" ]; then "$2" -- "$1"; fi
"""
_READERS = {"text": "cat", "sha256": "sha256sum", "": "true"}


@dataclass(frozen=True)
class Params:
    """``path`` on the node; ``reads`` selects what to read of a file: its text, the sha256 of its content, or nothing.

    ``seconds`` is the time limit for reading.
    """

    path: NodePath
    reads: Literal["text", "sha256", ""] = ""
    seconds: float = 10.0


@task
def stat(params: Params) -> Plan:
    """``register`` keeps ``kind`` (file, directory, symbolic link …), ``mode``, ``owner``, ``group``, ``uid``, ``gid``.

    It also keeps ``content``: the text of a file, or the target of a link. It keeps none if the path does not exist.
    """
    words = ("sh", "-c", _LOOK, "sh", params.path, _READERS[params.reads])
    answer = yield Command(words, params.seconds, become="if-refused")
    about, _, content = answer.out.partition("\n")
    fields = about.split(":")
    if not answer.out and "No such file" in answer.err:
        return None
    if answer.exit != 0 or answer.truncated or len(fields) != 6:
        why = "it is too long" if answer.truncated else "nothing is said of it"
        yield Failed(f"cannot inspect {params.path}: {answer.last_words() or why}")
    attributes = dict(zip(("mode", "owner", "group", "uid", "gid"), fields, strict=False))
    kind = "file" if fields[5].startswith("regular") else fields[5]
    return {"kind": kind, **attributes, "content": content}
