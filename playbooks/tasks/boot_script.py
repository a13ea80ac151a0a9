"""A script that root runs at every boot, and now if it has not run since the boot; for settings that do not persist."""

import hashlib
import re
from dataclasses import dataclass

from gpuops import Change, Command, Files, Plan, read_files, task, use

_RAN = "/run/gpuops-boot"
_UNIT = """\
[Unit]
Description=gpuops: {about}
After={after}
Before={before}

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh {path}

[Install]
WantedBy=multi-user.target
"""


@dataclass(frozen=True)
class Params:
    """The unit is called gpuops-NAME after ``name``; ``about`` describes the ``script`` (for sh) in a few words.

    The unit starts after the units in ``after`` and before those in ``before``. ``due`` runs the script again although
    it ran since the boot, because something changed its settings. ``at_boot_only`` never runs the script now; the
    caller does that.
    """

    name: str
    about: str
    script: str
    after: tuple[str, ...] = ("sysinit.target",)
    before: tuple[str, ...] = ("slurmd.service", "kubelet.service")
    due: bool = False
    at_boot_only: bool = False

    def __post_init__(self) -> None:
        """Raise `ValueError` for a name that is a path, or words of several lines."""
        if not re.fullmatch(r"[a-z][a-z0-9-]*", self.name):
            raise ValueError(f'"{self.name}" is not a valid name; use lower-case letters, digits and -')
        for word in (self.about, *self.after, *self.before):
            if re.search(r"[\n%\\]", word):
                raise ValueError(f'"{word}" must be one line without % and \\')


@task
def boot_script(params: Params) -> Plan:
    """The script ends at the first command that fails.

    /run/gpuops-boot records which scripts have completed since the boot. ``register`` keeps the script's path.
    """
    path, ran = f"/usr/local/lib/gpuops/{params.name}.sh", f"{_RAN}/{params.name}"
    mark = hashlib.sha256(params.script.encode()).hexdigest()
    last = read_files((yield Files((ran,))).out).get(ran, "").strip()
    ending = f"mkdir -p {_RAN}\necho {mark} >{ran}\n"
    yield from use("file", path=path, content=f"# gpuops: {params.about}\nset -eu\n{params.script}{ending}")
    content = _UNIT.format(about=params.about, path=path, after=" ".join(params.after), before=" ".join(params.before))
    unit = f"gpuops-{params.name}"
    yield from use("unit", name=unit, content=content)
    if params.due or (last != mark and not params.at_boot_only):
        again = Command(("systemctl", "restart", "--", f"{unit}.service"), timeout_seconds=180, become="always")
        yield Change(f"{params.about}, now", again)
    yield from use("service", name=unit, enabled=True)
    return path
