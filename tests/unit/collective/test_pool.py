import pytest

from gpuops.cancellation import CancelToken
from gpuops.collective.pool import Pool
from gpuops.document import Where
from gpuops.errors import CancelledError, ConnectError
from gpuops.inventory import Host
from gpuops.reasons import Excluded
from gpuops.shell import Command

NAMES = [f"n{number}" for number in range(20)]
TRUE = Command(("true",))


def test_hosts_are_excluded_in_the_order_of_the_pool_each_with_its_reason(connections):
    pool = Pool([Host(name, name, Where("a test")) for name in NAMES], connections)
    gone = {name: Excluded(name, "lost", f"{name} is gone") for name in NAMES[5:]}
    pool.exclude([*reversed(gone.values()), Excluded("stranger", "lost", "never here")])
    assert list(pool.excluded.items()) == list(gone.items())
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
        reasons = [(reason.host, reason.kind, reason.why) for reason in other.excluded.values()]
        assert reasons == [(name, "unreachable", "gpuops closed the connection") for name in NAMES[:3]]


def test_host_that_fails_is_excluded_with_its_error(connections, a_host):
    def work(_transport, host):
        if host.name == "n1":
            raise ConnectError("n1", "no route", "timeout")
        return host.name

    with Pool([a_host("n0", connection="local"), a_host("n1", connection="local")], connections) as pool:
        assert pool.each(work) == {"n0": "n0"}
        (reason,) = pool.excluded.values()
    assert (reason.host, reason.kind, reason.unreachable, reason.why) == ("n1", "unreachable", "timeout", "no route")
