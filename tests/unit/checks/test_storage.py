"""NVMe drives and software RAID; the lab's files and its nvme give the specimens."""

import json
from dataclasses import replace

import pytest

from gpuops.lab import tree
from gpuops.lab.faults.catalogue import faulted
from gpuops.lab.machine import healthy, names
from gpuops.lab.tools.programs import run
from gpuops.probes.host.md_raid import md_raid
from gpuops.probes.host.nvme import nvme_drives, nvme_health
from gpuops.probing import Unknown
from gpuops.shell import Completed


def shown(h100, node):
    """What the three probes read on a lab host."""
    text = "".join(f"{path}\0{content}\0" for path, content in tree.files(node).items())
    out, err, code = "", "", 0
    for drive in node.drives:
        answer = run(node, "nvme", ["smart-log", "-o", "json", f"/dev/{drive.name}"], root=True)
        out, err, code = f"{out}-- {drive.name}\n{answer.out}", err + answer.err, answer.code or code
    return h100.but(
        nvme_drives=nvme_drives.read(Completed("n1", nvme_drives.question, 0, text)),
        md_raid=md_raid.read(Completed("n1", md_raid.question, 0, mdstat_of(text))),
        nvme_health=nvme_health.read(Completed("n1", nvme_health.question, code, out, err)),
    )


def mdstat_of(text):
    return text[text.index("/proc/mdstat") :]


def found(machine):
    verdicts = [machine.judge(name) for name in ("nvme-drives", "raid", "drive-health")]
    return [(f.check, f.part, f.severity) for v in verdicts for f in v.findings]


def arrays(h100, *rows):
    text = "\n".join(["Personalities : [raid1] [raid6] [raid5] [raid4] ", *rows, "unused devices: <none>\n"])
    return h100.but(md_raid=md_raid.read(Completed("n1", md_raid.question, 0, f"/proc/mdstat\0{text}\0")))


@pytest.mark.parametrize("machine", names())
def test_healthy_machines_are_silent(h100, machine):
    shows = shown(h100, healthy(machine))
    assert found(shows) == []
    assert shows.judge("nvme-drives").status == shows.judge("drive-health").status == "pass"


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("nvme-worn=3", [("drive-health", "nvme3", "fail")]),
        ("nvme-media-errors=3", [("drive-health", "nvme3", "warn")]),
        ("raid-degraded", [("raid", "md0", "fail")]),
        ("nvme-dead=3", [("nvme-drives", "nvme3", "fail")]),
    ],
)
def test_each_fault_of_the_lab_is_one_finding(h100, fault, expected):
    assert found(shown(h100, faulted("hgx-h100", (f"host:{fault}",)))) == expected


def test_message_says_what_is_left(h100):
    worn = shown(h100, faulted("hgx-h100", ("host:nvme-worn=3",))).judge("drive-health")
    assert worn.findings[0].message == (
        "0 % spare blocks left, its threshold is 11 %; spare blocks below the threshold; 92 % of its endurance used"
    )
    degraded = shown(h100, faulted("hgx-h100", ("host:raid-degraded",))).judge("raid")
    assert degraded.findings[0].message == "raid1 has 1 of 2 members"


class TestDrives:
    @pytest.mark.parametrize(
        ("state", "status"), [("live", "pass"), ("resetting", "warn"), ("dead", "fail"), ("deleting (no IO)", "fail")]
    )
    def test_states(self, h100, state, status):
        drive = replace(h100.values["nvme_drives"][0], state=state)
        assert h100.but(nvme_drives=(drive,)).judge("nvme-drives").status == status

    def test_state_that_is_not_reported_is_unknown(self, h100):
        drive = replace(h100.values["nvme_drives"][0], state="")
        assert h100.but(nvme_drives=(drive,)).judge("nvme-drives").status == "unknown"

    def test_count_of_the_profile_is_judged(self, h100):
        assert h100.expecting(nvme__count=2).judge("nvme-drives").status == "fail"
        assert h100.expecting(nvme__count=1).judge("nvme-drives").status == "pass"
        assert h100.but(nvme_drives=()).judge("nvme-drives").status == "skipped"


# facebookresearch/gcm, check_blockdev.py's specimens: smartctl's fields, a drive that calls itself healthy
SMARTCTL = {
    "smart_status": {"passed": True},
    "nvme_smart_health_information_log": {
        "critical_warning": 0,
        "available_spare": 100,
        "available_spare_threshold": 10,
        "percentage_used": 3,
        "media_errors": 0,
        "num_err_log_entries": 156609,
    },
}


class TestHealth:
    def judged(self, h100, status=0, **changes):
        log = {**SMARTCTL["nvme_smart_health_information_log"], **changes}
        out = "-- nvme0\n" + json.dumps({**SMARTCTL, "nvme_smart_health_information_log": log})
        read = nvme_health.read(Completed("n1", nvme_health.question, status, out))
        return h100.but(nvme_health=read).judge("drive-health")

    @pytest.mark.parametrize(
        ("changes", "status"),
        [
            ({}, "pass"),
            ({"available_spare": 0}, "fail"),
            ({"available_spare": 10}, "pass"),
            ({"percentage_used": 80}, "pass"),
            ({"percentage_used": 81}, "warn"),
            ({"percentage_used": 101}, "fail"),
            ({"media_errors": 1}, "warn"),
            ({"media_errors": "1"}, "warn"),
            ({"critical_warning": 4}, "fail"),
            ({"critical_warning": {"value": 8}}, "fail"),
            ({"critical_warning": 64}, "fail"),
            ({"critical_warning": None}, "unknown"),
        ],
    )
    def test_fields_decide_whatever_the_word_says(self, h100, changes, status):
        assert self.judged(h100, 4, **changes).status == status

    @pytest.mark.parametrize(
        ("out", "err", "status"),
        [
            ("", "", 0),
            ("-- nvme0\n", "timeout: failed to run command 'smartctl': No such file or directory\n", 127),
            ("-- nvme0\n", "failed to open /dev/nvme0: Permission denied\n", 1),
            ("-- nvme0\n{", "", 0),
            ("-- nvme0\n[]", "", 0),
            ("-- nvme0\nnull", "", 124),
        ],
    )
    def test_no_answer_is_unknown_and_skipped_in_a_guest(self, h100, out, err, status):
        read = nvme_health.read(Completed("n1", nvme_health.question, status, out, err))
        assert isinstance(read, Unknown)
        assert read.needs_root == ("denied" in err)
        machine = h100.but(nvme_health=read)
        assert machine.judge("drive-health").status == "unknown"
        guest = machine.but(system=replace(h100.values["system"], virtual=True))
        assert guest.judge("drive-health").status == ("unknown" if read.needs_root else "skipped")

    def test_drive_that_hangs_does_not_hide_another(self, h100):
        drives = (h100.values["nvme_drives"][0], replace(h100.values["nvme_drives"][0], name="nvme1"))
        out = "-- nvme0\n-- nvme1\n" + json.dumps(SMARTCTL)
        read = nvme_health.read(Completed("n1", nvme_health.question, 124, out, "nvme0: timed out\n"))
        machine = h100.but(nvme_health=read, nvme_drives=drives)
        assert machine.judge("drive-health").status == "unknown"
        assert "nvme0" in machine.judge("drive-health").why


class TestRaid:
    @pytest.mark.parametrize(
        ("rows", "status"),
        [
            # influxdata/telegraf, plugins/inputs/mdstat/mdstat_test.go, and Linux, drivers/md/md.c
            (
                (
                    "md0 : active raid5 sdd1[3] sdb1[1] sda1[0]",
                    "      5860268032 blocks super 1.2 level 5, 512k chunk, algorithm 2 [4/3] [UUU_]",
                ),
                "fail",
            ),
            (
                (
                    "md1 : active raid1 sdb2[2] sda2[0]",
                    "      204788 blocks super 1.2 [2/1] [U_]",
                    "      [==>..................]  recovery = 12.6% (37043392/292945152) finish=127.5min",
                ),
                "warn",
            ),
            (
                (
                    "md1 : active raid1 sdb2[2] sda2[0]",
                    "      204788 blocks super 1.2 [2/2] [UU]",
                    "      [>....................]  check =  0.6% (37043392/292945152) finish=127.5min",
                ),
                "pass",
            ),
            (
                (
                    "md2 : active (auto-read-only) raid1 sdb2[1] sda2[0]",
                    "      204788 blocks super 1.2 [2/2] [UU]",
                    "      \tresync=PENDING",
                ),
                "pass",
            ),
            (
                (
                    "md3 : active raid1 sdc1[2] sdb1[1](F) sda1[0]",
                    "      204788 blocks super 1.2 [2/2] [UU]",
                ),
                "warn",
            ),
            (("md0 : active raid0 nvme1n1[1] nvme0n1[0]", "      7501211648 blocks super 1.2 512k chunks"), "pass"),
            (("md0 : active raid0 nvme1n1[1](F) nvme0n1[0]", "      7501211648 blocks super 1.2 512k chunks"), "fail"),
            (("md0 : broken raid0 nvme1n1[1] nvme0n1[0]", "      7501211648 blocks super 1.2 512k chunks"), "fail"),
            (("md0 : inactive sdb1[1](S)", "      204788 blocks super 1.2"), "fail"),
            (("md127 : inactive sdb[1](S) sda[0](S)", "      6306 blocks super external:imsm"), "pass"),
            ((), "skipped"),
        ],
    )
    def test_states(self, h100, rows, status):
        assert arrays(h100, *rows).judge("raid").status == status

    @pytest.mark.parametrize("text", ["/proc/mdstat\0\0", "/proc/mdstat\0Personalities : \nmd0 : act", "x"])
    def test_truncated_file_is_unknown(self, text):
        assert isinstance(md_raid.read(Completed("n1", md_raid.question, 0, text)), Unknown)

    def test_row_that_cannot_be_read_is_unknown(self, h100):
        assert arrays(h100, "md0 : strange", "").judge("raid").status == "unknown"

    def test_kernel_without_md_has_none(self, h100):
        nothing = md_raid.read(Completed("n1", md_raid.question, 0, ""))
        assert h100.but(md_raid=nothing).judge("raid").status == "skipped"
