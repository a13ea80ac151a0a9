from gpuops.launching.folding import WINDOW_SECONDS, Folder


def folded(count, *lines):
    """Return what is shown after the lines (source, text), which arrive at the same time."""
    shown = []
    folder = Folder(count, lambda sources, text: shown.append((sources, text)))
    for source, text in lines:
        folder.add(source, text, 0.0)
    folder.close()
    return shown


def test_equal_lines_of_all_sources_are_one():
    assert folded(2, ("0", "a"), ("1", "a")) == [(("0", "1"), "a")]


def test_lines_of_one_source_stay_in_order_and_are_not_joined():
    assert folded(2, ("0", "a"), ("0", "a"), ("1", "a")) == [(("0", "1"), "a"), (("0",), "a")]


def test_a_line_never_joins_one_before_a_later_line_of_its_source():
    lines = [("1", "b"), ("0", "a"), ("1", "a"), ("0", "b")]
    assert folded(2, *lines) == [(("1",), "b"), (("0", "1"), "a"), (("0",), "b")]


def test_a_line_waits_for_the_others_but_not_for_ever():
    shown = []
    folder = Folder(2, lambda sources, text: shown.append(text))
    folder.add("0", "a", 0.0)
    folder.flush(WINDOW_SECONDS / 2)
    assert shown == []
    folder.flush(WINDOW_SECONDS)
    assert shown == ["a"]


def test_a_line_of_all_sources_does_not_wait():
    shown = []
    folder = Folder(2, lambda sources, text: shown.append(text))
    folder.add("0", "a", 0.0)
    folder.add("1", "a", 0.0)
    folder.flush(0.0)
    assert shown == ["a"]
