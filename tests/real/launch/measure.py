"""A machine beside the hosts that measures rounds with nccl-tests. measure.py PLAN: what to do, as JSON."""

import dataclasses
import json
import sys
import threading
from pathlib import Path

from gpuops.collective.engines import Load
from gpuops.collective.engines.nccl_tests import engine as nccl_tests
from gpuops.inventory import Inventory
from gpuops.isolation.fabric import Fabric, FabricNic, FabricNode
from gpuops.isolation.rounds import RankGroup, Round
from gpuops.transport.connections import Connections

plan = json.loads(sys.argv[1])
nccl_tests._START_SECONDS = plan["start_seconds"]
nics = {
    name: tuple(FabricNic(nic, rail, 12.5) for rail, nic in enumerate(names)) for name, names in plan["nics"].items()
}
fabric = Fabric({name: FabricNode(name, (0, 1), found) for name, found in nics.items()})
hosts = [host for host in Inventory.load(Path(plan["inventory"])).hosts.values() if host.name in nics]
group = Connections().group()
engine = nccl_tests.NcclTestsEngine(hosts, group, fabric, Load(size_bytes=1 << 20), folders=[plan["folder"]])
lost = {name: reason.why for name, reason in engine.open().items()}
if plan["launcher"]:
    assert engine.launcher == plan["launcher"], (engine.launcher, lost)
if plan["close_after_seconds"]:
    threading.Timer(plan["close_after_seconds"], group.close if plan["hang_up"] else engine.close).start()
groups = tuple(RankGroup(tuple(nodes), rail, variant=variant) for nodes, rail, variant in plan["groups"])
figures = engine.measure(Round("pair", groups))
job = engine.allocation
engine.close()
group.close()
sys.stdout.write(
    json.dumps({"lost": lost, "job": job, "figures": [dataclasses.asdict(figure) for figure in figures]}) + "\n"
)
