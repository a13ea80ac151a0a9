import pytest

from gpuops.probes.host.limits import Limit, limits, parse_limits
from gpuops.probing import Unknown

TABLE = """\
Limit                     Soft Limit           Hard Limit           Units     \n\
Max cpu time              unlimited            unlimited            seconds   \n\
Max processes             8250000              8250000              processes \n\
Max open files            1024                 1048576              files     \n\
Max locked memory         65536                unlimited            bytes     \n\
Max nice priority         0                    0                    \n\
"""


@pytest.fixture
def told(files_text):
    return lambda table: parse_limits(files_text({"/proc/self/limits": table}))


def test_limits_bear_the_kernels_names(told):
    assert told(TABLE) == {
        "Max cpu time": Limit(None, None),
        "Max processes": Limit(8250000, 8250000),
        "Max open files": Limit(1024, 1048576),
        "Max locked memory": Limit(65536, None),
        "Max nice priority": Limit(0, 0),
    }


@pytest.mark.parametrize("garbage", ["unlimitedd", "-1", "many", "65 536"])
def test_a_garbled_limit_is_unknown(garbage, told):
    assert isinstance(told(TABLE.replace("65536", garbage)), Unknown)


def test_a_cut_table_never_lifts_a_limit(told):
    whole = told(TABLE)
    for end in range(len(TABLE)):
        cut = told(TABLE[:end])
        assert isinstance(cut, Unknown) or all(cut[name].soft == whole[name].soft for name in cut)


def test_a_cut_answer_is_unknown(files_text):
    text = files_text({"/proc/self/limits": TABLE})
    assert all(isinstance(parse_limits(text[:end]), Unknown) for end in range(len(text)))


def test_the_sessions_own_limits_are_asked_for():
    assert limits.question.globs == ("/proc/self/limits",)
