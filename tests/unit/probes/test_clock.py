import os
import subprocess

import pytest

from gpuops.probes.host.clock import Clock, clock, parse_clock
from gpuops.probing import Unknown

CHRONY = """\
Reference ID    : 0A000001 (10.0.0.1)
Stratum         : 3
System time     : 0.000022151 seconds {direction} of NTP time
Last offset     : -0.000041040 seconds
Leap status     : {leap}
"""


def text(timedatectl="", chronyc="", date="1700000000.250000000"):
    return f"{date}\n-- timedatectl\n{timedatectl}-- chronyc\n{chronyc}-- end\n"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (text(), Clock(1700000000.25)),
        (text(date="1700000000.%N"), Clock(1700000000.0)),
        (text(date="1700000000"), Clock(1700000000.0)),
        (text("NTPSynchronized=yes\n"), Clock(1700000000.25, synchronized=True)),
        (text("NTPSynchronized=no\n"), Clock(1700000000.25, synchronized=False)),
        (text("      Local time: Mon\n NTP synchronized: yes\n"), Clock(1700000000.25, synchronized=True)),
        (text("System clock synchronized: no\n  NTP service: active\n"), Clock(1700000000.25, synchronized=False)),
        (
            text("NTPSynchronized=no\n", CHRONY.format(direction="slow", leap="Normal")),
            Clock(1700000000.25, synchronized=True, offset_seconds=-0.000022151, source="10.0.0.1"),
        ),
        (
            text("", CHRONY.format(direction="fast", leap="Insert second")),
            Clock(1700000000.25, synchronized=True, offset_seconds=0.000022151, source="10.0.0.1"),
        ),
        (
            text("NTPSynchronized=yes\n", CHRONY.format(direction="fast", leap="Not synchronised")),
            Clock(1700000000.25, synchronized=False),
        ),
        (text("", "506 Cannot talk to daemon\n"), Clock(1700000000.25)),
    ],
)
def test_every_part_but_the_time_may_be_missing(answer, expected):
    assert parse_clock(answer) == expected


def test_a_cut_answer_is_unknown():
    whole = text("NTPSynchronized=yes\n", CHRONY.format(direction="slow", leap="Normal"))
    assert all(isinstance(parse_clock(whole[:end]), Unknown) for end in range(len(whole)))


@pytest.mark.parametrize("date", ["", "Mon Nov 20", "17", "1700000000garbage", "date: invalid option"])
def test_without_a_time_there_is_no_clock(date):
    assert isinstance(parse_clock(text("NTPSynchronized=yes\n", date=date)), Unknown)


def test_the_question_is_answered_where_only_date_is_installed(tmp_path, answer):
    for tool in ("sh", "date"):
        (tmp_path / tool).symlink_to(f"/bin/{tool}")
    env = os.environ | {"PATH": str(tmp_path)}
    done = subprocess.run(clock.question.words, env=env, capture_output=True, text=True, check=False)
    told = clock.read(answer(clock, done.stdout, done.stderr, done.returncode))
    assert told == Clock(told.unix_seconds)
    assert told.unix_seconds > 1_700_000_000
