"""The world of the kills: a project, two lab hosts behind connections that can be killed, and a Slurm made of files."""

import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from gpuops.lab import cluster

HERE = pathlib.Path(__file__).parent
NAMES = ("gpu01", "gpu02")
PLAYBOOK = """\
- hosts: all
  tasks:
    - file: {path: /etc/purpose, content: "jobs\\n"}
    - name: Half a second of work
      command:
        words: [sh, -c, 'sleep 0.5; echo made >>"$1"', sh, /etc/made]
        creates: /etc/made
        become: always
      notify: apply
    - name: A unit's work
      command:
        words: [sh, -c, 'sleep 0.5; echo made >>"$1"', sh, /etc/detached]
        creates: /etc/detached
        become: always
        detach: true
  handlers:
    - name: apply
      file: {path: /etc/applied, content: "yes\\n"}
"""
SETTINGS = "inventory: inventory.yml\nscheduler: slurm\nlease: drain\nmax_closed: {run: 100%, day: 100%}\n"
TARGETS = ("client", "agent", "sshd")
_END_SECONDS = 20.0


class World:
    """A project folder with two hosts; as a context it takes the lab down."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gpuops-kills-"))
        self.project = self.folder / "project"
        self.lab = self.folder / "lab" / ".gpuops" / "lab"
        hosts = cluster.up(self.lab, "hgx-h100", len(NAMES), [])
        state = json.loads((self.lab / "state.json").read_text())
        self.sandbox, self.server = pathlib.Path(state["sandbox"]), state["pid"]
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir()
        ports = [str(host.port) for host in hosts]
        words = [sys.executable, HERE / "proxy.py", *ports]
        self.proxy = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True)
        self._make_project(dict(zip(ports, self.proxy.stdout.readline().split(), strict=True)))
        self.keep("bare")

    def _make_project(self, forwarded):
        """Write the project, with the proxy's ports in the inventory and in known_hosts."""
        (self.project / "slurm" / "nodes").mkdir(parents=True)
        (self.project / "slurm" / "reservations").mkdir()
        known, inventory = (self.lab / "known_hosts").read_text(), (self.lab / "inventory.yml").read_text()
        for port, through in forwarded.items():
            known = known.replace(f"]:{port} ", f"]:{through} ")
            inventory = inventory.replace(f"ansible_port: {port},", f"ansible_port: {through},")
        (self.project / "known_hosts").write_text(known)
        inventory = inventory.replace(str(self.lab / "known_hosts"), str(self.project / "known_hosts"))
        (self.project / "inventory.yml").write_text(inventory)
        (self.project / "gpuops.yml").write_text(SETTINGS)
        (self.project / "p.yml").write_text(PLAYBOOK)
        (self.project / "bin").mkdir()
        for program in ("sinfo", "squeue", "scontrol"):
            shutil.copy(HERE / "slurm.sh", self.project / "bin" / program)
            (self.project / "bin" / program).chmod(0o755)
        for name in NAMES:
            (self.project / "slurm" / "nodes" / name).write_text("idle|none\n")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.killpg(self.proxy.pid, signal.SIGKILL)
        self.proxy.wait()
        self.proxy.stdout.close()
        cluster.down(self.lab)
        shutil.rmtree(self.folder)

    def root(self, name):
        """The folder with a host's own files."""
        return self.sandbox / "hosts" / name / "root"

    def keep(self, state):
        """Keep project and hosts as they are now, for `restore`."""
        kept = self.folder / state
        kept.mkdir()
        subprocess.run(["cp", "-a", self.project, kept / "project"], check=True)
        for name in NAMES:
            subprocess.run(["cp", "-a", self.root(name), kept / name], check=True)

    def restore(self, state):
        """Bring project and hosts back to what was kept."""
        for own, kept in [(self.project, "project"), *((self.root(name), name) for name in NAMES)]:
            shutil.rmtree(own)
            subprocess.run(["cp", "-a", self.folder / state / kept, own], check=True)

    def start(self, *words, line=0):
        """Start gpuops; with a ``line`` it stops as soon as that line of its journal is on disk."""
        program = [HERE / "striking.py", str(line)] if line else ["-m", "gpuops"]
        path = f"{self.project / 'bin'}:{os.environ['PATH']}"
        places = {"TMPDIR": str(self.temporary), "XDG_STATE_HOME": str(self.folder / "home")}
        environment = {**os.environ, "PATH": path, "GPUOPS_INVENTORY": "", **places}
        with (self.project.parent / "told").open("wb") as told:
            return subprocess.Popen([sys.executable, *program, *words], cwd=self.project, stdout=told, stderr=told,
                                    stdin=subprocess.DEVNULL, env=environment, start_new_session=True)  # fmt: skip

    def gpuops(self, *words, seconds=180.0):
        """Run gpuops to its end; return its exit code and what it told."""
        process = self.start(*words)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            code = f"none within {seconds:g} s, {process.wait()}"
        return code, self.told()

    def told(self):
        """What the last gpuops told."""
        return (self.project.parent / "told").read_text("utf-8", "replace")

    def kill(self, target, process, chance):
        """Kill with -9: the client, one process on a host, or the server's side of one connection or of all."""
        victims = {"client": [process.pid], "agent": self.on_hosts(), "sshd": _children(self.proxy.pid)}[target]
        chosen = victims if target == "sshd" and chance.random() < 0.5 else chance.sample(victims, min(1, len(victims)))
        for pid in chosen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(chosen)

    def on_hosts(self):
        """The processes on the hosts: all whose command line has a path of a host's, but for the lab's own server."""
        mark = str(self.sandbox / "hosts").encode()
        return [pid for pid, line in _processes() if mark in line]

    def left(self):
        """What is left after a run that came to its end, in words."""
        ends = time.monotonic() + _END_SECONDS
        while self.on_hosts() and time.monotonic() < ends:
            time.sleep(0.1)
        yield from (f"process {pid} on a host" for pid in self.on_hosts())
        for name in NAMES:
            run = self.root(name) / "run"
            yield from (f"{name}: {path.relative_to(run)}" for path in run.glob("gpuops/lock"))
            yield from (f"{name}: unit {path.name}" for path in run.glob("units/gpuops-*"))
        yield from (f"reservation {path.name}" for path in (self.project / "slurm" / "reservations").iterdir())

    def names(self):
        """The files of the project, without those that each run has for itself."""
        paths = (path.relative_to(self.project) for path in self.project.rglob("*") if path.is_file())
        return sorted(
            str(path) for path in paths if "runs" not in path.parts and not path.name.endswith(("-wal", "-shm"))
        )

    def files(self):
        """What a playbook wrote on each host."""
        return {f"{name}:{file}": (self.root(name) / "etc" / file).read_text()
                for name in NAMES for file in ("purpose", "made", "detached", "applied")
                if (self.root(name) / "etc" / file).exists()}  # fmt: skip

    def slurm(self):
        """Slurm's nodes."""
        return {name: (self.project / "slurm" / "nodes" / name).read_text().strip() for name in NAMES}

    def states(self):
        """The state of each node in the store."""
        code, told = self.gpuops("state", "list", "--json")
        return {name: event["state"] for name, event in json.loads(told)["hosts"].items()} if code == 0 else told


def _processes():
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            yield int(folder.name), (folder / "cmdline").read_bytes()


def _children(parent):
    """The processes whose parent is ``parent``."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(folder.name))
    return found


def chance_of(seed):
    """A source of random choices."""
    return random.Random(seed)
