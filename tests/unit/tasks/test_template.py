import pytest

from gpuops import Secret
from gpuops.errors import DocumentError


@pytest.fixture
def source(tmp_path):
    return tmp_path / "conf.j2"


def test_values_are_filled_in_once(here, source, tmp_path, me):
    source.write_text("name {{ name }}\n{% for rail in rails %}\nrail {{ rail }}\n{% endfor %}\n")
    params = {"src": source, "path": str(tmp_path / "x"), "values": {"name": "n1 $(id)", "rails": [0, 1]}, **me}
    assert here.apply("template", **params).changes == []
    assert (tmp_path / "x").read_text() == "name n1 $(id)\nrail 0\nrail 1\n"


def test_braces_in_a_value_are_text(planned, source):
    source.write_text("{{ name }}")
    (change,) = planned("template", {}, src=source, path="/x", values={"name": "{{ 7 * 7 }}"}).changes
    assert change.after == "{{ 7 * 7 }}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("one\n{{ nmae }}", r"conf\.j2:2: 'nmae' is undefined"),
        ("{% if name %}", r"conf\.j2:1: Unexpected end of template"),
        ("\n{{ ''.__class__.__mro__ }}", r"conf\.j2:2: .*unsafe"),
        ("{{ rails }}", "a list or a map into a template"),
        ("{{ password }}", "cannot write a secret, a list or a map"),
        ("{{ 1 // 0 }}", "zero"),
        ("{{ rails.append(1) }}", "unsafe"),
        ("{% include '/etc/passwd' %}", "loader"),
    ],
)
def test_a_wrong_template_is_refused_before_any_node_is_asked(planned, source, text, said):
    source.write_text(text)
    values = {"name": "n1", "rails": [0], "password": Secret("hunter2")}
    with pytest.raises(DocumentError, match=said) as refused:
        planned("template", {}, src=source, path="/x", values=values)
    assert "hunter2" not in str(refused.value)
