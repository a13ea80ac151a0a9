import pytest

from gpuops.probes.host.mounts import Mount, TableEntry, parse_mounts
from gpuops.probing import Unknown

ROW = "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n"  # proc_pid_mountinfo(5)


def files(table, fstab=""):
    return f"/proc/self/mountinfo\0{table}\0/etc/fstab\0{fstab}\0"


def test_a_row_of_the_manual_page():
    assert parse_mounts(files(ROW)).mounted == (Mount("/mnt2", "/dev/root", "ext3", "98:0", is_read_only=False),)


@pytest.mark.parametrize("change", [("rw,noatime", "ro,noatime"), ("rw,errors", "ro,errors")])
def test_the_mount_or_its_file_system_is_read_only(change):
    assert parse_mounts(files(ROW.replace(*change))).mounted[0].is_read_only


def test_rows_without_and_with_many_optional_fields():
    for fields in ("rw,noatime", "rw,noatime shared:1 master:2 propagate_from:3"):
        assert parse_mounts(files(ROW.replace("rw,noatime master:1", fields))).at("/mnt2").kind == "ext3"


def test_spaces_in_a_path():
    known = parse_mounts(files(ROW.replace("/mnt2", r"/my\040data"), r"/dev/sda1 /my\040data ext4 defaults 0 2"))
    assert known.at("/my data")
    assert known.table == (TableEntry("/dev/sda1", "/my data", "ext4", frozenset({"defaults"})),)


def test_remarks_and_short_lines_of_fstab_are_left_out():
    assert parse_mounts(files(ROW, "# remark with four words\n\n/dev/sda1 /\n")).table == ()


@pytest.mark.parametrize("table", ["", ROW[:-1], "noise\n", ROW + "36 35\n", ROW.replace(" - ", " ")])
def test_what_is_cut_or_garbled_is_unknown(table):
    assert isinstance(parse_mounts(files(table)), Unknown)


def test_no_answer_is_unknown():
    assert isinstance(parse_mounts(""), Unknown)
