from gpuops.collective.pool import Pool
from gpuops.document import Where
from gpuops.errors import ConnectError
from gpuops.inventory import Host
from gpuops.reasons import Excluded

NAMES = [f"n{number}" for number in range(20)]


def test_hosts_are_excluded_in_the_order_of_the_pool_each_with_its_reason(connections):
    pool = Pool([Host(name, name, Where("a test")) for name in NAMES], connections)
    gone = {name: Excluded(name, "lost", f"{name} is gone") for name in NAMES[5:]}
    pool.exclude([*reversed(gone.values()), Excluded("stranger", "lost", "never here")])
    assert list(pool.excluded.items()) == list(gone.items())
    assert list(pool.hosts) == NAMES[:5]


def test_host_that_fails_is_excluded_with_its_error(connections, a_host):
    def work(_transport, host):
        if host.name == "n1":
            raise ConnectError("n1", "no route", "timeout")
        return host.name

    with Pool([a_host("n0", connection="local"), a_host("n1", connection="local")], connections) as pool:
        assert pool.each(work) == {"n0": "n0"}
        (reason,) = pool.excluded.values()
    assert (reason.host, reason.kind, reason.unreachable, reason.why) == ("n1", "unreachable", "timeout", "no route")
