import pytest

from gpuops.errors import DocumentError
from gpuops.project import Project, load_project


def test_without_a_file_everything_has_a_default(tmp_path):
    assert load_project(tmp_path) == Project(None, 64, "fail", ".gpuops/state.db", "none", "none")


def test_every_key_is_read(tmp_path):
    (tmp_path / "gpuops.yml").write_text(
        "inventory: prod.yml\nfanout: 32\nfail_on: warn\nstore: /srv/s.db\nscheduler: slurm\nlease: drain\n"
    )
    assert load_project(tmp_path) == Project("prod.yml", 32, "warn", "/srv/s.db", "slurm", "drain")


def test_the_current_folder_is_the_project(tmp_path, monkeypatch):
    (tmp_path / "gpuops.yml").write_text("fanout: 7\n")
    monkeypatch.chdir(tmp_path)
    assert load_project().fanout == 7


@pytest.mark.parametrize(
    ("text", "where", "said"),
    [
        ("fanuot: 3\n", "gpuops.yml:1:1", 'did you mean "fanout"'),
        ("fanout: 0\n", "gpuops.yml:1:9", "1"),
        ("fanout: many\n", "gpuops.yml:1:9", "number"),
        ("store: s\nfail_on: always\n", "gpuops.yml:2:10", '"always" is not one of fail, warn, never'),
        ("scheduler: pbs\n", "gpuops.yml:1:12", "none, slurm, kubernetes"),
        ("scheduler: slurm\nlease: all\n", "gpuops.yml:2:8", "none, reservation, drain"),
        ("lease: drain\n", "gpuops.yml:1:8", "needs scheduler: slurm"),
        ("- a\n", "gpuops.yml:1:1", "list"),
        ("fanout: 1\nfanout: 2\n", "gpuops.yml:2:1", "first on line 1"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path, text, where, said):
    (tmp_path / "gpuops.yml").write_text(text)
    with pytest.raises(DocumentError, match=said) as caught:
        load_project(tmp_path)
    assert where in str(caught.value)
