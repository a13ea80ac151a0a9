"""nvidia-bug-report.sh: run on the node as root into a private folder, fetched in parts, and removed.

NVIDIA's guide: it is usually quick; if it hangs, what it wrote still counts, and ``--safe-mode`` avoids common causes
(Xid Errors, 2.2; RMA Process, 2.1). ``--extra-system-data`` writes to /proc/sysrq-trigger, so that it is never the
default. If the connection breaks, a guard on the node ends the report and removes the folder.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuops.bundle.contents import Contents, File, LeftOut
from gpuops.bundle.items import BUG_REPORT, SAFE_BUG_REPORT
from gpuops.bundle.packed import cleaned_report
from gpuops.bundle.private import Private
from gpuops.errors import NodeError
from gpuops.secret import redact
from gpuops.shell import Command, Completed
from gpuops.transport import Transport

_NAME = "nvidia-bug-report.sh"
_PART_BYTES = 4 * 2**20
"""Base64 of it stays below the cap of one answer (gpuops.transport.agent)."""
_MOST_BYTES = 64 * 2**20
_FETCH_SECONDS = 60.0
_GRACE_SECONDS = 30.0
_TIMED_OUT = (124, 137)  # of timeout(1): ended by TERM, ended by KILL
_CANNOT_CREATE = 73
_ROOT = "as root"
"""The first line of the script's output, so that a refusal of sudo can be recognized."""
_ALONE_SECONDS = 150
"""The guard on the node waits so long for the next question, once the script that ran the report has ended."""
# timeout(1) leads a process group, which has everything that the report started. The report has files in /tmp itself,
# which it removes unless it is killed.
_CLEAR = """\
if [ ! -e "$1/ended" ]; then
    read -r group <"$1/group" && kill -9 -- "-$group"
    find /tmp -maxdepth 1 -type f -name 'nvidia_bug_report_*' -user root -newer "$1/began" -exec rm -f {} +
fi 2>/dev/null
rm -rf -- "$1"
"""
# It survives the script, because nothing else would clear up once the connection is lost. Whoever reads from the folder
# leaves a file there, so that it goes on waiting.
_GUARD = f"""\
n=0
while [ -d "$1" ] && [ $n -lt {_ALONE_SECONDS} ]; do
    sleep 1
    n=$((n+1))
    if kill -0 "$2" 2>/dev/null || [ -e "$1/read" ]; then n=0; rm -f "$1/read"; fi
done
[ -d "$1" ] || exit
{_CLEAR}"""
_RUN = f"""\
echo {_ROOT}
umask 077
guard=$1 seconds=$2; shift 2
d=$(mktemp -d "${{TMPDIR:-/tmp}}/gpuops-bundle.XXXXXXXXXX") && : >"$d/began" || exit {_CANNOT_CREATE}
setsid sh -c "$guard" sh "$d" $$ </dev/null >/dev/null 2>&1 &
echo "$d"
cd "$d" || exit
TMPDIR=$d timeout -k 5 "$seconds" {_NAME} --output-file "$d/report" "$@" </dev/null >/dev/null 2>"$d/errors" &
echo $! >group
wait $!
code=$?
case $code in 124|137) ;; *) : >ended ;; esac
tail -n 1 errors >&2
exit $code"""
_READ = """\
: >"$1/read"
for f in "$1/report.gz" "$1/report"; do [ ! -f "$f" ] || break; done
tail -c "+$2" "$f" | head -c "$3" | base64"""
_FOLDER = re.compile(r"^(/[\w./-]*/gpuops-bundle\.\w{10})$", re.MULTILINE)


@dataclass(frozen=True)
class Choices:
    """How to run the report: seconds until it is killed, and NVIDIA's own options."""

    seconds: float
    safe_mode: bool = False
    extra_system_data: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """The options on the command line."""
        chosen = {"--safe-mode": self.safe_mode, "--extra-system-data": self.extra_system_data}
        return tuple(word for word, is_set in chosen.items() if is_set)


def collect_report(transport: Transport, choices: Choices, private: Private) -> Contents:
    """Return the bug report; if it hangs, what it wrote until then, and a second one in safe mode.

    A connection that is lost meanwhile costs only the report.
    """
    try:
        there = transport.run(Command(("sh", "-c", f"command -v {_NAME}")))
        if there.exit != 0:
            return Contents(left_out=(LeftOut(BUG_REPORT, "not_installed", f"there is no {_NAME}"),))
        contents, hung = _collected(transport, choices, private, SAFE_BUG_REPORT if choices.safe_mode else BUG_REPORT)
        if hung and not choices.safe_mode:
            safe = Choices(choices.seconds, safe_mode=True, extra_system_data=choices.extra_system_data)
            contents += _collected(transport, safe, private, SAFE_BUG_REPORT)[0]
    except NodeError as error:
        return Contents(left_out=(LeftOut(BUG_REPORT, "failed", redact(error.what)),))
    return contents


def _collected(transport: Transport, choices: Choices, private: Private, name: str) -> tuple[Contents, bool]:
    """Return one run of the report, and whether it had to be killed."""
    seconds = choices.seconds + _GRACE_SECONDS
    answer = transport.run(_command(_RUN, _GUARD, f"{choices.seconds:g}", *choices.words, seconds=seconds))
    hung = answer.timed_out or answer.exit in _TIMED_OUT
    folder = _FOLDER.search(answer.out)
    left_out = [LeftOut(name, "timed_out", f"killed after {choices.seconds:g} s; what it wrote is kept")] * hung
    if folder is None:
        return Contents(left_out=tuple(left_out or [_why_not(name, answer)])), hung
    try:
        packed = b"".join(_parts(transport, folder[1]))
    finally:
        _remove(transport, folder[1])
    return _contents(name, packed, choices, answer, private, left_out), hung


def _contents(
    name: str, packed: bytes, choices: Choices, answer: Completed, private: Private, left_out: Sequence[LeftOut]
) -> Contents:
    if not packed:
        return Contents(left_out=tuple(left_out) or (_why_not(name, answer),))
    cut = [LeftOut(f"{name}: its end", "too_large", f"more than {_MOST_BYTES >> 20} MiB")]
    content, removed, sections = cleaned_report(packed[:_MOST_BYTES], private, name)
    command = " ".join((_NAME, *choices.words))
    file = File(name, content, command, answer.exit, needs_root=True, removed=removed)
    return Contents((file,), (*left_out, *(cut if len(packed) > _MOST_BYTES else ()), *sections))


def _parts(transport: Transport, folder: str) -> Iterator[bytes]:
    """Yield the report in parts, one more than is allowed at most, so that the caller sees that there is more."""
    for at in range(0, _MOST_BYTES + 1, _PART_BYTES):
        words = (folder, str(at + 1), str(_PART_BYTES))
        answer = transport.run(_command(_READ, *words, seconds=_FETCH_SECONDS))
        part = base64.b64decode(answer.out) if answer.exit == 0 and not answer.truncated else b""
        yield part
        if len(part) < _PART_BYTES:
            return


def _remove(transport: Transport, folder: str) -> None:
    transport.run(_command(_CLEAR, folder, seconds=_FETCH_SECONDS))


def _command(script: str, *words: str, seconds: float) -> Command:
    """Return a script for root; ``if-refused`` would drop what a script that was killed had printed."""
    return Command(("sh", "-c", script, "sh", *words), timeout_seconds=seconds, become="always", lane="nvidia")


def _why_not(name: str, answer: Completed) -> LeftOut:
    said = redact(answer.last_line()) or f"exit {answer.exit}, without a report"
    return LeftOut(name, "failed" if answer.out.startswith(_ROOT) else "refused", said)
