from gpuops.collective.pool import Pool
from gpuops.document import Where
from gpuops.inventory import Host

NAMES = [f"n{number}" for number in range(20)]


def test_nodes_leave_in_the_order_of_the_pool_each_with_its_reason(connections):
    pool = Pool([Host(name, name, Where("a test")) for name in NAMES], connections)
    pool.leave({**{name: f"{name} is gone" for name in reversed(NAMES[5:])}, "stranger": "never here"})
    assert list(pool.left.items()) == [(name, f"{name} is gone") for name in NAMES[5:]]
    assert list(pool.hosts) == NAMES[:5]
