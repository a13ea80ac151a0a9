"""What lies at a path of the node, as a value; all tasks that look at one stand on it."""

from dataclasses import dataclass
from typing import Literal

from gpuops import Command, Failed, NodePath, Plan, task

# What is not there is an answer, and what cannot be looked at is not, so that root tries again only that.
_LOOK = """\
stat -c %a:%U:%G:%u:%g:%F -- "$1" || { stat -- "$1" 2>&1 | grep -q "No such file"; exit; }
if [ -h "$1" ]; then readlink -- "$1"; elif [ -f "$1" ]; then "$2" -- "$1"; fi
"""
_READERS = {"text": "cat", "sha256": "sha256sum", "": "true"}


@dataclass(frozen=True)
class Params:
    """``path`` on the node; of a file its ``reads``: the text, or the sha256 of its content, or nothing.

    ``seconds`` is how long reading may take.
    """

    path: NodePath
    reads: Literal["text", "sha256", ""] = ""
    seconds: float = 10.0


@task
def stat(params: Params) -> Plan:
    """``register`` keeps ``kind`` (file, directory, symbolic link …), ``mode``, ``owner``, ``group``, ``uid``, ``gid``.

    And ``content``: the text of a file, or the target of a link. It is none if nothing has that name.
    """
    words = ("sh", "-c", _LOOK, "sh", params.path, _READERS[params.reads])
    answer = yield Command(words, params.seconds, become="if-refused")
    about, _, content = answer.out.partition("\n")
    fields = about.split(":")
    if not answer.out and "No such file" in answer.err:
        return None
    if answer.exit != 0 or answer.truncated or len(fields) != 6:
        why = "it is too long" if answer.truncated else "nothing is said of it"
        yield Failed(f"{params.path} cannot be looked at: {answer.last_words() or why}")
    attributes = dict(zip(("mode", "owner", "group", "uid", "gid"), fields, strict=False))
    kind = "file" if fields[5].startswith("regular") else fields[5]
    return {"kind": kind, **attributes, "content": content}
