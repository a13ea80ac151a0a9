"""Blanks that only Python and the eye take for blanks are told, in every file of every target."""

import random
from dataclasses import replace

import pytest
from tests.unit.render.test_comparing import launch_of, one

from gpuops.render import targets
from gpuops.render.comparing import differences
from gpuops.render.shell_words import spelled_words

ODD = "\u00a0\u3000\u2009\u2028\u2029\u0085\f\v\x1c\x1d\x1e\x1f\ufeff\u200b\u200d\u00ad"
NAMED = "U+00A0 (NO-BREAK SPACE), which no shell takes for a blank"


def mistakes(file, text):
    return [str(each) for each in differences(file, replace(file, text=text)) if each.is_checked]


def places(text):
    """The blanks of a text outside its comments, its start and the ends of its lines."""
    lines = text.split("\n")
    starts = [sum(len(line) + 1 for line in lines[:number]) for number in range(len(lines))]
    meant = [pair for pair in zip(starts, lines, strict=True) if pair[1] and not pair[1].lstrip().startswith("# ")]
    for start, line in meant:
        yield from (start + at for at, char in enumerate(f"{line}\n") if char in " \n")


@pytest.mark.parametrize("name", targets())
def test_an_odd_blank_is_told_with_its_line_and_its_name(name):
    chance = random.Random(name)
    for file in launch_of(name).files:
        free = [*places(file.text)]  # none in a file of comments
        for char in ODD if free else "":
            at = chance.choice(free)
            kept = file.text[at:] if file.text[at] == "\n" else file.text[at + 1 :]
            line = file.text[:at].count("\n") + 1
            told = mistakes(file, file.text[:at] + char + kept)
            assert told[0].startswith(f"{file.path}:{line}: has U+{ord(char):04X} ("), (file.path, line, char)


def test_a_byte_order_mark_on_disk_is_told(tmp_path):
    launch = launch_of("torchrun")
    launch.write(tmp_path)
    path = tmp_path / launch.files[0].path
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    told = launch.complaints(tmp_path)
    assert f"{path}:1: has U+FEFF (ZERO WIDTH NO-BREAK SPACE), which no shell takes for a blank" in told


def test_odd_blanks_in_comments_and_in_what_is_rendered_are_no_alarm():
    run = "#!/bin/bash\nexec torchrun train.py 'a\u00a0b'\n"
    assert one("run.sh", run, run.replace("'", '"')) == []
    assert one("run.sh", run, f"{run}# notre remarque\u00a0: été, naïve, 日本\n") == []
    assert one("run.sh", run, run.replace(" tr", "\ttr")) == []
    assert one("run.sh", run, run.replace("'a", "'a\u00a0"))[0] == (f":2: has {NAMED}", True)
    assert one("run.sh", run, f"{run}# mine\u2028exit\n")[0][1], "YAML would end the comment there"
    assert one("run.sh", run, f"{run}echo ü  # grüße\n") == [(":3: echo 'ü' was added", False)]


def test_words_end_at_the_blanks_of_a_shell_only():
    assert len(spelled_words("exec\u00a0torchrun\u3000a\vb\fc")) == 1
    assert len(spelled_words("'a'\u00a0b")) == 1
    assert len(spelled_words("exec torchrun\ta\nb")) == 4
