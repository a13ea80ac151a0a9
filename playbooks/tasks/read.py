"""A text file of the node, as a value."""

from dataclasses import dataclass

from gpuops import Command, Failed, Plan, task

# What is not there is an answer, and what cannot be looked at is not, so that root tries again only that.
_LOOK = """\
stat -c %a:%U:%G:%F -- "$1" || { stat -- "$1" 2>&1 | grep -q "No such file"; exit; }
if [ -f "$1" ] && [ ! -h "$1" ]; then cat -- "$1"; fi
"""


@dataclass(frozen=True)
class Params:
    """``path`` of the file on the node."""

    path: str

    def __post_init__(self) -> None:
        """A path from the root."""
        if not self.path.startswith("/"):
            raise ValueError(f'path must start with "/", found "{self.path}"')


@task
def read(params: Params) -> Plan:
    """``register`` keeps its ``content``, ``mode``, ``owner`` and ``group``, or none where nothing has that name.

    What is no plain file of UTF-8 text is a failure, so that no task changes a part of what it cannot read whole.
    """
    found = yield Command(("sh", "-c", _LOOK, "sh", params.path), become="if-refused")
    if "No such file" in found.err:
        return None
    about, _, content = found.out.partition("\n")
    if found.exit != 0 or found.truncated or about.count(":") != 3:
        yield Failed(f"{params.path} cannot be read: {found.last_words() or 'nothing is said of it'}")
    mode, owner, group, kind = about.split(":")
    if not kind.startswith("regular"):
        yield Failed(f"{params.path} is a {kind}; expected a file; if it is a link, name what it leads to")
    if "\ufffd" in content:
        yield Failed(f"{params.path} is not UTF-8 text; expected a text file")
    return {"content": content, "mode": mode, "owner": owner, "group": group}
