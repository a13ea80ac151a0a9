"""What tests read besides their own text: specimens, and a larger collection where one lies beside the checkout.

Specimens are written for these tests, in the tools' own formats. ``X.expect.json`` is what X says.
"""

import pathlib

HERE = pathlib.Path(__file__).parent
BESIDE = HERE.parents[1] / "shared"


def _present(*folders):
    return [folder for folder in folders if folder.is_dir()]


OUTPUTS = _present(HERE / "specimens" / "outputs", BESIDE / "captures")
"""Folders of what tools printed: a folder for each kind."""
CRDS = _present(HERE / "specimens" / "crds", BESIDE / "crds")
"""Folders of the schemas of Kubernetes' kinds."""
GROUPS = _present(HERE / "specimens" / "groups", BESIDE / "facts" / "launch-golden")
"""Folders of the groups that libraries make of ranks."""


def outputs(kind, pattern="*"):
    """Every output of a kind."""
    paths = (path for folder in OUTPUTS for path in sorted((folder / kind).glob(pattern)))
    return [path for path in paths if not path.name.endswith(".expect.json")]


def expectation_of(path):
    """Where it stands what an output says."""
    return path.with_name(f"{path.name}.expect.json")


def name_of(path):
    """A short name of a recorded file, as the id of a test."""
    return f"{path.parent.name}/{path.name}"
