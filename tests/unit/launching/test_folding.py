from gpuops.launching.folding import REPEAT_SECONDS, WINDOW_SECONDS, Folder


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


def shown_at(count, *lines, until=20.0):
    """Return what is shown, with the time in tenths of a second, of the lines (tenth, source, text)."""
    shown, now = [], 0
    folder = Folder(count, lambda sources, text: shown.append((now, sources, text)))
    for now in range(int(until * 10)):
        for _, source, text in (line for line in lines if line[0] == now):
            folder.add(source, text, now / 10)
        folder.flush(now / 10)
    return shown


def test_equal_lines_of_ranks_that_start_over_some_seconds_are_two():
    lines = [(rank, str(rank), "same line") for rank in range(32)]
    first, second = shown_at(32, *lines)
    assert (first[0], first[1]) == (WINDOW_SECONDS * 10, ("0", "1", "2", "3", "4", "5"))
    assert (second[0], len(second[1])) == (31, 26)


def test_a_repeated_line_does_not_wait_for_ever():
    lines = [(0, "0", "a"), (20, "1", "a")]
    assert shown_at(3, *lines) == [(5, ("0",), "a"), (20 + REPEAT_SECONDS * 10, ("1",), "a")]


def test_a_repeated_line_holds_up_no_other_source_and_comes_before_the_next_line_of_its_own():
    lines = [(0, "0", "a"), (10, "1", "a"), (11, "2", "b"), (20, "1", "c")]
    shown = [(sources[0], text) for _, sources, text in shown_at(3, *lines)]
    assert shown == [("0", "a"), ("2", "b"), ("1", "a"), ("1", "c")]
    assert [at for at, *_ in shown_at(3, *lines)] == [5, 16, 25, 25]


def test_a_line_that_its_own_source_repeats_is_a_new_one():
    lines = [(0, "0", "step"), (10, "0", "step"), (11, "1", "step")]
    assert [(at, sources) for at, sources, _ in shown_at(3, *lines)] == [(5, ("0",)), (15, ("0", "1"))]
