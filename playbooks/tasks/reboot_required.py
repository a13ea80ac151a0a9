"""A record that the node needs a reboot, in the place where Debian and Ubuntu keep it."""

import re
from dataclasses import dataclass

from gpuops import Files, Plan, read_files, task, use

_FLAG = "/run/reboot-required"


@dataclass(frozen=True)
class Params:
    """``reason`` is one word, such as a package's name."""

    reason: str

    def __post_init__(self) -> None:
        """Raise `ValueError` unless it is one word, because readers take each word for a package."""
        if not re.fullmatch(r"[!-~]+", self.reason):
            raise ValueError(f'reason must be one word, found "{self.reason}"')


@task
def reboot_required(params: Params) -> Plan:
    """The task reboot with ``only_if_required`` reads the record, on RHEL and Rocky too; the reboot removes it."""
    answer = yield Files((_FLAG, f"{_FLAG}.pkgs"))
    notes = read_files(answer.out)
    if _FLAG not in notes:
        yield from use("file", path=_FLAG, content="*** System restart required ***\n")
    if params.reason not in notes.get(f"{_FLAG}.pkgs", "").split():
        yield from use("line", path=f"{_FLAG}.pkgs", line=params.reason)
