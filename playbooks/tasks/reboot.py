"""A reboot, verified by a new boot ID."""

from dataclasses import dataclass

from gpuops import Change, Command, Files, Plan, read_files, task

_FLAGS = ("/run/reboot-required", "/run/reboot-required.pkgs")


@dataclass(frozen=True)
class Params:
    """``reason`` is recorded and shown. ``only_if_required`` skips a node that does not need a reboot."""

    reason: str
    only_if_required: bool = False


@task
def reboot(params: Params) -> Plan:
    """The node is back when it answers with a new boot ID; before that, it may not have gone down yet.

    A node requests a reboot with /run/reboot-required (Debian, Ubuntu) or through needs-restarting -r (RHEL, Rocky).
    """
    if not params.only_if_required:
        yield Change(f"reboot: {params.reason}", reboot=params.reason, kind="rebuild")
        return
    flags, needs = yield (Files(_FLAGS), Command(("needs-restarting", "-r"), timeout_seconds=60, become="if-refused"))
    files = read_files(flags.out)
    if files or needs.exit == 1:  # 127: no such program, as on Debian
        packages = ", ".join(sorted(set(files.get(_FLAGS[1], "").split())))
        why = f"{params.reason} ({packages})" if packages else params.reason
        yield Change(f"reboot: {why}", reboot=why)
