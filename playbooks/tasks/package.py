"""Packages of the distribution, optionally at exact versions."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from gpuops import Change, Command, Completed, Failed, Files, Later, Plan, read_files, task

_HOUR_SECONDS = 3600.0
_UPDATES = "/var/lib/dpkg/updates/0*"  # 0000 to 0250; apt also recognizes an interrupted dpkg by these
# dpkg does not wait for another dpkg
_FINISH = """\
for second in $(seq 120); do
    said=$(dpkg --configure -a 2>&1) && exit
    case $said in *"locked by another process"*) sleep 1 ;; *) break ;; esac
done
echo "$said" >&2; exit 1
"""
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+:~^_-]*")
_NO_SUCH = re.compile(
    r"Unable to locate|no installation candidate|Version '.*' for '.*' was not found|No match|no match"
    r"|\S+ : Depends: .* but it is not installable|nothing provides .*"  # outdated lists lack what others need
)


@dataclass(frozen=True)
class _Tool:
    """The commands of one family's tools; ``removing`` and ``renewing`` find packages in the output of a rehearsal."""

    program: tuple[str, ...]
    rehearse: tuple[str, ...]
    rehearsed_by: Literal["never", "always"]
    sure: tuple[str, ...]
    refresh: tuple[str, ...]
    downgrade: tuple[str, ...]
    held: tuple[str, ...]
    between: str
    rehearsed: re.Pattern[str]
    removing: re.Pattern[str]
    renewing: re.Pattern[str]


_ENVIRONMENT = ("env", "DEBIAN_FRONTEND=noninteractive", "NEEDRESTART_MODE=l")
_LOCK = ("-o", "DPkg::Lock::Timeout=120")
_APT = _Tool(
    program=(
        *_ENVIRONMENT,
        "apt-get",
        "-q",
        *_LOCK,
        "-o",
        "Dpkg::Options::=--force-confold",
        "--no-install-recommends",
    ),
    rehearse=("-s", "-y"),
    rehearsed_by="never",
    sure=("-y",),
    # without this error mode, an unreachable repository is only a warning, and the lists stay outdated
    refresh=("apt-get", "-q", *_LOCK, "-o", "APT::Update::Error-Mode=any", "update"),
    downgrade=("--allow-downgrades",),
    held=("--allow-change-held-packages",),
    between="=",
    rehearsed=re.compile(r"\d+ upgraded, \d+ newly installed"),
    removing=re.compile(r"^Remv (\S+)", re.MULTILINE),
    renewing=re.compile(r"^Inst (\S+)(?: \[(\S+)\])? \((\S+)", re.MULTILINE),
)
_DNF = _Tool(
    program=("dnf",),
    rehearse=("--assumeno",),
    rehearsed_by="always",  # "This command has to be run with superuser privileges", even for queries
    sure=("-y",),
    refresh=("dnf", "makecache", "--refresh"),
    downgrade=(),  # an exact version is enough
    held=("--disableplugin=versionlock",),
    between="-",
    rehearsed=re.compile("Operation aborted|Nothing to do"),
    # rows of a table: name, architecture, version, repository (with an @ for what is installed), size; long names wrap
    removing=re.compile(r"^ (\S+)\s+\S+ +\S+ +@\S+ +[\d.]+ ", re.MULTILINE),
    renewing=re.compile(r"^ (\S+)()\s+\S+ +(\d\S*) +[^@\s]\S* +[\d.]+ ", re.MULTILINE),
)


@dataclass(frozen=True)
class Params:
    """``names`` at any version, and ``versions`` as ``{name: version}``, exactly; ``state`` is present or absent.

    Changes that would remove another package are refused, unless ``allow_remove`` names it. ``allow_downgrade`` lets an
    older version replace a newer one; ``change_held`` lets held packages change. All packages change in one
    transaction. If the node runs systemd, the transaction outlives a lost connection, unless ``detach`` is false.
    """

    names: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    state: Literal["present", "absent"] = "present"
    allow_remove: tuple[str, ...] = ()
    allow_downgrade: bool = False
    change_held: bool = False
    detach: bool = True

    def __post_init__(self) -> None:
        """Raise `ValueError` without packages, or for a word that a tool could take for an option."""
        if not (self.names or self.versions):
            raise ValueError("set names, or versions as {name: version}")
        for word in (*self.names, *self.versions, *self.versions.values()):
            if not _WORD.fullmatch(word):
                raise ValueError(f'"{word}" is not a valid package name or version')


@task
def package(params: Params) -> Plan:
    """The packages are installed or removed, through apt on Debian and Ubuntu, through dnf on RHEL and Rocky.

    The package lists are read again if they lack what is needed. An interrupted run of dpkg is completed first.
    """
    names = (*params.names, *params.versions)
    debian, red_hat, unfinished, updates = yield (
        Command(("dpkg-query", "-W", "-f=${Package}\t${Version}\t${db:Status-Abbrev}\n", "--", *names)),
        Command(("rpm", "-q", "--qf", "%{NAME}\t%{EPOCH}:%{VERSION}-%{RELEASE}\n", "--", *names)),
        Command(("dpkg", "--audit")),
        Files((_UPDATES,)),
    )
    if debian.missing and red_hat.missing:
        yield Failed("the node has neither dpkg nor rpm, so its packages are unknown")
    if not debian.missing and (unfinished.out.strip() or read_files(updates.out)):
        finish = Command((*_ENVIRONMENT, "sh", "-c", _FINISH), _HOUR_SECONDS, become="always")
        yield Change("complete the interrupted dpkg", finish, before=unfinished.out, detach=params.detach)
        yield Later(f"{', '.join(names)}: unknown until dpkg is completed")
        return
    installed = _installed(red_hat if debian.missing else debian)
    wrong = {name: installed.get(name, ()) for name in names if not _right(params, name, installed.get(name, ()))}
    if wrong:
        yield from _transaction(params, _DNF if debian.missing else _APT, wrong)


def _installed(answer: Completed) -> dict[str, tuple[str, ...]]:
    """Return each installed package with every spelling of its version."""
    versions_by_package: dict[str, tuple[str, ...]] = {}
    for line in answer.out.splitlines():
        name, version, status = (*line.split("\t"), "rpm", "")[:3]
        if status == "rpm" and version != "rpm":
            bare = version.removeprefix("(none):").rpartition(":")[2]
            versions_by_package[name] = (version.removeprefix("(none):"), bare, bare.rpartition("-")[0])
        elif status[1:2] == "i":  # "ii" installed, "hi" installed and on hold; "rc", "iU", "iF" are not
            versions_by_package[name] = (version,)
    return versions_by_package


def _right(params: Params, name: str, versions: tuple[str, ...]) -> bool:
    if params.state == "absent":
        return not versions
    return params.versions[name] in versions if name in params.versions else bool(versions)


def _transaction(params: Params, tool: _Tool, wrong: Mapping[str, tuple[str, ...]]) -> Plan:
    """Rehearse the transaction, refuse removals that are not allowed, and plan it."""
    pinned = params.versions if params.state == "present" else {}
    words = [f"{name}{tool.between}{pinned[name]}" if name in pinned else name for name in wrong]
    verb = "install" if params.state == "present" else "remove"
    options = (*(tool.downgrade if params.allow_downgrade else ()), *(tool.held if params.change_held else ()))
    tail = (*options, verb, "--", *words)
    tried = yield Command((*tool.program, *tool.rehearse, *tail), timeout_seconds=120, become=tool.rehearsed_by)
    output = tried.out + tried.err
    removed = sorted({m[1] for m in tool.removing.finditer(output)} - {*params.allow_remove, *wrong})
    if _NO_SUCH.search(output):
        yield Change("read the package lists again", Command(tool.refresh, 300, become="always"), kind="rebuild")
        yield Later(f"no repository offers {', '.join(words)}: {_complaint(tried)}")
    elif not tool.rehearsed.search(output):
        yield Failed(f"cannot {verb} {', '.join(words)}: {_complaint(tried)}")
    elif removed:
        yield Failed(
            f"to {verb} {', '.join(words)} would remove {', '.join(removed)}; list them in allow_remove to accept that"
        )
    else:
        command = Command((*tool.program, *tool.sure, *tail), timeout_seconds=_HOUR_SECONDS, become="always")
        before, after = _difference(tool, output)
        leaves = _left(params, tool, wrong, output)
        yield Change(
            f"{verb} {', '.join(words)}", command, before=before, after=after, detach=params.detach, leaves=leaves
        )


def _left(params: Params, tool: _Tool, wrong: Iterable[str], output: str) -> dict[str, dict[str, str] | None]:
    """Return the packages after the transaction, as far as the rehearsal tells."""
    gone = {f"package {m[1]}": None for m in tool.removing.finditer(output)}
    new = {f"package {m[1]}": {"version": m[3]} for m in tool.renewing.finditer(output)}
    asked = {f"package {name}": {"version": params.versions.get(name, "")} for name in wrong}
    return {**(asked if params.state == "present" else dict.fromkeys(asked)), **new, **gone}


def _complaint(tried: Completed) -> str:
    """Return the most informative line: a package that another needs, or the first error."""
    lines = [line.strip() for line in (tried.out + tried.err).splitlines()]
    needed = (line for line in lines if line.endswith("but it is not installable"))
    errors = (line for line in lines if line.startswith(("E:", "Error", "All matches")))
    return next(needed, next(errors, tried.last_words())).removeprefix("E: ")


def _difference(tool: _Tool, output: str) -> tuple[str, str]:
    """Return the packages before and after, one per line, from the output of the rehearsal."""
    renewed = [m.groups("") for m in tool.renewing.finditer(output)]
    before = [f"{name} {old}\n" for name, old, _ in renewed if old]
    gone = [f"{m[1]}\n" for m in tool.removing.finditer(output)]
    return "".join([*before, *gone]), "".join(f"{name} {new}\n" for name, _, new in renewed)
