from types import SimpleNamespace

import pytest

from gpuops.errors import InputError
from gpuops.operations.health import check_required
from gpuops.profile import Profile


def catalogue(required):
    profile = Profile("box", required=frozenset(required))
    return SimpleNamespace(checks=lambda: {"gpu-lost": None}, profiles=lambda: {"box": profile})


def test_a_profile_that_requires_what_is_no_check_is_refused():
    check_required(catalogue({"gpu-lost"}))
    with pytest.raises(InputError, match='profile box: required names no check: "gpu-lots"; did you mean "gpu-lost"'):
        check_required(catalogue({"gpu-lots"}))
