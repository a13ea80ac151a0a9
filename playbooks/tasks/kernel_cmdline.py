"""Parameters on the kernel's command line."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from gpuops import Change, Command, Files, NeedsOperator, Plan, read_files, task, use

_RUNNING = "/proc/cmdline"
_RED_HAT = "/etc/kernel/cmdline"  # read for kernels that are installed later (RHEL 9)
_GRUB = "/boot/grub/grub.cfg"
_DEFAULT = "GRUB_CMDLINE_LINUX_DEFAULT"
_EDIT = """\
gpuops_kept=
for gpuops_word in ${name}; do
    case $gpuops_word in {out}) ;; *) gpuops_kept="$gpuops_kept $gpuops_word" ;; esac
done
{name}=$gpuops_kept
"""


@dataclass(frozen=True)
class Params:
    """``add`` are words as written (``iommu=pt``); ``remove`` removes words, or names with any value.

    On Debian and Ubuntu, ``name`` is the NAME of the drop-in ``/etc/default/grub.d/90-NAME.cfg``.
    """

    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    name: str = "gpuops"

    def __post_init__(self) -> None:
        """Raise `ValueError` for words that a shell or grub would interpret."""
        for word in (*self.add, *self.remove):
            if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.,:=/+@%-]*", word):
                raise ValueError(f'"{word}" is not allowed on the kernel\'s command line')
        if not (self.add or self.remove) or not re.fullmatch(r"[A-Za-z0-9_-]+", self.name):
            raise ValueError("set add or remove, and a name of letters, digits, _ and -")

    def edited(self, words: Iterable[str]) -> list[str]:
        """Return ``words`` with the parameters added and removed."""
        gone = set(self.remove)
        kept = [word for word in words if word in self.add or not {word, word.partition("=")[0]} & gone]
        return [*kept, *(word for word in self.add if word not in kept)]


@task
def kernel_cmdline(params: Params) -> Plan:
    """The parameters apply at the next boot; if the node runs without them now, the task reboot_required records it.

    Debian and Ubuntu use a drop-in for grub, RHEL and Rocky use grubby, which was not tested on a real one.
    """
    entries = yield Command(("grubby", "--info=ALL"), timeout_seconds=60, become="if-refused")
    yield from (_with_grub(params) if entries.missing else _with_grubby(params, entries.out))
    answer = yield Files((_RUNNING,))
    running = read_files(answer.out).get(_RUNNING, "").split()
    if params.edited(running) != running:
        yield from use("reboot_required", reason="kernel-command-line")


def _with_grubby(params: Params, entries: str) -> Plan:
    lines = [line.split() for line in re.findall(r'^args="(.*)"$', entries, re.MULTILINE)]
    if not lines:
        yield NeedsOperator("grubby lists no kernel; check the boot loader by hand")
    if any(params.edited(words) != words for words in lines):
        words_by_option = {"remove-args": params.remove, "args": params.add}
        options = [f"--{option}={' '.join(words)}" for option, words in words_by_option.items() if words]
        command = Command(("grubby", "--update-kernel=ALL", *options), timeout_seconds=120, become="always")
        yield Change(f"boot kernels with {_format_parameters(params)}", command, before=" ".join(lines[0]))
    later = yield Files((_RED_HAT,))
    words = read_files(later.out).get(_RED_HAT, "").split()
    if words and params.edited(words) != words:
        yield from use("file", path=_RED_HAT, content=" ".join(params.edited(words)) + "\n")


def _with_grub(params: Params) -> Plan:
    path = f"/etc/default/grub.d/90-{params.name}.cfg"
    menu = yield from use("read", path=_GRUB)
    if not menu:
        yield NeedsOperator(
            f"neither grubby nor {_GRUB} exists; make it boot with {_format_parameters(params)} by hand"
        )
    drop_in = yield from use("read", path=path)
    first = re.search(r"^\s*linux\S*\s+(.*)$", menu["content"], re.MULTILINE)
    words = first[1].split() if first else []
    yield from use("file", path=path, content=_drop_in(params))
    if not drop_in or drop_in["content"] != _drop_in(params) or params.edited(words) != words:
        command = Command(("update-grub",), timeout_seconds=120, become="always")
        yield Change(f"boot kernels with {_format_parameters(params)}", command, before=" ".join(words))


def _drop_in(params: Params) -> str:
    """Return shell text, which grub-mkconfig reads after /etc/default/grub; its words need no quotes."""
    out = "|".join((*params.add, *(f"{word}|{word}=*" for word in params.remove)))
    edited = "".join(_EDIT.format(name=name, out=out) for name in ("GRUB_CMDLINE_LINUX", _DEFAULT))
    return f'# gpuops: task kernel_cmdline\n{edited}{_DEFAULT}="{" ".join((f"${_DEFAULT}", *params.add))}"\n'


def _format_parameters(params: Params) -> str:
    return " ".join((*params.add, *(f"no {word}" for word in params.remove)))
