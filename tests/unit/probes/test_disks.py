import pytest

from gpuops.probes.host.disks import Filesystem, disks, parse_df
from gpuops.probing import Unknown

DF = """\
Filesystem                        1024-blocks      Used Available Capacity Mounted on
udev                               1055834112         0 1055834112       0% /dev
/dev/mapper/ubuntu--vg-ubuntu--lv   102626232 102520000     106232     100% /
/dev/loop3                              65536     65536          0     100% /snap/core20/2318
/dev/nvme1n1p1                     3750000000 950000000 2800000000      26% /my scratch
rpool/data                            1000000    500000     500000      50% /data
"""


def test_every_row_is_read():
    told = parse_df(DF)
    assert told[1] == Filesystem("/dev/mapper/ubuntu--vg-ubuntu--lv", 102626232, 102520000, 106232, "/")
    assert told[3].mount == "/my scratch"
    assert [row.is_pseudo for row in told] == [True, False, True, False, False]


def test_used_is_what_users_see():
    told = parse_df(DF)
    assert told[1].used_percent == pytest.approx(99.9, abs=0.01)
    assert told[4].used_percent == 50
    assert Filesystem("/dev/sda1", 100, 95, -5, "/").used_percent == 100
    assert Filesystem("/dev/sda1", 0, 0, 0, "/").used_percent == 0


def test_a_cut_row_is_unknown():
    whole = parse_df(DF)
    for end in range(len(DF)):
        told = parse_df(DF[:end])
        assert isinstance(told, Unknown) or (DF[end - 1] == "\n" and told == whole[: len(told)])


def test_a_wrapped_or_garbled_row_is_unknown():
    assert isinstance(parse_df(DF.replace("/dev/nvme1n1p1  ", "/dev/nvme1n1p1\n")), Unknown)
    assert isinstance(parse_df(DF.replace("950000000", "?")), Unknown)


def test_an_answer_that_was_cut_is_unknown(answer):
    assert "truncated" in disks.read(answer(disks, DF, truncated=True)).why


@pytest.mark.parametrize(
    ("err", "unread"),
    [
        ("df: /run/user/1000/doc: Permission denied\n", []),
        ("df: /run/user/1000/doc: Operation not permitted\n", []),
        ("df: /data: Input/output error\n", ["df: /data: Input/output error"]),
        ("df: /mnt/s3: Transport endpoint is not connected\n", ["df: /mnt/s3: Transport endpoint is not connected"]),
        (
            "df: /run/user/1000/doc: Permission denied\ndf: /data: Stale file handle\n",
            ["df: /data: Stale file handle"],
        ),
        ("", ["df exited with 1 without a reason"]),
    ],
)
def test_one_unreadable_mount_leaves_the_other_rows_and_is_unknown_itself(err, unread, answer):
    *rows, told = (*disks.read(answer(disks, DF, err, status=1)), *([] if unread else [None]))
    assert tuple(rows) == parse_df(DF)
    assert [told.why for told in [told] if told] == unread


@pytest.mark.parametrize("out", ["", DF[:100], DF.splitlines()[0] + "\n"])
def test_df_without_whole_rows_is_unknown(out, answer):
    told = disks.read(answer(disks, out, "df: /data: Input/output error\n", status=1))
    assert told == Unknown("df: /data: Input/output error")
