import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuops.document import parse
from gpuops.errors import DocumentError
from gpuops.inventory.editing import add_host_to_group

TEXT = """\
# the cluster
all:
  children:
    h100:          # eight GPUs each
      vars: {ansible_user: ops}
      hosts:
        gpu02:     # rack 1
          rack: r1
        gpu[01:08]x:

        gpu09: {rack: r2}
        # the last one

    new:
      hosts:
        gpu10: {ansible_host: 10.0.0.10}
"""


def test_the_host_is_the_last_of_its_group_and_nothing_else_changes():
    lines = add_host_to_group(TEXT, "x.yml", "h100", "gpu10").splitlines(keepends=True)
    assert lines[10:12] == ["        gpu09: {rack: r2}\n", "        gpu10:\n"]
    assert "".join(lines[:11] + lines[12:]) == TEXT


def test_who_is_a_member_stays_as_it_is_written():
    assert add_host_to_group(TEXT, "x.yml", "h100", "gpu02") == TEXT


@pytest.mark.parametrize("end", ["\n", ""])
def test_an_empty_group_and_a_file_without_a_last_line_end(end):
    text = f"admitted:\n  hosts:{end}"
    assert add_host_to_group(text, "x.yml", "admitted", "gpu01") == "admitted:\n  hosts:\n    gpu01:\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (TEXT, 'no group called "a100"'),
        ("a100: {hosts: {gpu01: }}\n", "by hand"),
        ("a100:\n  hosts: {}\n", "by hand"),
        ("a100:\n  hosts: gpu01\n", "by hand"),
        ("a100:\n  vars: {x: 1}\n", 'no "hosts:"'),
    ],
)
def test_what_cannot_be_added_to_is_told_at_its_place(text, told):
    with pytest.raises(DocumentError, match=told) as error:
        add_host_to_group(text, "x.yml", "a100", "gpu10")
    assert str(error.value).startswith("x.yml:")


NAMES = st.lists(st.from_regex(r"[a-z]{1,4}[0-9]{1,2}x", fullmatch=True), min_size=1, max_size=5, unique=True)
BODIES = st.sampled_from(["", " {rack: r1}", "\n      rack: r1", "   # note", "\n      vars:\n        deep: 1\n"])


@given(NAMES, st.lists(BODIES, min_size=5, max_size=5), st.sampled_from(["", "  # end\n", "\n\n", "b:\n  hosts:\n"]))
def test_whatever_stands_there_the_host_is_added_and_every_line_is_kept(names, bodies, rest):
    text = "a:\n  hosts:\n" + "".join(f"    {n}:{b}\n" for n, b in zip(names, bodies, strict=False)) + rest
    grown = add_host_to_group(text, "x.yml", "a", "zz")
    assert [line for line in grown.splitlines() if line.strip() != "zz:"] == text.splitlines()
    assert list(parse(grown, "x").plain()["a"]["hosts"]) == [*names, "zz"]
