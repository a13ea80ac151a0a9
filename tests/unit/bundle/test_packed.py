"""NVIDIA's bug report is read again: its sections, its blocks of base64, and a report that was cut off."""

import base64
import gzip

import pytest

from gpuops.bundle import packed
from gpuops.bundle.private import REMOVED, Private
from gpuops.secret import Secret

RULE = "____________________________________________\n"
NOTHING = Private()


def report(*sections):
    """Members of a gzip file, one after another, as the script appends them."""
    return b"".join(gzip.compress(f"{RULE}\n{section}\n".encode()) for section in sections)


def read(content, private=NOTHING):
    result, removed, left_out = packed.cleaned_report(content, private, "report.gz")
    return gzip.decompress(result).decode(), removed, left_out


@pytest.mark.parametrize(
    "title",
    [
        "*** /home/alice/.nv/nvidia-application-profiles-rc",
        "*** /root/.nvidia-settings-rc",
        "*** /data/users/alice/.config/vulkan/icd.d/x.json",
        "*** /proc/4711/environ",
        "*** /etc/passwd",
        "journalctl -b -0 _COMM=gdm-x-session",
        "/usr/bin/journalctl -b -1 SYSLOG_IDENTIFIER=systemd-coredump -g nvidia",
        "/usr/bin/coredumpctl info COREDUMP_COMM=Xorg",
        "ps aux",
        "/usr/bin/env",
        "lsof /dev/nvidia0",
        'base64 "/home/alice/3dvision.conf"',
    ],
)
def test_sections_with_data_of_users_are_left_out_and_listed(title):
    text, removed, left_out = read(report("first", f"{title}\nprivate 17\n", "the end"))
    assert "private 17" not in text
    assert (REMOVED in text, "first" in text, "the end" in text) == (True, True, True)
    assert removed["sections"] == 1
    assert [(each.what, each.reason) for each in left_out] == [(f"report.gz: {title}", "user_data")]


@pytest.mark.parametrize(
    "title",
    ["dmesg:", "*** /proc/cmdline", "*** /proc/driver/nvidia/version", "/usr/bin/nvidia-smi --query", "*** /etc/issue",
     "Scanning kernel log files for NVIDIA kernel messages:", "/usr/bin/systemctl status nvidia-persistenced.service"],
)  # fmt: skip
def test_other_sections_stay(title):
    text, removed, left_out = read(report(f"{title}\nevidence 17\n"))
    assert "evidence 17" in text
    assert (removed, left_out) == ({}, [])


def test_a_report_that_was_cut_off_counts_as_far_as_it_goes():
    whole = report("first", "second " + "word 1 " * 4000)
    assert "first" in read(whole[:-20])[0]
    assert read(b"")[0] == ""
    assert read(b"no gzip")[0] == ""


def test_a_report_that_grows_without_end_is_cut(monkeypatch):
    monkeypatch.setattr(packed, "_MOST_BYTES", 10_000)
    text, _, left_out = read(report("x" * 50_000, "more"))
    assert len(text) <= 10_000
    assert [each.reason for each in left_out] == ["too_large"]


@pytest.mark.parametrize("offset", range(3))
def test_a_secret_within_a_block_of_base64_is_found_at_any_offset(offset):
    inside = "." * offset + "line of the NVML log\n" * 9 + "API_TOKEN=SECRET99x\n" + "more\n" * 20
    text, removed, _ = read(report("base64 nvml.log\n\n" + base64.encodebytes(inside.encode()).decode()))
    (block,) = packed._BLOCK.findall(text)
    assert b"SECRET99x" not in base64.b64decode(block)
    assert base64.b64decode(block).endswith(b"more\n")
    assert removed["secrets"] == 1


@pytest.mark.parametrize(("secret", "stays"), [("SECRET99x-in-a-dump", False), ("another", True)])
def test_binary_blocks_stay_unless_they_contain_a_known_secret(secret, stays):
    Secret("SECRET99x-in-a-dump")
    inside = b"\0\1\2\377" * 60 + secret.encode() + b"token=abcdef\0" * 3
    text, _, _ = read(report("nvidia-debugdump -D\n\n" + base64.encodebytes(inside).decode()))
    assert bool(packed._BLOCK.search(text)) == stays
    assert (REMOVED in text) == (not stays)


def test_a_secret_that_another_answer_showed_is_masked():
    text, removed, _ = read(report("dmesg:\n\njoined with hunter2hunter2\n"), Private(values=("hunter2hunter2",)))
    assert "hunter2" not in text
    assert removed == {"secrets": 1}
