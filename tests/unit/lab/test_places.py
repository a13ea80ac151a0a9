"""The files of a lab are gone after it, also what gpuops remembered of its hosts."""

from gpuops.lab.places import Places


def test_nothing_is_left_of_a_lab(tmp_path):
    places = Places(tmp_path / ".gpuops" / "lab")
    places.store.mkdir(parents=True)
    for path in (places.inventory, places.state, places.store / "state.db"):
        path.write_text("")
    places.clear()
    assert list(tmp_path.iterdir()) == []


def test_what_others_put_there_stays(tmp_path):
    places = Places(tmp_path / ".gpuops" / "lab")
    places.folder.mkdir(parents=True)
    (places.folder / "notes.txt").write_text("mine")
    places.clear()
    assert [path.name for path in places.folder.iterdir()] == ["notes.txt"]
