import pytest

from gpuops.errors import DocumentError

LOCKED = {"domain": "*", "item": "memlock", "value": "unlimited"}


@pytest.mark.parametrize(
    ("old", "params", "new"),
    [
        ("", LOCKED, "* - memlock unlimited\n"),
        ("* soft memlock 64\n* hard memlock 64\n* hard nofile 9\n", LOCKED, "* - memlock unlimited\n* hard nofile 9\n"),
        ("*\t-  memlock  64\nroot - memlock 1\n", LOCKED, "* - memlock unlimited\nroot - memlock 1\n"),
        ("# * - memlock 1\n", LOCKED, "# * - memlock 1\n* - memlock unlimited\n"),
        ("@a - nofile 1\n", {"domain": "@a", "item": "nofile", "value": "7", "type": "soft"},
         "@a - nofile 1\n@a soft nofile 7\n"),
        ("a.b hard nofile 1\naxb hard nofile 1\n", {"domain": "a.b", "item": "nofile", "value": "7", "type": "hard"},
         "a.b hard nofile 7\naxb hard nofile 1\n"),
    ],
)  # fmt: skip
def test_one_line_says_the_limit_and_others_stay(here, tmp_path, monkeypatch, old, params, new):
    file = tmp_path / "90-gpuops.conf"
    file.write_text(old)
    assert here.apply("limits", file=str(file), **params).changes == []
    assert file.read_text() == new


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"item": "memlock", "value": "unlimited"}, "LimitMEMLOCK=infinity"),
        ({"item": "memlock", "value": "8192"}, "LimitMEMLOCK=8192K"),
        ({"item": "nofile", "value": "1048576"}, "LimitNOFILE=1048576"),
    ],
)
def test_a_unit_gets_its_own_in_the_measure_of_systemd(planned, params, expected):
    found = planned("limits", {"systemctl show": ""}, domain="*", units=["slurmd"], **params)
    (drop_in,) = [c for c in found.changes if "slurmd.service.d" in c.what]
    assert drop_in.what == f"write /etc/systemd/system/slurmd.service.d/50-gpuops-{params['item']}.conf"
    assert drop_in.after == f"[Service]\n{expected}\n"


@pytest.mark.parametrize(
    "wrong",
    [{"domain": "a b"}, {"domain": "#"}, {"item": "memory"}, {"value": "64k"}, {"type": "soft", "units": ["slurmd"]}],
)
def test_wrong_parameters_are_refused(planned, wrong):
    with pytest.raises(DocumentError, match="limits"):
        planned("limits", {}, **{**LOCKED, **wrong})
