import datetime as dt
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpuops.document import Opaque, Where, dump, load, parse, read_bytes
from gpuops.errors import DocumentError


def value(text):
    return parse(f"x: {text}", "f.yml").map()["x"]


def complaint(call):
    with pytest.raises(DocumentError) as error:
        call()
    assert "\n" not in str(error.value)
    return str(error.value)


def test_every_value_knows_its_place():
    root = parse("a: 1\nb:\n  - x\n  - {c: y}\n", "f.yml")
    assert root.where == Where("f.yml", 1, 1)
    assert root.keys == {"a": Where("f.yml", 1, 1), "b": Where("f.yml", 2, 1)}
    items = root.map()["b"].list()
    assert str(items[1].map()["c"].where) == "f.yml:4:9"


def test_keys_that_are_no_text_to_other_readers_are_reported():
    root = parse("010: a\n22:30: b\nno: c\n'011': d\nplain: e\n", "f.yml")
    assert root.typed_keys == {"010": "int", "22:30": "int", "no": "bool"}


WRONG = {
    "a: 1\na: 2\n": 'f.yml:2:1: duplicate key "a", first set on line 1',
    "a:\n\tb: 1\n": "f.yml:2:1: a tab in the indentation; use spaces",
    "[a]: 1\n": "f.yml:1:1: a key must be plain text",
    "a: [1\n": "f.yml:2:1: ",
    "a: !!python/object:os.system {}\n": "f.yml:1:4: !!python/object:os.system is not allowed",
    "a: 1\n---\nb: 2\n": "f.yml:2:1: ",
    "a: *nobody\n": "f.yml:1:4: found undefined alias",
    "a: \x07\n": "f.yml:1:4: ",
    "a: &a [*a]\n": "f.yml:1:4: aliases or nesting make this document too large",
    "[" * 200 + "]" * 200: "f.yml:1:102: aliases or nesting make this document too large",
    "a: {<<: 3}\n": 'f.yml:1:9: expected a map to merge (key: value), found "3"',
}


@pytest.mark.parametrize("text", WRONG, ids=repr)
def test_a_wrong_document_is_told_at_its_place(text):
    assert complaint(lambda: parse(text, "f.yml")).startswith(WRONG[text])


def test_an_alias_bomb_ends_at_once():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    start = time.monotonic()
    assert "aliases or nesting make this document too large" in complaint(lambda: parse("\n".join(lines), "bomb.yml"))
    assert time.monotonic() - start < 2


def test_files_must_be_utf8_text(tmp_path):
    path = tmp_path / "f.yml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n")
    assert load(path).plain() == {"a": 1, "b": 2}
    path.write_text("a: 1", encoding="utf-16")
    assert complaint(lambda: load(path)) == f"{path}: not UTF-8 text; save it as UTF-8"
    assert complaint(lambda: load(tmp_path)) == f"{tmp_path}: cannot be read: is a directory"
    assert complaint(lambda: load(tmp_path / "none")).endswith("none: cannot be read: no such file or directory")


def test_a_file_is_read_up_to_a_limit(tmp_path):
    (tmp_path / "f").write_bytes(bytes(1 << 20))
    assert len(read_bytes(tmp_path / "f", 1 << 20)) == 1 << 20
    for path in (tmp_path / "f", Path("/dev/zero")):
        assert complaint(lambda path=path: read_bytes(path, (1 << 20) - 1)).endswith("is this the right file?")


def test_an_empty_document_is_nothing():
    for text in ("", "---\n", "# only a comment\n", "~"):
        node = parse(text, "f.yml")
        assert node.empty
        assert node.map() == {}
        assert node.list() == []


def test_anchors_and_merge_keys():
    root = parse("a: &a {x: 1, y: 2}\nb: &b {y: 3, z: 4}\nc: {<<: *a, y: 9}\nd: {<<: [*b, *a]}\n", "f.yml").plain()
    assert root["c"] == {"x": 1, "y": 9}
    assert root["d"] == {"x": 1, "y": 3, "z": 4}


def test_the_reader_of_a_value_decides_what_it_means():
    assert value("22:30").text() == "22:30"
    assert value("22:30").plain() == 1350
    assert value("010").text() == "010"
    assert value("yes").boolean() is True
    assert value("Off").boolean() is False
    assert value("-5").integer() == -5
    assert value("1e-3").number() == 0.001
    assert value("'1.10'").version() == "1.10"
    assert value("580.159.04").version() == "580.159.04"
    assert value("gpu01").word() == "gpu01"
    assert value("12").word() == "12"
    assert value("'010'").word() == "010"


READERS = {
    "text": (["", "~", "[a]", "{a: 1}"], {}),
    "word": (["010", "22:30", "yes", "1.10", "0x1f", "1_000", "[a]"], {}),
    "version": (["1.10", "12.4", "010", "22:30", "~"], {}),
    "integer": (["010", "22:30", "1.0", "0x1f", "1_000", "x", "99", "-1", "''"], {"low": 0, "high": 9}),
    "number": (["x", "0x1f", ".", "1:2", "nan", ".inf", "''"], {}),
    "boolean": (["1", "x", "[true]"], {}),
    "map": (["x", "[a]"], {}),
    "list": (["x", "{a: 1}"], {}),
}


@pytest.mark.parametrize(("reader", "text"), [(r, t) for r, (texts, _) in READERS.items() for t in texts])
def test_a_value_of_the_wrong_kind_is_told_at_its_place(reader, text):
    node = value(text)
    assert complaint(lambda: getattr(node, reader)(**READERS[reader][1])).startswith("f.yml:1:")


def test_unknown_keys_name_the_nearest():
    root = parse("hots: 1\n", "prod.yml")
    assert complaint(lambda: root.only(("hosts", "vars"), 'under group "h100"')) == (
        'prod.yml:1:1: unknown key "hots" under group "h100"; did you mean "hosts"?'
    )
    assert complaint(lambda: root.only(("a", "b"), "here")) == 'prod.yml:1:1: unknown key "hots" here; known: a, b'
    assert complaint(lambda: value("3").only(("a",), "here")) == 'f.yml:1:4: expected a map (key: value), found "3"'
    assert list(root.only(("hots",), "here")) == ["hots"]


def test_plain_values_are_what_yaml_1_1_says():
    text = "a: [1, 010, 0x1f, 1.5, yes, ~, 2024-01-02, text, '1']\nb: {c: !!str 5}\n"
    assert parse(text, "f.yml").plain() == yaml.safe_load(text)
    assert parse(text, "f.yml").plain()["a"][6] == dt.date(2024, 1, 2)


def test_values_for_other_tools_stay_opaque():
    assert value("!vault secret").plain() == Opaque("!vault", "secret")
    assert "secret" not in repr(value("!vault secret").plain())


@pytest.mark.parametrize("text", ['!!int ""', '!!float ""', "!!bool maybe", "!!timestamp x", "!!int x", "!!binary é"])
def test_a_value_that_does_not_fit_its_tag_is_reported(text):
    assert complaint(value(text).plain).startswith("f.yml:1:4: ")


def test_what_is_dumped_reads_back():
    data = {
        "text": ["22:30", "010", "yes", "", " x ", "a: b", "#", "a\nb\n", "\x85\u2028é\ufeff\x07", "{{ x }}", "!vault"],
        "other": {"n": 1, "f": 1.5, "t": True, "none": None, "empty": {}, "nothing": []},
        "opaque": Opaque("!vault", "$ANSIBLE_VAULT;1.1\n3132\n"),
        "unsafe": Opaque("!unsafe", "{{ x }}"),
    }
    data["again"] = data["other"]
    assert parse(dump(data), "f.yml").plain() == data
    assert "&id" not in dump(data)
    assert "opaque: !vault |\n" in dump(data)


@given(st.text(max_size=60) | st.text(alphabet="abc:-[]{}\"'!&*<|>%@#\n ,?~0123456789.", max_size=60))
def test_any_text_gives_a_document_or_one_sentence(text):
    try:
        parse(text, "f.yml").plain()
    except DocumentError as error:
        sentence = str(error)
        assert sentence.startswith("f.yml:")
        assert "\n" not in sentence
