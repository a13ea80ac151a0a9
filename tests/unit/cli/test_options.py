import resource

import pytest

from gpuops.cli._options import fitting_fanout


@pytest.mark.parametrize(
    ("soft", "hard", "raised", "fits"),
    [
        (1024, 4096, None, 100),
        (256, 4096, 464, 100),
        (256, resource.RLIM_INFINITY, 464, 100),
        (256, 300, 300, 59),
        (256, 256, 256, 48),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, None, 100),
    ],
)
def test_the_limit_of_open_files_is_raised_as_far_as_it_may_be(monkeypatch, capsys, soft, hard, raised, fits):
    limits = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limit: limits.append(limit))
    assert fitting_fanout(100) == fits
    assert limits == ([] if raised is None else [(raised, hard)])
    said = capsys.readouterr().err
    assert ("nodes are asked at a time instead of 100" in said) == (fits < 100)
