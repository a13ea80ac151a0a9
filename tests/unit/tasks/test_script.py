import pytest

from gpuops.errors import DocumentError


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "tune.sh"
    path.write_text('printf "%s\\n" "$@" >"$1"; umask\n')
    return path


def test_a_script_runs_where_its_guard_says_so(here, source, tmp_path):
    made = tmp_path / "a b'"
    params = {"src": source, "args": [str(made), "$(id)", "-x"], "creates": str(made)}
    (change,) = here.plan("script", **params).changes
    assert (change.what, change.after, change.kind) == ("run tune.sh", source.read_text(), "state")
    assert here.apply("script", **params).changes == []
    assert made.read_text().splitlines() == [str(made), "$(id)", "-x"]


def test_a_guard_of_words_is_asked_again(here, tmp_path):
    source = tmp_path / "make.py"
    source.write_text("import sys, pathlib; pathlib.Path(sys.argv[1]).mkdir()")
    folder = str(tmp_path / "made")
    params = {"src": source, "args": [folder], "interpreter": ["python3", "-"], "unless": ["test", "-d", folder]}
    assert len(here.plan("script", **params).changes) == 1
    assert here.apply("script", **params).changes == []


def test_what_always_runs_is_never_repeated_blindly(planned, source):
    (change,) = planned("script", {}, src=source, always=True, become="always", exits=[0, 3]).changes
    assert (change.kind, change.exits, change.command.become) == ("act", (0, 3), "always")


@pytest.mark.parametrize("params", [{}, {"always": True, "creates": "/x"}, {"always": True, "interpreter": []}])
def test_one_guard_and_a_program_are_needed(planned, source, params):
    with pytest.raises(DocumentError, match=r"set exactly one of creates, unless and always|interpreter must name"):
        planned("script", {}, src=source, **params)


def test_what_is_no_text_is_no_script(planned, source):
    source.write_bytes(b"\x7fELF\xff")
    with pytest.raises(DocumentError, match="utf-8"):
        planned("script", {}, src=source, always=True)
