"""The quick reading of nvidia-smi's own indentation says what the parser of XML says, or leaves the answer to it."""

import pathlib
import random

import pytest

from gpuops.probes.nvidia.nvidia_smi import xml
from gpuops.probes.nvidia.nvidia_smi.xml import parse_xml, read_xml

FOLDER = pathlib.Path(__file__).parents[3] / "specimens" / "outputs" / "nvsmi_xml"
TEXTS = {path.name: path.read_text() for path in sorted(FOLDER.glob("*.xml"))}
ODD = (
    "&amp;",
    "<!-- a remark -->",
    "GPU is lost",
    "ERR!",
    "\t",
    "<x/>",
    "\n",
    "\r\n",
    " ",
    "</gpu>",
    "<![CDATA[<x>]]>",
)


@pytest.fixture
def slowly(monkeypatch):
    """Return a function that reads a text by the parser of XML alone."""

    def read(text):
        with monkeypatch.context() as patch:
            patch.setattr(xml, "_read_indented", lambda _: None)
            return parse_xml(text)

    return read


@pytest.mark.parametrize("name", [name for name in TEXTS if "cut" not in name])
def test_answers_of_nvidia_smi_are_read_quickly(name, monkeypatch):
    monkeypatch.setattr(xml.ET, "fromstring", lambda text, real=xml.ET.fromstring: real(checked(text)))
    assert read_xml(TEXTS[name]).records


def checked(text):
    assert not text.startswith("<nvidia_smi_log>"), "the whole answer was parsed"
    return text


@pytest.mark.parametrize("name", TEXTS)
def test_both_readings_say_the_same(name, slowly):
    assert parse_xml(TEXTS[name]) == slowly(TEXTS[name])


def damaged(chance, text):
    """The text without a part or a line, with a line twice, or with something odd in it."""
    lines, at = text.split("\n"), chance.randrange(len(text))
    line = chance.randrange(len(lines))
    place = chance.randrange(len(lines))
    return chance.choice(
        (
            text[:at] + text[at + chance.randrange(1, 200) :],
            "\n".join(lines[:line] + lines[line + 1 :]),
            "\n".join([*lines[:place], lines[line], *lines[place:]]),
            text[:at] + chance.choice(ODD) + text[at:],
            text.replace("\t", "    ") if at % 2 else text.replace("\n", "\r\n"),
        )
    )


@pytest.mark.parametrize("seed", range(8))
def test_both_readings_of_a_damaged_answer_say_the_same(seed, slowly):
    chance = random.Random(seed)
    for _ in range(25):
        text = damaged(chance, chance.choice(list(TEXTS.values())))
        assert parse_xml(text) == slowly(text)
