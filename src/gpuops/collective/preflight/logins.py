"""Logins by ssh from where a job is typed to its nodes, with which mpirun and deepspeed start their ranks; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gpuops.collective.preflight.causes import Cause, is_loopback
from gpuops.collective.preflight.launch_command import LaunchCommand
from gpuops.shell import Command, Completed

_NAMES = ("mpirun", "mpiexec", "deepspeed")
_OTHERWISE = ("plm_rsh_agent", "plm", "--no-ssh", "--launcher")
"""Options with which a launcher does not log in by plain ssh."""
_SECONDS = 90.0
_SCRIPT = r"""
program=$1
shift
command -v -- "$program" >/dev/null || exit 127
for host; do
    case $host in localhost | 127.* | "$(uname -n)") continue ;; esac
    {
        told=$(ssh -o BatchMode=yes -o ConnectTimeout=10 "$host" true 2>&1 >/dev/null </dev/null) ||
            echo "$host $(printf %s "$told" | tr -d '\r' | tail -n 1)"
    } &
    started=$((started + 1))
    [ $((started % 32)) -ne 0 ] || wait
done
wait
"""


def question(command: LaunchCommand, addresses: Sequence[str], environ: Mapping[str, str]) -> Command | None:
    """Return the query for the machine where ``command`` is typed; None if it does not log in to other nodes by ssh.

    ``addresses`` are those of the nodes for gpuops: ports of one machine, as a lab has, are no hosts of other programs.
    In a job of Slurm (``environ``), Open MPI and MPICH start their ranks by Slurm.
    """
    launcher = next((word for word in command.words if word.rpartition("/")[2] in _NAMES), "")
    options = {word.partition("=")[0] for word in command.words}
    if command.launcher not in ("mpirun", "deepspeed") or len(command.hosts) < 2 or options & {*_OTHERWISE}:
        return None
    if "SLURM_JOB_ID" in environ or all(map(_is_here, addresses)):
        return None
    return Command(("sh", "-c", _SCRIPT, "sh", launcher, *command.hosts), timeout_seconds=_SECONDS)


def _is_here(address: str) -> bool:
    try:
        return is_loopback(address)
    except ValueError:
        return address == "localhost"


def causes(command: LaunchCommand, answer: Completed, where: str, node_by_host: Mapping[str, str]) -> Iterator[Cause]:
    """Yield the hosts to which ``where`` the command is typed nobody can log in without being asked anything."""
    for line in answer.out.splitlines():
        host, _, error = line.partition(" ")
        why = f"{command.launcher} on {where} cannot log in to {host} by ssh: {error or 'no reason was given'}"
        yield Cause("ssh", (node_by_host.get(host, host),), why, _fix(host, error, where))


def _fix(host: str, error: str, where: str) -> str:
    """Return what to do, by the last line that ssh printed."""
    if "Host key verification failed" in error:
        return f"ssh {host} true   on {where}, and compare and accept its host key"
    if "Permission denied" in error:
        return f"ssh-copy-id {host}   on {where}"
    return f"ssh {host} true   on {where} must work without a question"
