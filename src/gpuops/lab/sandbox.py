"""The lab's directory on disk, which its hosts can reach, and the user that runs their commands."""

from __future__ import annotations

import asyncio
import hashlib
import marshal
import os
import pwd
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuops.errors import InputError, MissingError
from gpuops.lab import tree
from gpuops.lab.collective.running import COLLECTIVE
from gpuops.lab.identity import TIMES, personalize
from gpuops.lab.model import Node
from gpuops.lab.tools.answer import Answer
from gpuops.lab.tools.programs import PROGRAMS
from gpuops.lab.tools.slurm import QUEUES

PREFIX = "gpuops-lab-"
SHIMS = Path(__file__).with_name("shims")
_BUILT_IN = ("python3", "sudo", "date", "cat", "ls", "readlink", "stat", "chown", "systemd-run", "update-grub")
# launchers that a host with Python has; each names its interpreter, as pip installs it
_IN_PYTHON = ("torchrun", "deepspeed")
# programs of the real machine that reveal nothing about it and change nothing outside the lab's own directory
_HARMLESS = (
    "sh bash env sed awk grep egrep fgrep head tail wc tr cut paste sort uniq comm diff cmp sleep true false test [ "
    "printf echo expr seq basename dirname realpath xargs tee dd od base64 md5sum sha256sum gzip gunzip zcat tar "
    "mkfifo mktemp mkdir rmdir rm cp mv ln touch chmod sync nice ionice setsid setpriv nohup timeout kill pwd printenv "
    "stdbuf csh tcsh"
).split()
# longer keys would exceed the limit of file names
_LONGEST_KEY = 180
# uptime of the hosts of a fresh lab
UP_SECONDS = 1_036_800.0
# a format that any Python reads, whichever version wrote it
_OLD_MARSHAL = 2
_COMPILE = "import py_compile, sys; py_compile.compile(sys.argv[1], cfile=sys.argv[1] + 'c', doraise=True)"


@dataclass(frozen=True)
class User:
    """The user that runs the hosts' commands; ``switch`` is passed to the started process."""

    uid: int
    gid: int
    switch: Mapping[str, object]


def shell_user() -> User:
    """Return the user of this process, or nobody if root starts the lab."""
    if os.geteuid() != 0:
        return User(os.geteuid(), os.getegid(), {})
    entry = pwd.getpwnam("nobody")
    return User(entry.pw_uid, entry.pw_gid, {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []})


def find_python(user: User) -> str:
    """Return a Python that ``user`` can run; raise `MissingError` if there is none, as root's own is often private."""
    candidates = [os.path.realpath(sys.executable), *(f"{d}/python3" for d in os.get_exec_path()), "/usr/bin/python3"]
    for python in dict.fromkeys(candidates):
        if _runs(python, user):
            return python
    raise MissingError("the lab needs a python3 that its unprivileged user can run, such as /usr/bin/python3")


def _runs(python: str, user: User) -> bool:
    code = "import sys; raise SystemExit(sys.version_info < (3, 8))"
    try:
        completed = subprocess.run(
            [python, "-SEc", code], check=False, capture_output=True, cwd="/", timeout=20, **user.switch
        )  # type: ignore[call-overload]
    except (OSError, subprocess.TimeoutExpired):
        return False
    return bool(completed.returncode == 0)


def make_root() -> Path:
    """Create an empty directory outside any home; raise `InputError` if the hosts' user could not enter it."""
    folder = Path(tempfile.gettempdir()).resolve()
    closed = next((p for p in (folder, *folder.parents) if not p.stat().st_mode & stat.S_IXOTH), None)
    if closed and os.geteuid() == 0:
        raise InputError(
            f"the lab's unprivileged user cannot enter {closed}; set TMPDIR to a directory that every user can enter"
        )
    return Path(tempfile.mkdtemp(prefix=PREFIX, dir=folder))


class Sandbox:
    """The directory with programs, rendered answers and a small directory for each host."""

    def __init__(self, root: Path, user: User) -> None:
        self.user = user
        self.python = find_python(user)
        self.root = root
        self.root.chmod(0o755)
        for name in ("answers", "hosts"):
            (self.root / name).mkdir(mode=0o755)
        shutil.copytree(SHIMS, self.root / "shims", ignore=shutil.ignore_patterns("__pycache__"))
        for path in (self.root / "shims").rglob("*"):
            path.chmod(0o755)
        # compiled once, by the Python that will run it thousands of times
        fakeroot = str(self.root / "shims" / "fakeroot.py")
        subprocess.run([self.python, "-SEc", _COMPILE, fakeroot], check=True, timeout=60)
        self._programs("bin", (*_BUILT_IN, *PROGRAMS, *COLLECTIVE, *QUEUES))
        for name in _IN_PYTHON:
            (self.root / "bin" / name).symlink_to(f"../shims/{name}")
        self._programs("bin-no-python", (*_BUILT_IN[1:], *PROGRAMS, *COLLECTIVE, *QUEUES))

    def _programs(self, folder: str, shims: Sequence[str]) -> None:
        place = self.root / folder
        place.mkdir(mode=0o755)
        for name in shims:
            (place / name).symlink_to("../shims/shim.sh")
        for name in _HARMLESS:
            path = shutil.which(name, path="/usr/bin:/bin")
            if path:
                (place / name).symlink_to(path)

    def host(self, name: str) -> Path:
        """Return the directory of one host."""
        return self.root / "hosts" / name

    def audit(self, name: str) -> Path:
        """Return the log of everything that was run on a host."""
        return self.host(name) / "audit"

    def home(self, name: str) -> Path:
        """Return the only directory that commands on ``name`` can write, created on first use."""
        home = self.host(name) / "home"
        if not home.is_dir():
            home.mkdir(mode=0o755)
            if self.user.switch:
                os.chown(home, self.user.uid, self.user.gid)
        return home

    def show(self, name: str, node: Node, state: tuple[str, ...], values: Mapping[str, str], up_since: float) -> None:
        """Show host ``name`` as ``node``; hosts with the same ``state`` share its answers."""
        answers = self.answers(state)
        if not answers.is_dir():
            answers.mkdir(mode=0o755)
            (answers / "tree").write_bytes(marshal.dumps(_layout(node), _OLD_MARSHAL))
        behaviour = node.behaviour
        skew = behaviour.clock_skew_seconds
        variables = {
            "LAB": self.root,
            "HOST": name,
            "ANSWERS": answers,
            "EDIT": ";".join(f"s/{token}/{value}/g" for token, value in values.items()),
            "PYTHON": self.python,
            "CLOCK": _date_option(skew),
            "SKEW": skew,
            "UP_SINCE": up_since,
            "SLOW": f"{behaviour.driver_delay_seconds:g}",
            "SUDO": behaviour.sudo,
            "BUG_REPORT_HANGS": int(behaviour.bug_report_hangs),
        }
        folder = self.host(name)
        if not folder.is_dir():
            folder.mkdir(mode=0o755)
            self.audit(name).touch(mode=0o644)
            (folder / "root").mkdir(mode=0o755)
            menu = self._menu(name)
            menu.parent.mkdir(parents=True)
            write(menu, f"linux /boot/vmlinuz-{node.system.kernel} root=/dev/md0 ro {node.cmdline}\n")
            for own in (self.audit(name), *(folder / "root").rglob("*"), folder / "root"):
                os.chown(own, self.user.uid, -1)
        write(folder / "host.env", "".join(f"{k}={shlex.quote(str(v))}\n" for k, v in variables.items()))
        _link(folder / "bin", "../../bin" if behaviour.python else "../../bin-no-python")

    def drop_ins(self, name: str) -> dict[str, str]:
        """Return the kernel parameters in the files of a host's /etc/sysctl.d."""
        files = sorted((self.host(name) / "root" / "etc" / "sysctl.d").glob("*.conf"))
        rows = (line.partition("=") for file in files for line in file.read_text("utf-8").splitlines())
        return {key.strip(): value.strip() for key, equals, value in rows if equals and key[:1] not in "#;"}

    def boot_words(self, name: str) -> str:
        """Return what a host's boot menu passes to the kernel."""
        return self._menu(name).read_text("utf-8").partition(" ro ")[2].strip()

    def _menu(self, name: str) -> Path:
        return self.host(name) / "root" / "boot" / "grub" / "grub.cfg"

    def units(self, name: str) -> list[str]:
        """Return the services that were written into a host's /etc/systemd/system."""
        return [path.stem for path in (self.host(name) / "root" / "etc" / "systemd" / "system").glob("*.service")]

    async def start(self, name: str, unit: str) -> None:
        """Start a service as the host's boot does."""
        place = self.host(name) / "bin"
        child = await asyncio.create_subprocess_exec(
            place / "systemctl",
            *("restart", f"{unit}.service"),
            env={"PATH": str(place), "LAB_ROOT": "1"},
            **self.user.switch,  # type: ignore[arg-type]
        )
        await child.wait()

    def forget_run(self, name: str) -> None:
        """Remove a host's /run, which does not survive a boot."""
        shutil.rmtree(self.host(name) / "root" / "run", ignore_errors=True)

    def answers(self, state: tuple[str, ...]) -> Path:
        """Return the directory with the answers of all hosts in this state."""
        digest = hashlib.sha256("\n".join(state).encode()).hexdigest()[:16]
        return self.root / "answers" / (digest if state else "healthy")

    def keep(self, state: tuple[str, ...], key: str, answer: Answer) -> None:
        """Store ``answer`` where the shims find it without asking."""
        if len(key) > _LONGEST_KEY or "/" in key:
            return
        path = self.answers(state) / key
        if any(token in answer.out for token in TIMES):
            write(path.with_name(f"{key}.timed"), "")
        if answer.code or answer.err:
            write(path.with_name(f"{key}.end"), f"{answer.code}\n{answer.err}")
        write(path, answer.out)

    def remove(self) -> None:
        """Delete the folder."""
        remove(self.root)


def remove(root: Path) -> None:
    """Delete a lab's directory; anything else stays."""
    if root.name.startswith(PREFIX) and root.is_dir() and not root.is_symlink():
        shutil.rmtree(root, ignore_errors=True)


def write(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` atomically."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.chmod(0o644)
    fresh.replace(path)


def _link(path: Path, target: str) -> None:
    fresh = path.with_name(".link.new")
    fresh.symlink_to(target)
    fresh.replace(path)


def _date_option(skew_seconds: float) -> str:
    if not skew_seconds:
        return ""
    # GNU date and BSD date
    return f"-d{skew_seconds:g} seconds" if sys.platform == "linux" else f"-v{skew_seconds:+.0f}S"


def _layout(node: Node) -> dict[str, object]:
    files, links = tree.files(node), tree.links(node)
    folders: dict[str, list[str]] = {}
    for path in (*files, *links):
        parts = path.split("/")
        for depth in range(2, len(parts)):
            names = folders.setdefault("/".join(parts[:depth]), [])
            if parts[depth] not in names:
                names.append(parts[depth])
    return {"files": files, "links": links, "folders": folders, "roots": (*tree.ROOTS, *node.own_files)}


def with_times(text: str, skew_seconds: float) -> str:
    """Return ``text`` with the current time in place of the time tokens."""
    now = time.time() + skew_seconds
    stamps = (
        time.strftime("%a %b %e %H:%M:%S %Y", time.localtime(now)),
        time.strftime("%Y/%m/%d %H:%M:%S.000", time.localtime(now)),
    )
    return personalize(text, dict(zip(TIMES, stamps, strict=True)))
