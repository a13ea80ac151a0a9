"""Made-up nodes of each distribution, on which the tasks of the domain are applied as the engine applies them."""

import fnmatch
import pathlib
import re

import pytest

from gpuops.playbook.applying import MOST_PHASES
from gpuops.playbook.parameters import as_params
from gpuops.playbook.planning import plan
from gpuops.playbook.task import Machine, TaskRegistry
from gpuops.shell import Command, Completed

ROOT = pathlib.Path(__file__).parents[4]
KERNELS = {
    "ubuntu 22.04": "5.15.0-122-generic",
    "ubuntu 24.04": "6.8.0-45-generic",
    "debian 12": "6.1.0-25-amd64",
    "rocky 8.10": "4.18.0-553.el8_10.x86_64",
    "rhel 9.4": "5.14.0-427.el9.x86_64",
}
H100 = "1b:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H100 SXM5 80GB] [10de:2330] (rev a1)\n"
SWITCH = "07:00.0 Bridge [0680]: NVIDIA Corporation GH100 [H100 NVSwitch] [10de:22a3] (rev a1)\n"
DRIVER = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build\n"
TABLE = " {}  x86_64  {}  cuda-rhel9  10 M\n"


class MadeUpNode:
    """Files, packages, units and modules; every question is answered from them, every change changes them.

    ``offered`` are the versions in the repositories, ``brings`` what a package does when it is installed. ``answers``
    are for programs of the domain, by the longest beginning of a command; a callable is asked.
    """

    def __init__(self, system):
        os_id, _, release = system.partition(" ")
        self.red_hat = os_id in ("rocky", "rhel")
        self.kernel = KERNELS[system]
        self.files = {
            "/etc/os-release": f'ID="{os_id}"\nVERSION_ID="{release}"\n',
            "/proc/sys/kernel/osrelease": f"{self.kernel}\n",
            "/proc/meminfo": "MemTotal: 1056760000 kB\n",
            "/proc/cpuinfo": "processor : 0\nvendor_id : GenuineIntel\nmodel name : Xeon\n",
            "/proc/cmdline": "ro quiet\n",
            "/proc/modules": "ext4 1 0 - Live 0x0\n",
            "/proc/version": "Linux version\n",
        }
        self.offered, self.installed, self.held, self.brings = {}, {}, set(), {}
        self.units, self.modules, self.done = {}, set(), []
        self.answers = {
            "lspci -Dnn": H100, "uname -m": "x86_64\n", "stat -c %.9Y": "", "lspci -vvv": "", "mokutil": 127,
            "grubby": 127, "ofed_info": 127, "systemd-detect-virt": "none\n", "nvidia-smi": 127,
        }  # fmt: skip

    def offer(self, *versions, **more):
        """What the repositories have: ``name=version`` words, and more by name."""
        for word in (*versions, *(f"{name}={version}" for name, version in more.items())):
            name, _, version = word.partition("=")
            self.offered.setdefault(name, []).append(version)

    def load(self, version):
        """The open driver of this version runs."""
        self.files["/proc/driver/nvidia/version"] = DRIVER.format(version)

    def batch(self, questions):
        return [self.answer(question) for question in questions]

    def answer(self, question):
        if isinstance(question, Command):
            said = self.say(list(question.words), question.stdin)
            said = (0, said) if isinstance(said, str) else (said,) if isinstance(said, int) else said
            return Completed("n1", question, *said)
        found = [p for glob in question.globs for p in sorted(self.files) if fnmatch.fnmatch(p, glob)]
        return Completed("n1", question, 0, "".join(f"{p}\0{self.files[p]}\0" for p in found))

    def say(self, words, stdin=""):
        line = " ".join(words)
        starts = [start for start in self.answers if line.startswith(start)]
        if starts:
            said = self.answers[max(starts, key=len)]
            return said(words) if callable(said) else said
        if words[0] == "env":
            return self.say(words[words.index("apt-get") :])
        return getattr(self, "_" + re.sub(r"\W", "_", words[0]))(words[1:], stdin)

    def _sh(self, words, stdin):
        script, path = words[1], words[3] if len(words) > 3 else ""
        if script.startswith("stat -c %a"):
            if path not in self.files:
                return 0, "", "No such file or directory"
            return 0, f"644:root:root:0:0:regular file\n{self.files[path]}"
        if script.startswith("umask 022; mkdir"):
            self.files[path] = stdin
            return 0
        raise AssertionError(f"the made-up node has no answer to: {script}")

    def _rm(self, words, _):
        self.files.pop(words[-1])
        return 0

    def _dpkg(self, *_):
        return 127 if self.red_hat else ""

    def _query(self, words, *, foreign, fields):
        """What dpkg-query and rpm print of installed packages, a pattern too."""
        if foreign:
            return 127
        if words[0] == "--version":
            return "1.21\n"
        form, names = words[words.index("--qf") + 1] if "--qf" in words else words[1].removeprefix("-f="), words[2:]
        out = ""
        for pattern in names:
            for name, version in self.installed.items():
                if fnmatch.fnmatch(name, pattern):
                    row = form
                    for field, value in fields(name, version).items():
                        row = row.replace(field, value)
                    out += row
        return (0 if out else 1), out

    def _dpkg_query(self, words, _):
        return self._query(words, foreign=self.red_hat, fields=lambda name, version: {
            "${Package}": name, "${Version}": version, "${db:Status-Abbrev}": "hi " if name in self.held else "ii ",
        })  # fmt: skip

    def _rpm(self, words, _):
        return self._query(words, foreign=not self.red_hat, fields=lambda name, version: {
            "%{NAME}": name, "%{EPOCHNUM}": "3", "%{EPOCH}": "3", "%{VERSION}-%{RELEASE}": version,
        })  # fmt: skip

    def _apt_cache(self, words, _):
        rows = [(name, version) for name in words[2:] for version in reversed(self.offered.get(name, []))]
        return 127 if self.red_hat else "".join(f" {n} | {v} | http://repo Packages\n" for n, v in rows)

    def _apt_mark(self, words, _):
        if words[0] == "showhold":
            return 127 if self.red_hat else "".join(f"{name}\n" for name in self.held)
        change = self.held.update if words[0] == "hold" else self.held.difference_update
        change(words[2:])
        return 0

    def _apt_get(self, words, _):
        if "indextargets" in words:
            return "list\n" if "lists" in self.files else ""
        if "update" in words:
            self.files["lists"] = ""
            return 0
        return self._transaction(words, "=", "Inst {} ({} repo)\n", "1 upgraded, 1 newly installed", "-s")

    def _dnf(self, words, _):
        if "versionlock" in words:
            if "add" in words:
                rows = (f"{name}-3:{self.installed[name]}.*\n" for name in words[words.index("add") + 1 :])
                path = "/etc/dnf/plugins/versionlock.list"
                self.files[path] = self.files.get(path, "") + "".join(rows)
            return 0
        return self._transaction(words, "-", TABLE, "Operation aborted", "--assumeno")

    def _transaction(self, words, between, row, end, rehearsal):
        """An installation or removal, rehearsed or done."""
        verb, named = words[words.index("--") - 1], words[words.index("--") + 1 :]
        chosen = {}
        for word in named if verb == "install" else ():
            name = next((n for n in sorted(self.offered, key=len, reverse=True)
                         if word == n or word.startswith(n + between)), None)  # fmt: skip
            wanted = word[len(name) + 1 :] if name else ""
            fitting = [v for v in self.offered.get(name, []) if v == wanted or not wanted
                       or (self.red_hat and v.startswith(wanted + "-"))]  # fmt: skip
            if not fitting:
                return 100, "", f"E: Unable to locate package {word}\nNo match for argument: {word}\n"
            chosen[name] = fitting[-1]
        if rehearsal in words:
            return "".join(row.format(*entry) for entry in chosen.items()) + end
        for name in named if verb == "remove" else ():
            self.installed.pop(name)
        self.installed.update(chosen)
        for name, version in chosen.items():
            self.brings.get(name, lambda _: None)(version)
        return 0

    def _systemctl(self, words, _):
        unit = words[-1]
        state = self.units.get(unit)
        for path in self.files:
            if path == f"/etc/systemd/system/{unit}" and state is None:
                state = self.units[unit] = {"ActiveState": "inactive", "UnitFileState": "disabled"}
        if words[0] == "show":
            if state is None:
                return "LoadState=not-found\nActiveState=inactive\nNeedDaemonReload=no\n"
            return "LoadState=loaded\nNeedDaemonReload=no\n" + "".join(f"{k}={v}\n" for k, v in state.items())
        if words[0] in ("start", "restart", "stop"):
            state["ActiveState"] = "inactive" if words[0] == "stop" else "active"
            self.run_script(unit)
        if words[0] in ("enable", "disable"):
            state["UnitFileState"] = f"{words[0]}d"
        return 0

    def run_script(self, unit):
        """What is left of a boot script: the mark that it ran."""
        name = unit.removeprefix("gpuops-").removesuffix(".service")
        text = self.files.get(f"/usr/local/lib/gpuops/{name}.sh", "")
        for mark, path in re.findall(r"^echo (\S+) >(/run/\S+)$", text, re.MULTILINE):
            self.files[path] = f"{mark}\n"

    def unit(self, *names, active=False):
        """Units that the node has."""
        for name in names:
            told = name if "." in name else f"{name}.service"
            on = "active" if active else "inactive"
            self.units[told] = {"ActiveState": on, "UnitFileState": "enabled" if active else "disabled"}

    def _modinfo(self, words, _):
        return f"/lib/modules/{words[-1]}.ko\n" if words[-1] in self.modules else 1

    def _modprobe(self, words, _):
        self.files[f"/sys/module/{words[-1]}"] = ""
        return 0

    def _update_initramfs(self, *_):
        return 0

    def _getent(self, *_):
        return 0, "munge:x:64:64::/:/bin/false\n"


@pytest.fixture
def node(request):
    """A made-up node: Ubuntu 24.04, or as the test's parameter says."""
    return MadeUpNode(getattr(request, "param", "ubuntu 24.04"))


@pytest.fixture
def look():
    """What a task would do on a node now."""
    library = TaskRegistry(ROOT)

    def look(node, name, /, **params):
        task = library[name]
        return plan(task, as_params(task, params), Machine("n1"), node.batch, library)

    return look


@pytest.fixture
def apply(look):
    """Brings a node to what a task says, as the engine does, and tells what was done."""

    def apply(node, name, /, **params):
        done = []
        for _ in range(MOST_PHASES):
            found = look(node, name, **params)
            assert found.stop is None, found.stop
            past = [change for change in found.changes if change.kind == "state" or change.what not in done]
            if not past:
                assert found.later == []
                break
            assert not {change.what for change in past} & set(done), "did not hold"
            for change in past:
                answer = node.answer(change.command)
                assert answer.exit in change.exits, answer
                done.append(change.what)
                node.done.append(str(change.command))
        else:
            raise AssertionError(f"does not settle: {done}")
        return done

    return apply
