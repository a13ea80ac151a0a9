"""Lines as the kernel prints them; those of file systems and disks as leptonai/gpud's matchers quote them."""

import pytest
from tests.unit.checks.lab_node import findings_of

from gpuops.probes.host.kernel_log import KernelLog, parse_kernel_log
from gpuops.probes.host.mounts import parse_mounts
from gpuops.probes.host.nvme import NvmeDrive
from gpuops.probing import Unknown

TABLE = """\
23 1 9:0 / / rw,relatime shared:1 - ext4 /dev/md0 rw
30 23 7:0 / /snap/core20/1974 ro,nodev,relatime shared:32 - squashfs /dev/loop0 ro
53 23 9:1 / /scratch rw,relatime shared:2 - xfs /dev/md1 rw,attr2
54 23 253:3 / /var/lib/containers rw,relatime shared:3 - ext4 /dev/mapper/vg0-containers rw
96 23 0:61 / /home rw,relatime shared:47 - nfs4 10.20.0.9:/export/home rw,vers=4.2,hard
"""
FSTAB = """\
# /etc/fstab: static file system information.
UUID=0a1b / ext4 errors=remount-ro 0 1
/dev/md1 /scratch xfs defaults 0 2
/swap.img none swap sw 0 0
10.20.0.9:/export/home /home nfs4 _netdev 0 0
/dev/sdz1 /backup ext4 noauto 0 0
10.20.0.9:/export/data /data2 nfs4 x-systemd.automount 0 0
"""
SILENT = "nfs: server 10.20.0.9 not responding, still trying"
LOST = "nfs: server 10.20.0.9 not responding, timed out"
BACK = "nfs: server 10.20.0.9 OK"
DAMAGED = {
    "EXT4-fs error (device md0): ext4_lookup:1855: inode #131073: comm python3: iget: checksum invalid": "/",
    "EXT4-fs error (device md0): ext4_validate_block_bitmap:390: comm python3: bg 812: bad block bitmap checksum": "/",
    "XFS (md1): Metadata corruption detected at xfs_dir3_block_read_verify+0x9e/0xc0 [xfs], block 0x4ad8": "/scratch",
    "XFS (md1): Metadata CRC error detected at xfs_agi_read_verify+0x5e/0x110 [xfs], xfs_agi block 0x2": "/scratch",
    "XFS (md1): Unmount and run xfs_repair": "/scratch",
    "XFS (md1): Corruption detected. Unmount and run xfs_repair": "/scratch",
}
REMOUNTED = "EXT4-fs ({}): Remounting filesystem read-only"


def logged(machine, *lines, uptime=1100.0):
    text = "".join(f"[{1000.0 if n else 0:12.6f}] {line}\n" for n, line in enumerate(("Linux version 6.8.0", *lines)))
    return machine.but(kernel_log=parse_kernel_log(text), uptime=uptime)


def mounted(machine, table=TABLE, fstab=FSTAB):
    return machine.but(mounts=parse_mounts(f"/proc/self/mountinfo\0{table}\0/etc/fstab\0{fstab}\0"))


def told(machine, check="mounts"):
    return [(str(f.part), f.severity, f.code) for f in machine.judge(check).findings]


class TestMounts:
    @pytest.mark.parametrize("line", DAMAGED)
    def test_damage_that_stops_nothing_warns(self, h100, line):
        assert told(logged(mounted(h100), line)) == [(DAMAGED[line], "warn", "damaged")]

    def test_damage_of_what_is_mounted_again_or_no_longer_is_no_finding(self, h100):
        damage, again = list(DAMAGED)[2], "XFS (md1): Ending clean mount"
        assert told(logged(mounted(h100), damage, again)) == []
        root, remount = (
            next(iter(DAMAGED)),
            "EXT4-fs (md0): mounted filesystem with ordered data mode. Quota mode: none.",
        )
        assert told(logged(mounted(h100), root, remount)) == []
        assert told(logged(mounted(h100), damage.replace("md1", "sdb1"))) == []
        harmless = "EXT4-fs warning (device md0): ext4_multi_mount_protect:328: MMP interval 42 higher than expected."
        assert told(logged(mounted(h100), harmless)) == []

    def test_damage_before_the_kernel_stopped_the_file_system_is_part_of_that(self, h100):
        readonly = mounted(h100, TABLE.replace("/ / rw", "/ / ro"), fstab="")
        assert told(logged(readonly, next(iter(DAMAGED)), REMOUNTED.format("md0"))) == [("/", "fail", "ro")]

    def test_a_machine_as_its_table_lists_it_is_healthy(self, h100):
        assert told(mounted(h100)) == []
        assert told(mounted(h100, fstab="")) == []

    def test_what_is_not_mounted_fails_unless_it_may_be_absent(self, h100):
        without = "".join(row for row in TABLE.splitlines(keepends=True) if "/scratch" not in row)
        assert told(mounted(h100, without)) == [("/scratch", "fail", "missing")]
        optional = FSTAB.replace("xfs defaults", "xfs defaults,nofail")
        assert told(mounted(h100, without, optional)) == [("/scratch", "warn", "missing")]

    @pytest.mark.parametrize("change", [("/scratch rw,", "/scratch ro,"), ("/dev/md1 rw,", "/dev/md1 ro,")])
    def test_what_is_read_only_though_the_table_says_rw_fails(self, h100, change):
        table = TABLE.replace(*change)
        assert told(mounted(h100, table)) == [("/scratch", "fail", "ro")]
        assert told(mounted(h100, table, FSTAB.replace("xfs defaults", "xfs ro"))) == []
        assert told(mounted(h100, table, "")) == []

    def test_the_last_mount_of_a_path_counts(self, h100):
        over = TABLE + "99 53 9:9 / /scratch ro,relatime - ext4 /dev/md9 ro\n"
        assert told(mounted(h100, over)) == [("/scratch", "fail", "ro")]

    def test_one_that_is_not_mounted_any_more_only_was_read_only(self, h100):
        assert told(logged(mounted(h100, fstab=""), REMOUNTED.format("sda1"))) == [("sda1", "warn", "was")]

    def test_one_that_is_read_only_still_is_one_finding(self, h100):
        table = TABLE.replace("/ / rw,", "/ / ro,")
        for fstab in (FSTAB, ""):
            assert told(logged(mounted(h100, table, fstab), REMOUNTED.format("md0"))) == [("/", "fail", "ro")]

    def test_a_mapped_device_is_known_by_its_number(self, h100):
        table = TABLE.replace("/containers rw,", "/containers ro,")
        assert told(logged(mounted(h100, table), REMOUNTED.format("dm-3"))) == [("/var/lib/containers", "fail", "ro")]

    @pytest.mark.parametrize(
        "line",
        [
            "XFS (md1): Corruption of in-memory data detected.  Shutting down filesystem",
            "XFS (md1): Log I/O Error (0x2) detected at xlog_ioend_work+0x6e/0x70 [xfs].  Shutting down filesystem.",
            "XFS (md1): Filesystem has been shut down due to log error (0x2).",
        ],
    )
    def test_a_file_system_that_shut_down_fails_until_it_is_mounted_again(self, h100, line):
        machine = mounted(h100)
        assert told(logged(machine, line)) == [("/scratch", "fail", "shut-down")]
        again = "XFS (md1): Mounting V5 Filesystem 801b25ca-acc4-4232-9955-dc3448680467"
        assert told(logged(machine, line, again)) == [("/scratch", "warn", "was")]
        assert told(logged(machine, again)) == []

    def test_a_server_counts_until_it_answers(self, h100):
        machine = mounted(h100)
        assert told(logged(machine, SILENT)) == [("/home", "fail", "server")]
        assert told(logged(machine, SILENT, BACK)) == []
        assert told(logged(machine, BACK, SILENT)) == [("/home", "fail", "server")]
        assert told(logged(machine, SILENT, BACK.replace("10.20.0.9", "10.20.0.8"))) == [("/home", "fail", "server")]

    def test_a_server_whose_requests_time_out_warns_an_hour_later(self, h100):
        machine = mounted(h100)
        assert told(logged(machine, LOST)) == [("/home", "fail", "server")]
        assert told(logged(machine, LOST, uptime=90000.0)) == [("/home", "warn", "server")]
        assert told(logged(machine, SILENT, uptime=90000.0)) == [("/home", "fail", "server")]

    def test_a_server_that_serves_nothing_now_is_no_finding(self, h100):
        assert told(logged(mounted(h100), SILENT.replace("10.20.0.9", "10.20.0.99"))) == []

    def test_what_could_not_be_asked_is_unknown(self, h100):
        assert h100.but(mounts=Unknown("dark")).judge("mounts").status == "unknown"
        assert mounted(h100).but(kernel_log=Unknown("dark")).judge("mounts").status == "unknown"
        assert mounted(h100).but(kernel_log=KernelLog(reaches_boot=False)).judge("mounts").status == "unknown"


RESET = "nvme nvme4: I/O tag 22 (2016) opcode 0x2 (Admin Cmd) QID 0 timeout, reset controller"
DISABLED = "nvme nvme4: Disabling device after reset failure: -19"
ARRAY = "md/raid0md0: Disk failure on nvme0n1p1 detected, failing array."


class TestDiskErrors:
    @pytest.fixture
    def h100(self, h100):
        """Nothing but the log tells of its disks."""
        return h100.but(nvme_drives=Unknown("dark"), md_raid=Unknown("dark"))

    def test_the_state_of_a_drive_decides_whether_it_is_gone(self, h100):
        live = h100.but(nvme_drives=(NvmeDrive("nvme4", "live"),))
        dead = h100.but(nvme_drives=(NvmeDrive("nvme4", "dead"),))
        assert told(logged(live, DISABLED), "disk-errors") == [("nvme4", "warn", "disk-gone")]
        assert logged(dead, DISABLED).findings() == [("nvme-drives", "nvme4")]

    def test_an_array_with_redundancy_is_judged_by_its_state(self, h100):
        lost = "md/raid1:md0: Disk failure on sdb1, disabling device."
        assert told(logged(h100.but(md_raid=()), lost), "disk-errors") == [("sdb", "warn", "raid-failure")]
        assert told(logged(h100.but(md_raid=()), ARRAY), "disk-errors") == [("nvme0", "fail", "raid-failure")]

    @pytest.mark.parametrize(
        ("lines", "finding"),
        [
            ([RESET], ("nvme4", "warn", "disk-timeout")),
            ([RESET, DISABLED], ("nvme4", "fail", "disk-gone")),
            (["block nvme0n1: no available path - failing I/O"], ("nvme0", "fail", "disk-gone")),
            ([ARRAY], ("nvme0", "fail", "raid-failure")),
            (["md/raid:md0: Disk failure on sdb1, disabling device."], ("sdb", "fail", "raid-failure")),
            (["Buffer I/O error on dev dm-0, logical block 1234, async page read"], ("dm-0", "warn", "io-error")),
            (["I/O error, dev nvme3n1, sector 2048 op 0x0:(READ) flags 0x0"], ("nvme3", "warn", "io-error")),
        ],
    )
    def test_each_disk_is_one_finding(self, h100, lines, finding):
        assert told(logged(h100, *lines), "disk-errors") == [finding]

    def test_what_lies_on_a_disk_is_not_named_beside_it(self, h100):
        lines = (DISABLED, "Buffer I/O error on dev md1, logical block 0, async page read")
        assert told(logged(h100, *lines), "disk-errors") == [("nvme4", "fail", "disk-gone")]

    def test_drives_without_a_medium_are_nothing(self, h100):
        lines = [f"I/O error, dev {name}, sector 0 op 0x0:(READ) flags 0x0" for name in ("fd0", "sr0", "loop3")]
        assert told(logged(h100, *lines, "nvme nvme0: 63/0/0 default/read/poll queues"), "disk-errors") == []

    def test_a_removable_disk_is_nothing(self, h100):
        virtual = "sd 9:0:0:0: [sdb] Attached SCSI removable disk"
        error = "blk_update_request: I/O error, dev {}, sector 2 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0"
        lines = [virtual, error.format("sdb"), "Buffer I/O error on dev sdb1, logical block 1, async page read"]
        assert told(logged(h100, *lines), "disk-errors") == []
        assert told(logged(h100, *lines, error.format("sda")), "disk-errors") == [("sda", "warn", "io-error")]

    def test_a_log_that_lost_its_beginning_is_unknown(self, h100):
        assert h100.but(kernel_log=KernelLog(reaches_boot=False)).judge("disk-errors").status == "unknown"


@pytest.mark.parametrize(
    ("fault", "findings"),
    [
        ("read-only", [("mounts", "/scratch", "fail")]),
        ("was-read-only", [("mounts", "/scratch", "warn")]),
        ("not-mounted", [("mounts", "/scratch", "fail")]),
        ("nfs-silent", [("mounts", "/home", "fail")]),
        ("nfs-back", []),
        ("raid0-failed", [("disk-errors", "nvme4", "fail")]),
        ("disk-timeout", [("disk-errors", "nvme4", "warn")]),
    ],
)
def test_the_labs_faults_are_named_once(fault, findings):
    assert findings_of("hgx-h100", f"host:{fault}")[0] == findings
