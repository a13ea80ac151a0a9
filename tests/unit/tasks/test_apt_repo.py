import pytest

from gpuops import Failed
from gpuops.errors import DocumentError

CUDA = {
    "name": "cuda",
    "uris": ["https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64/"],
    "suites": ["/"],
    "signed_by": "/etc/apt/keyrings/cuda.asc",
}
SOURCE = """\
Types: deb
URIs: https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64/
Suites: /
Signed-By: /etc/apt/keyrings/cuda.asc
"""
PATH = "/etc/apt/sources.list.d/cuda.sources"
LISTS = "/var/lib/apt/lists/developer_Packages.lz4\n"


def script(source=None, lists=""):
    """A node whose source file, and whose lists of that source, are these."""
    return {"apt-get": lists} if source is None else {"apt-get": lists, PATH: source}


def whats(found):
    return [change.what for change in found.changes]


def test_a_source_that_is_there_and_read_is_left_alone(planned):
    found = planned("apt_repo", script(SOURCE, LISTS), **CUDA)
    assert (found.changes, found.later) == ([], [])


def test_a_new_source_is_written_and_its_lists_are_read(planned):
    found = planned("apt_repo", script(), **CUDA)
    assert whats(found) == [f"write {PATH}", f"read the lists of {CUDA['uris'][0]}"]
    assert found.changes[0].after == SOURCE
    assert len(found.later) == 1
    words = found.changes[1].command.words
    assert {f"Dir::Etc::SourceList={PATH}", "APT::Update::Error-Mode=any", "update"} <= set(words)


def test_lists_that_were_never_read_are_read(planned):
    assert len(planned("apt_repo", script(SOURCE), **CUDA).changes) == 1


def test_a_source_of_another_release_is_replaced_and_read_again(planned):
    old = SOURCE.replace("2404", "2204")
    found = planned("apt_repo", script(old, LISTS), **CUDA)
    assert whats(found)[0] == "replace /etc/apt/sources.list.d/cuda.sources"
    assert len(found.changes) == 2


def test_every_row_that_is_given_is_written(planned):
    more = {"components": ["main", "contrib"], "architectures": ["amd64"]}
    text = planned("apt_repo", script(), **{**CUDA, **more}).changes[0].after
    assert "Components: main contrib\nArchitectures: amd64\n" in text


def test_files_that_speak_of_the_same_go_away_first(planned):
    old, other = "/etc/apt/sources.list.d/nvidia-docker.list", "/etc/apt/sources.list.d/docker.list"
    found = planned(
        "apt_repo", {**script(SOURCE, LISTS), old: "deb x", other: "deb y"}, **CUDA, replaces=["nvidia-d*.list"]
    )
    assert whats(found) == [f"remove {old}"]


def test_an_absent_source_is_removed(planned):
    assert whats(planned("apt_repo", script(SOURCE), name="cuda", state="absent")) == [
        "remove /etc/apt/sources.list.d/cuda.sources"
    ]


def test_a_node_without_apt_is_told_so(planned):
    assert isinstance(planned("apt_repo", script(lists=127), **CUDA).stop, Failed)


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "../x"},
        {"name": "a b"},
        {"replaces": ["/etc/passwd"]},
        {"uris": ["http://x/\nTrusted: yes"]},
        {"uris": []},
        {"signed_by": ""},
        {"signed_by": "3BF863CC"},
    ],
)
def test_a_source_is_whole_signed_and_holds_no_foreign_row(planned, wrong):
    with pytest.raises(DocumentError, match="apt_repo"):
        planned("apt_repo", {}, **{**CUDA, **wrong})
