import pytest

from gpuops.errors import DocumentError

REPO = {
    "name": "cuda-rhel9-x86_64",
    "baseurl": "https://developer.download.nvidia.com/compute/cuda/repos/rhel9/x86_64/",
    "gpgkey": "file:///etc/pki/rpm-gpg/RPM-GPG-KEY-nvidia",
    "exclude": ["mft*", "kernel-mft*"],
}
TEXT = """\
[cuda-rhel9-x86_64]
name=cuda-rhel9-x86_64
baseurl=https://developer.download.nvidia.com/compute/cuda/repos/rhel9/x86_64/
enabled=1
gpgcheck=1
repo_gpgcheck=0
gpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-nvidia
excludepkgs=mft* kernel-mft*
"""


def test_the_file_is_written_once(planned):
    (change,) = planned("dnf_repo", {}, **REPO).changes
    assert (change.what, change.after) == ("write /etc/yum.repos.d/cuda-rhel9-x86_64.repo", TEXT)
    there = {"/etc/yum.repos.d/cuda-rhel9-x86_64.repo": TEXT}
    assert planned("dnf_repo", there, **REPO).changes == []
    (gone,) = planned("dnf_repo", there, name=REPO["name"], state="absent").changes
    assert gone.what == "remove /etc/yum.repos.d/cuda-rhel9-x86_64.repo"


@pytest.mark.parametrize(("signed", "checks"), [("list", (0, 1)), ("both", (1, 1)), ("packages", (1, 0))])
def test_a_signed_list_is_read_with_its_key(planned, signed, checks):
    path = "/etc/yum.repos.d/cuda-rhel9-x86_64.repo"
    unread = {"dnf -q -C": (1, "", "Error: Cache-only enabled but no cache for 'cuda-rhel9-x86_64'")}
    write, *read = planned("dnf_repo", unread, **REPO, signed=signed).changes
    assert "gpgcheck={}\nrepo_gpgcheck={}\n".format(*checks) in write.after
    assert [str(change.command) for change in read] == (
        ["dnf -y '--disablerepo=*' --enablerepo=cuda-rhel9-x86_64 makecache --refresh"] if checks[1] else []
    )
    written = {path: write.after}
    assert len(planned("dnf_repo", {**written, **unread}, **REPO, signed=signed).changes) == checks[1]
    assert planned("dnf_repo", {**written, "dnf -q -C": ""}, **REPO, signed=signed).changes == []


def test_files_that_speak_of_the_same_go_away_first(planned):
    old, other = "/etc/yum.repos.d/cuda-rhel9.repo", "/etc/yum.repos.d/rocky.repo"
    there = {"/etc/yum.repos.d/cuda-rhel9-x86_64.repo": TEXT, old: "[cuda]", other: "[baseos]"}
    found = planned("dnf_repo", there, **REPO, replaces=["cuda-rhel9.*", "none.repo"])
    assert [change.what for change in found.changes] == [f"remove {old}"]


@pytest.mark.parametrize(
    "wrong", [{"replaces": ["../x"]}, {"name": "../x"}, {"baseurl": "http://x\ngpgcheck=0"}, {"gpgkey": ""}]
)
def test_a_repository_is_signed_and_holds_no_foreign_row(planned, wrong):
    with pytest.raises(DocumentError, match="dnf_repo"):
        planned("dnf_repo", {}, **{**REPO, **wrong})
