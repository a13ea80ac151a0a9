"""The files of a bundle from a node's answers: pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpuops.bundle.contents import Contents, File, LeftOut, Reason
from gpuops.bundle.items import NO_FILE, NOT_ROOT, Item
from gpuops.bundle.private import Private, cleaned, private_of
from gpuops.secret import redact
from gpuops.shell import Completed, Files, read_files

_MOST_BYTES = 8 * 2**20
_REFUSALS = ("permission denied", "not permitted", "password is required", "as root", "must be root", "sudoers")


def private_in(answers: Iterable[Completed]) -> Private:
    """Return what the answers of one node show to be private."""
    return private_of(_shown(answer) for answer in answers)


def contents_of(items: Sequence[Item], answers: Sequence[Completed], private: Private) -> Contents:
    """Return the files of ``answers`` to ``items``, and what is missing."""
    contents = Contents()
    for item, answer in zip(items, answers, strict=True):
        contents += _content(item, answer, private)
    return contents


def _content(item: Item, answer: Completed, private: Private) -> Contents:
    missing = _missing(item, answer)
    text = _shown(answer)
    if not text.strip() or answer.missing:
        return Contents(left_out=(missing or LeftOut(item.file, "absent", "the node has nothing of it"),))
    left_out = [missing] if missing else []
    if len(text) > _MOST_BYTES:  # the end of a log is the newer part
        text = text[-_MOST_BYTES:].partition("\n")[2]
        left_out.append(LeftOut(f"{item.file}: its beginning", "too_large", f"more than {_MOST_BYTES >> 20} MiB"))
    result = cleaned(text, private)
    command = cleaned(str(item.question), private).text
    exit_ = None if isinstance(item.question, Files) else answer.exit
    file = File(item.file, result.text.encode(), command, exit_, item.needs_root, result.removed)
    return Contents((file,), tuple(left_out))


def _shown(answer: Completed) -> str:
    """Return an answer as text: the output, or each file under its path."""
    if isinstance(answer.question, Files):
        return "".join(f"{path}\n{text.rstrip()}\n\n" for path, text in read_files(answer.out).items())
    return answer.out


def _missing(item: Item, answer: Completed) -> LeftOut | None:
    """Return what an answer lacks; None if it is whole."""
    part = f"{item.file}: a part of it" if answer.out.strip() else item.file
    said = redact(answer.last_line()) if answer.err.strip() else ""
    cases: tuple[tuple[bool, str, Reason, str], ...] = (
        (answer.missing, item.file, "not_installed", said or "there is no such program"),
        (answer.exit == NO_FILE, item.file, "absent", "there is no such file"),
        (answer.not_asked, item.file, "timed_out", "not run, because its program hung before"),
        (answer.timed_out, part, "timed_out", f"killed after {answer.question.timeout_seconds:g} s"),
        (answer.truncated, part, "too_large", "the output was cut off"),
        (answer.exit == NOT_ROOT, part, "refused", "only root sees all of it"),
        (answer.exit != 0 and _is_refusal(answer.err), part, "refused", said),
    )
    found = next((LeftOut(what, reason, why) for applies, what, reason, why in cases if applies), None)
    if found or answer.exit == 0 or answer.out.strip():
        return found  # an exit status beside an output is in the manifest
    return LeftOut(item.file, "failed", said or f"exit {answer.exit}, without output")


def _is_refusal(stderr: str) -> bool:
    """Return True if a program says that it needs more rights; their exit statuses do not tell."""
    return any(word in stderr.lower() for word in _REFUSALS)
