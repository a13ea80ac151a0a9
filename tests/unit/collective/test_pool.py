import pytest

from gpuops.cancellation import CancelToken
from gpuops.collective.pool import Pool
from gpuops.document import Where
from gpuops.errors import CancelledError
from gpuops.inventory import Host
from gpuops.shell import Command

NAMES = [f"n{number}" for number in range(20)]
TRUE = Command(("true",))


def test_nodes_leave_in_the_order_of_the_pool_each_with_its_reason(connections):
    pool = Pool([Host(name, name, Where("a test")) for name in NAMES], connections)
    pool.leave({**{name: f"{name} is gone" for name in reversed(NAMES[5:])}, "stranger": "never here"})
    assert list(pool.left.items()) == [(name, f"{name} is gone") for name in NAMES[5:]]
    assert list(pool.hosts) == NAMES[:5]


def test_a_pool_that_is_cancelled_or_closed_asks_nothing_more(connections, a_host):
    local = [a_host(name, connection="local") for name in NAMES[:3]]
    token = CancelToken()
    with Pool(local, connections, cancel=token) as pool, Pool(local, connections) as other:
        assert set(pool.ask([TRUE])) == set(NAMES[:3])
        token.cancel()
        with pytest.raises(CancelledError):
            pool.ask([TRUE])
        other.close()
        assert other.ask([TRUE]) == {}
        assert list(other.left.values()) == [f"{name}: hung up" for name in NAMES[:3]]
