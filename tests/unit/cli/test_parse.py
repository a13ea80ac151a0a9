import json

import pytest
from click.testing import CliRunner

from gpuops.catalogue import Catalogue
from gpuops.cli.parse import command
from gpuops.errors import InputError

XML = (
    "<nvidia_smi_log><driver_version>580.95.05</driver_version><attached_gpus>1</attached_gpus>"
    '<gpu id="00000000:C3:00.0"><product_name>Card \x1b[31m</product_name>'
    "<fb_memory_usage><used>1024 MiB</used></fb_memory_usage>"
    "<gpu_power_readings><power_draw>71.50 W</power_draw></gpu_power_readings></gpu></nvidia_smi_log>\n"
).replace("\x1b", "&#x9b;")
KINDS = list(Catalogue().kinds())
NVLINK = "GPU 0: H100 (UUID: GPU-00)\n\t Link 0: 26.562 GB/s\n"


def parse(*words, text=""):
    return CliRunner().invoke(command, words, input=text)


def test_text_is_a_tree_with_units():
    done = parse("nvsmi_xml", "-", text=XML)
    assert done.exit_code == 0
    lines = done.output.splitlines()
    assert lines[:5] == [
        "driver_version: 580.95.05",
        "cuda_version: not reported",
        "attached_gpus: 1",
        "gpus:",
        "  - index: 0",
    ]
    assert "    memory_used: 1024 MiB" in lines
    assert "    power_draw: 71.5 W" in lines
    assert "    faulty_fields: none" in lines


def test_a_unit_that_is_the_whole_name_is_written_too():
    assert "      gb_per_s: 26.562 GB/s" in parse("nvlink", "-", text=NVLINK).output.splitlines()


def test_what_a_node_said_cannot_steer_the_terminal():
    assert "name: Card \ufffd[31m" in parse("nvsmi_xml", "-", text=XML).output
    assert "\x9b" not in parse("nvsmi_xml", "-", "--format", "json", text=XML).output


def test_json_is_the_value_field_by_field():
    (gpu,) = json.loads(parse("nvlink", "-", "--format", "json", text=NVLINK).output)["value"]
    assert gpu == {
        "index": 0,
        "name": "H100",
        "uuid": "GPU-00",
        "links": [{"index": 0, "gb_per_s": 26.562}],
        "message": "",
        "unread": "",
    }


def test_a_file_is_read_like_standard_input(tmp_path):
    (tmp_path / "answer").write_text(NVLINK)
    assert parse("nvlink", str(tmp_path / "answer")).output == parse("nvlink", "-", text=NVLINK).output


@pytest.mark.parametrize("form", ["text", "json"])
def test_what_cannot_be_read_says_why_and_ends_with_3(form):
    done = parse("nvlink", "-", "--format", form, text="hello\n")
    assert done.exit_code == 3
    said = done.output if form == "text" else json.loads(done.output)["value"]["unknown"]
    assert 'expected a GPU or its next link, found "hello"' in said
    assert done.output.startswith("unknown: ") == (form == "text")


def test_bytes_that_are_no_text_are_unknown_too():
    assert CliRunner().invoke(command, ["topo", "-"], input=b"\xff\xfe\x00").exit_code == 3


def test_an_unknown_kind_is_answered_with_the_nearest():
    error = parse("nvlnk", "-").exception
    assert isinstance(error, InputError)
    assert error.exit_code == 2
    assert str(error) == 'no kind named "nvlnk"; did you mean "nvlink"?'


def test_help_lists_every_kind():
    done = parse("--help")
    assert {"smi", "kernel_log", "system", "nvsmi_q"} <= set(KINDS)
    assert all(f"\n  {name} " in done.output for name in KINDS)
    assert "nvidia-smi topo -m" in done.output


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_gives_an_answer_to_nothing_and_to_noise(name):
    for text in ("", "\x00\x01 \n:::\n"):
        assert parse(name, "-", text=text).exit_code in {0, 3}


def test_unknown_kind_is_reported_before_the_file():
    error = parse("nvlnk", "missing").exception
    assert isinstance(error, InputError)
    assert str(error) == 'no kind named "nvlnk"; did you mean "nvlink"?'


def test_help_lists_whole_commands_and_no_scripts():
    help_text = parse("--help").output
    assert "..." not in help_text.partition("Kinds")[2].replace("--query-gpu=...", "")
    kinds = Catalogue().kinds().values()
    assert not [kind.printed_by for kind in kinds if "\n" in kind.printed_by or "sh -c" in kind.printed_by]
