"""The commands that are killed: how each begins, what it leaves undisturbed, and what may be there in between."""

import json
from dataclasses import dataclass

from gpuops import Cluster


@dataclass(frozen=True)
class Verb:
    """``words`` start it in a project that is ``before``; ``end`` returns its end state, and ``between`` what is wrong.

    ``lines`` is true if it keeps a journal.
    """

    words: tuple[str, ...]
    end: object
    before: str = "bare"
    between: object = lambda _world: ""
    lines: bool = False


def _provisioned(world):
    return world.files()


def _onboarded(world):
    return [world.files(), world.states(), world.slurm()]


def _saved(world):
    with Cluster.saved(world.project / "saved") as saved:
        facts = saved.facts()
        return {name: sorted(each.values) for name, each in facts.values.items()}


def _half_saved(world):
    return "; ".join(
        f"{path.name} is no JSON" for path in (world.project / "saved").glob("*.json") if not _is_json(path)
    )


def _reported(world):
    report = json.loads((world.project / "report.json").read_text())
    return [report["summary"], sorted(report["hosts"])]


def _half_reported(world):
    path = world.project / "report.json"
    return "" if not path.exists() or _is_json(path) else "report.json is no JSON"


def _is_json(path):
    try:
        json.loads(path.read_text())
    except ValueError:
        return False
    return True


def _closed(world):
    return [world.states(), world.slurm()]


VERBS = {
    "provision": Verb(("provision", "p.yml"), _provisioned, lines=True),
    "onboard": Verb(("onboard", "--playbook", "p.yml", "--skip-gate", "burn-in", "--skip-gate", "pair", "--skip-gate",
                     "validate", "gpu01", "gpu02"), _onboarded, lines=True),
    "facts": Verb(("facts", "--save", "saved"), _saved, between=_half_saved),
    "validate": Verb(("validate", "-o", "report.json"), _reported, between=_half_reported),
    "state": Verb(("state", "set", "gpu0[1-2]", "repair", "--reason", "lost"), _closed, before="admitted"),
    "drain": Verb(("drain", "gpu0[1-2]", "--reason", "fan"), _closed, before="admitted"),
    "allreduce": Verb(("allreduce", "--engine", "tcp"), _closed, before="admitted"),
}  # fmt: skip
