"""A test, from the node, that its repositories answer. Nothing is changed."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gpuops import Command, Failed, Plan, task, use

# uses a directory of its own, and reads only the signed heads of apt's lists, which are short; hooks that run after an
# update are disabled
_ASK = """\
folder=$(mktemp -d) && trap 'rm -rf -- "$folder"' EXIT || exit
trap 'exit 143' HUP INT TERM
if command -v apt-get >/dev/null; then
    mkdir -- "$folder/partial"
    cat >"$folder/conf" <<END
#clear APT::Update;
#clear Acquire::IndexTargets;
APT::Update::Error-Mode "any";
Acquire::Retries "1";
Acquire::http::Timeout "20";
Debug::NoLocking "true";
Dir::State::Lists "$folder";
Dir::Cache { pkgcache ""; srcpkgcache ""; };
END
    apt-get -q -c "$folder/conf" update
else
    dnf -q -y --setopt=cachedir="$folder" --setopt="*.skip_if_unavailable=0" --setopt=timeout=20 makecache
fi
"""
_COMPLAINT = re.compile(r"^(?:E: |Error: )?(.*(?:Failed to |GPG error|not signed|not valid).*)", re.MULTILINE)


@dataclass(frozen=True)
class Params:
    """``nvidia`` adds repositories that the node may not have yet, with parameters as in the task nvidia_repo."""

    nvidia: tuple[Mapping[str, str], ...] = ()


@task
def repos_reachable(params: Params) -> Plan:
    """Names resolve, proxies answer, and signatures are valid, which also needs the right time on the node.

    Tested with dnf 4.14 on Debian, not on a real RHEL or Rocky.
    """
    answer = yield Command(("sh", "-c", _ASK), timeout_seconds=180, become="if-refused")
    if answer.missing:
        yield Failed("the node has neither apt nor dnf")
    if answer.exit != 0 or answer.timed_out:
        complaint = _COMPLAINT.search(answer.err + answer.out)
        yield Failed(f"a repository does not answer: {complaint[1] if complaint else answer.last_words()}")
    for repository in params.nvidia:
        yield from use("nvidia_repo", **{**repository, "state": "offered"})
