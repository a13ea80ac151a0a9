import pytest

from gpuops import Failed
from gpuops.errors import DocumentError

NFS = {"path": "/data", "src": "nfs:/export/", "fstype": "nfs", "options": ["nfsvers=4.1", "hard"]}
LINE = "nfs:/export/ /data nfs nfsvers=4.1,hard 0 0\n"
ROOT = "/dev/sda1 / ext4 rw 0 0\n"
MOUNTED = f"{ROOT}nfs:/export /data nfs4 rw,vers=4.1,hard 0 0\n"


def node(fstab=ROOT, mounts=ROOT, place=""):
    return {"/etc/fstab": fstab, "/proc/self/mounts": mounts, "test -d": place}


@pytest.fixture
def whats(planned):
    def whats(*about, **params):
        found = planned("mount", node(*about), **{**NFS, **params})
        assert found.stop is None
        return [change.what for change in found.changes]

    return whats


def test_what_is_mounted_and_in_fstab_is_left_alone(whats):
    assert whats(ROOT + LINE, MOUNTED) == []
    assert whats(ROOT + LINE, f"systemd-1 /data autofs rw 0 0\n{MOUNTED}") == []
    assert whats(ROOT + LINE, "systemd-1 /data autofs rw 0 0\n") == []


def test_it_is_mounted_now_and_after_every_boot(whats, planned):
    assert whats() == ["replace /etc/fstab", "mount nfs:/export/ on /data"]
    assert planned("mount", node(), **NFS).changes[0].after == ROOT + LINE
    assert whats(ROOT, ROOT, 1) == [
        "replace /etc/fstab",
        "/data mode 0755 owner root:root",
        "mount nfs:/export/ on /data",
    ]
    assert whats(ROOT, ROOT, state="present") == ["replace /etc/fstab"]


def test_another_line_for_the_place_is_replaced(planned):
    old = f"# nfs:/old /data\n{ROOT}nfs:/old\t/data/ nfs defaults 0 0\nnfs:/more /data2 nfs defaults 0 0\n"
    (change,) = planned("mount", node(old, MOUNTED), **NFS).changes
    assert change.after == f"# nfs:/old /data\n{ROOT}{LINE}nfs:/more /data2 nfs defaults 0 0\n"


def test_what_must_be_absent_is_unmounted_and_forgotten(whats):
    assert whats(ROOT + LINE, MOUNTED, state="absent") == ["unmount /data", "replace /etc/fstab"]
    assert whats(state="absent") == []


@pytest.mark.parametrize("other", ["nfs:/other /data nfs4 rw 0 0\n", "/dev/sdb1 /data ext4 rw 0 0\n"])
def test_a_place_that_another_file_system_has_is_left_to_a_person(planned, other):
    found = planned("mount", node(ROOT + LINE, ROOT + other), **NFS)
    assert isinstance(found.stop, Failed)
    assert found.changes == []


def test_the_names_of_a_device_are_not_compared(whats):
    disk = {"src": "UUID=1-2", "fstype": "ext4", "options": ["defaults"]}
    assert whats(f"{ROOT}UUID=1-2 /data ext4 defaults 0 0\n", f"{ROOT}/dev/sdb1 /data ext4 rw 0 0\n", **disk) == []
    bind = {"src": "/mnt/a", "fstype": "none", "options": ["bind"]}
    assert whats(f"{ROOT}/mnt/a /data none bind 0 0\n", f"{ROOT}/dev/sdb1 /data ext4 rw 0 0\n", **bind) == []


def test_a_blank_in_the_place_of_another_mount_is_read(whats):
    assert whats(ROOT + LINE, f"tmpfs /a\\040b tmpfs rw 0 0\n{MOUNTED}") == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"path": "data"},
        {"path": "/data/"},
        {"path": "/"},
        {"src": "a b"},
        {"src": ""},
        {"options": ["a\nb"]},
        {"src": "#"},
    ],
)
def test_wrong_parameters_are_refused(planned, wrong):
    with pytest.raises(DocumentError, match="mount"):
        planned("mount", {}, **{**NFS, **wrong})
