import pytest

from gpuops.probes.host.clock import Clock
from gpuops.probes.host.disks import Filesystem
from gpuops.probes.host.services import Service
from gpuops.probing import Unknown


def disk(used, device="/dev/sda1", mount="/"):
    return Filesystem(device, 100 * 1024**2, used * 1024**2, (100 - used) * 1024**2, mount)


def only(verdict):
    (finding,) = verdict.findings
    return finding


class TestDiskSpace:
    @pytest.mark.parametrize(
        ("used", "status"), [(0, "pass"), (89, "pass"), (90, "warn"), (94, "warn"), (95, "fail"), (100, "fail")]
    )
    def test_a_disk_may_not_be_nearly_full(self, h100, used, status):
        assert h100.but(disks=(disk(10, "/dev/sdb1", "/home"), disk(used))).judge("disk-space").status == status

    def test_the_finding_names_the_mount(self, h100):
        finding = only(h100.but(disks=(disk(97, mount="/var"),)).judge("disk-space"))
        assert (finding.part, finding.found, finding.unit) == ("/var", 97, "%")
        assert finding.message == "/var is 97 % full, 3.0 GiB left"
        assert finding.fix

    def test_what_is_full_by_nature_does_not_count(self, h100):
        full = (disk(100, "/dev/loop3", "/snap/x"), disk(100, "tmpfs", "/run"), disk(100, "/dev/sr0", "/cdrom"))
        assert h100.but(disks=(*full, disk(1))).judge("disk-space").status == "pass"
        assert h100.but(disks=full).judge("disk-space").status == "unknown"

    def test_a_full_disk_is_found_beside_a_mount_that_cannot_be_read(self, h100):
        unread = Unknown("df: /mnt/s3: Transport endpoint is not connected")
        verdict = h100.but(disks=(disk(97), unread)).judge("disk-space")
        assert (verdict.status, only(verdict).part) == ("fail", "/")
        verdict = h100.but(disks=(disk(1), unread)).judge("disk-space")
        assert (verdict.status, unread.why in verdict.why) == ("unknown", True)

    def test_one_disk_in_two_places_is_one_finding(self, h100):
        verdict = h100.but(disks=(disk(97), disk(97, mount="/var/lib/kubelet"))).judge("disk-space")
        assert only(verdict).part == "/"


class TestClock:
    @pytest.mark.parametrize(
        ("synchronized", "offset", "status"),
        [
            (True, 0.0, "pass"),
            (True, None, "pass"),
            (True, 0.09, "pass"),
            (True, 0.11, "warn"),
            (True, -90.0, "warn"),
            (None, 5.0, "warn"),
            (False, None, "warn"),
            (False, 0.0, "warn"),
            (None, None, "unknown"),
            (None, 0.0, "unknown"),
        ],
    )
    def test_it_must_be_right_and_kept_right(self, h100, synchronized, offset, status):
        assert h100.but(clock=Clock(1.8e9, synchronized, offset)).judge("clock").status == status

    def test_the_finding_says_which_way(self, h100):
        finding = only(
            h100.but(clock=Clock(1.8e9, synchronized=True, offset_seconds=-90.0, source="192.0.2.1")).judge("clock")
        )
        assert finding.message == "90.0 s behind 192.0.2.1"
        assert (finding.found, finding.unit, finding.part) == (-90.0, "s", "clock")

    @pytest.mark.parametrize("unit", ["phc2sys", "timemaster"])
    def test_a_clock_that_ptp_sets_is_unknown_and_needs_no_chrony(self, h100, unit):
        running = {**h100.values["services"], unit: Service("loaded", "active", "running", "enabled")}
        machine = h100.but(clock=Clock(1.8e9, synchronized=False), services=running)
        verdict = machine.judge("clock")
        assert (verdict.status, verdict.why) == (
            "unknown",
            f"{unit} sets the clock by PTP, and does not report its offset",
        )
        assert h100.but(clock=Clock(1.8e9, synchronized=True), services=running).judge("clock").status == "pass"
        stopped = {unit: Service("loaded", "inactive", "dead", "disabled")}
        assert machine.but(services=stopped).judge("clock").status == "warn"
