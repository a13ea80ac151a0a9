"""The archive: private, complete, with a manifest that is true, and only the newest are kept."""

import datetime as dt
import hashlib
import json
import os
import stat
import tarfile

import pytest
from jsonschema import Draft202012Validator
from tests.unit.cli.test_schemas import SCHEMAS

from gpuops.bundle import archive
from gpuops.bundle.contents import Contents, File, LeftOut
from gpuops.errors import OutputError
from gpuops.files.replacing import private_directory

AT = dt.datetime(2026, 11, 24, 0, 15, tzinfo=dt.timezone.utc)
CONTENTS = Contents(
    (File("a.txt", b"evidence", "a -b", 0, needs_root=True, removed={"tokens": 2}),),
    (LeftOut("b.txt", "refused", "needs root"),),
)


def written(folder, node="gpu07", at=AT):
    manifest = archive.manifest_of(node, at, [], CONTENTS)
    return archive.write_bundle(folder, at, manifest, CONTENTS)


def test_only_its_owner_can_read_it_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        path = written(tmp_path)
    finally:
        os.umask(before)
    assert path.name == "gpu07-20261124T001500Z.tar.gz"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_manifest_comes_first_and_tells_the_truth(tmp_path):
    with tarfile.open(written(tmp_path)) as bundle:
        first, *others = bundle.getmembers()
        assert first.name == "gpu07-20261124T001500Z/manifest.json"
        manifest = json.load(bundle.extractfile(first))
        contents = {other.name.split("/")[1]: bundle.extractfile(other).read() for other in others}
        assert {entry.mode for entry in bundle} == {0o600}
    Draft202012Validator(SCHEMAS["bundle-1"]).validate(manifest)
    assert {file["name"]: (file["bytes"], file["sha256"]) for file in manifest["files"]} == {
        name: (len(content), hashlib.sha256(content).hexdigest()) for name, content in contents.items()
    }
    assert manifest["files"][0]["removed"] == {"tokens": 2}
    left_out = {each["what"]: each["reason"] for each in manifest["left_out"]}
    assert left_out["b.txt"] == "refused"
    assert left_out["shell history"] == left_out["environment variables"] == "user_data"


def test_a_name_of_a_node_cannot_leave_the_directory(tmp_path):
    path = written(tmp_path, "../../etc/x y")
    assert path.parent == tmp_path
    assert path.name.startswith("_.._etc_x_y-")


def test_what_cannot_be_written_is_one_sentence(tmp_path):
    with pytest.raises(OutputError, match="cannot write: No such file or directory; -o DIR names another directory"):
        written(tmp_path / "none")


def test_the_oldest_are_deleted_and_those_of_other_nodes_stay(tmp_path):
    ages = [AT + dt.timedelta(hours=hours) for hours in range(23)]
    for at in ages:
        written(tmp_path, at=at)
        written(tmp_path, "gpu07-2", at=at)
    (tmp_path / "gpu07-notes.tar.gz").write_text("mine")
    archive.prune(tmp_path, "gpu07", 20)
    kept = sorted(path.name for path in tmp_path.glob("gpu07-2026*"))
    assert kept == [f"gpu07-{at:%Y%m%dT%H%M%SZ}.tar.gz" for at in ages[3:]]
    assert len(list(tmp_path.glob("gpu07-2-*"))) == 23
    assert (tmp_path / "gpu07-notes.tar.gz").exists()


def test_a_new_directory_is_private(tmp_path):
    private_directory(tmp_path / "a" / "bundles")
    assert stat.S_IMODE((tmp_path / "a" / "bundles").stat().st_mode) == 0o700
