from dataclasses import replace
from datetime import datetime, timezone

import pytest

from gpuops.collective.idleness.proof import FIRST, STILL, NodeAllocation, idleness_of, still_idle
from gpuops.facts import Facts
from gpuops.probes.nvidia.nvidia_smi import Gpu, Process, Smi, SmiError
from gpuops.probes.nvidia.occupancy import Holder, Occupancy
from gpuops.probing import Unknown
from gpuops.profile import NO_PROFILE

NOBODY = Occupancy(
    driver_loaded=True, holders=(Holder(9, "/usr/bin/nvidia-persistenced", "root", ("/dev/nvidiactl",)),)
)


def card(index=0, used=1, processes=()):
    return Gpu(index, f"0000:{index:02x}:00.0", memory_used_mib=used, processes=processes)


def facts(cards=Smi(gpus=(card(0), card(1))), held=NOBODY, *, loaded=True):  # noqa: B008
    values = {"smi": cards, "occupancy": held, "driver_loaded": loaded}
    return Facts("gpu01", datetime.now(timezone.utc), values)


def told(ours=(), profile=NO_PROFILE, allocation=(), **of):
    return str(idleness_of(facts(**of), profile, ours, allocation))


def test_a_node_with_nothing_but_daemons_is_idle():
    assert told() == "idle"
    assert [probe.name for probe in FIRST] == ["smi", "driver_loaded", "occupancy", "pci_vendors"]
    assert [probe.name for probe in STILL] == ["driver_loaded", "occupancy", "pci_vendors"]


def test_a_compute_process_is_told_once_however_many_gpus_it_has():
    cards = Smi(gpus=tuple(card(i, 70000, (Process(4711, "/usr/bin/python", 69990),)) for i in range(8)))
    assert told(cards=cards) == "busy (pid 4711 python)"


def test_a_process_that_only_opened_a_device_file_is_busy_before_it_holds_memory():
    held = Occupancy(driver_loaded=True, holders=(Holder(4711, "/usr/bin/python", "alice", ("/dev/nvidia0",)),))
    assert told(held=held) == "busy (pid 4711 python, user alice)"
    assert str(still_idle(facts(held=held))) == "busy (pid 4711 python, user alice)"


def test_whoever_was_given_the_node_holds_it_though_nothing_computes_yet():
    job = (NodeAllocation("Slurm job 17 train, user alice", "17"),)
    assert told(allocation=job) == "busy (Slurm job 17 train, user alice)"
    assert str(still_idle(facts(), (), job)) == "busy (Slurm job 17 train, user alice)"
    assert (
        told(allocation=(NodeAllocation("pod ml/a"), NodeAllocation("pod ml/b"), NodeAllocation("pod ml/c")))
        == "busy (pod ml/a, and 2 more)"
    )
    assert told(allocation=Unknown("no answer of kubectl")) == "not proved idle (no answer of kubectl)"


def test_our_own_processes_do_not_count_and_others_still_do():
    ours = {50}
    held = Occupancy(driver_loaded=True, holders=(Holder(50, "/usr/bin/python3", "ops", ("/dev/nvidia0",)),))
    cards = Smi(gpus=(card(0, 3000, (Process(50, "python3", 2995),)),))
    assert told(held=held, cards=cards, ours=ours) == "idle"
    both = Smi(gpus=(card(0, 3000, (Process(50, "python3", 2000), Process(51, "python3", 999))),))
    assert told(held=held, cards=both, ours=ours) == "busy (pid 51 python3)"


def test_memory_without_a_process_is_busy_where_the_profile_knows_better_and_else_unproved():
    cards = Smi(gpus=(card(0), card(1, 4120)))
    known = NO_PROFILE.expecting({"gpu.idle_memory_mib": 600}, "test")
    assert told(cards=cards, profile=known) == "busy (gpu1 has 4120 MiB in use that belong to no process)"
    assert told(cards=cards) == "not proved idle (gpu1 has 4120 MiB in use that belong to no process)"
    assert told(cards=Smi(gpus=(card(0, 600),)), profile=known) == "idle"
    assert told(cards=Smi(gpus=(card(0, 15),))) == "idle"
    assert told(cards=Smi(gpus=(card(0, 16),))) != "idle"


@pytest.mark.parametrize(
    "hidden",
    [
        {"cards": Unknown("nvidia-smi is not installed")},
        {"cards": Smi(gpus=(card(0),), error=SmiError("gpu-lost", "GPU is lost"))},
        {"cards": Smi(gpus=(card(0, None),))},
        {"cards": Smi(gpus=(card(0, 1, None),))},
        {"held": Unknown("find is not installed")},
        {"held": Occupancy(driver_loaded=True, hidden="no root")},
    ],
)
def test_what_could_not_be_seen_is_no_proof(hidden):
    assert idleness_of(facts(**hidden), NO_PROFILE).state == "unproved"


def test_what_was_seen_weighs_more_than_what_was_not():
    assert told(allocation=(NodeAllocation("pod ml/a"),), held=Unknown("?")) == "busy (pod ml/a)"


def test_before_the_driver_is_installed_nobody_can_compute():
    none = Unknown("nvidia-smi is not installed")
    hidden = Unknown("only root can list the processes that use the GPUs")
    assert told(cards=none, held=Occupancy(driver_loaded=False), loaded=Unknown("no list")) == "idle"
    assert told(cards=none, held=hidden, loaded=False) == "idle"
    assert str(still_idle(facts(held=hidden, loaded=False))) == "idle"
    assert told(cards=none, held=hidden, loaded=Unknown("no list")) != "idle"
    assert told(cards=none, held=hidden, loaded=False, allocation=(NodeAllocation("pod ml/a"),)) == "busy (pod ml/a)"


@pytest.mark.parametrize(
    ("vendors", "state"), [({"8086"}, "idle"), ({"8086", "10de"}, "unproved"), (Unknown("no /proc/bus"), "unproved")]
)
def test_a_machine_without_gpus_is_not_busy_though_its_processes_are_hidden(vendors, state):
    held = Occupancy(driver_loaded=False, hidden="not every process may be looked at: find: /proc/1/exe")
    known = facts(Unknown("nvidia-smi is not installed"), held, loaded=Unknown("no list"))
    bare = replace(known, values={**known.values, "pci_vendors": vendors})
    assert idleness_of(bare, NO_PROFILE).state == still_idle(bare).state == state


def test_facts_that_were_not_asked_for_prove_nothing():
    empty = Facts("gpu01", datetime.now(timezone.utc), {})
    assert idleness_of(empty, NO_PROFILE).state == "unproved"
    assert still_idle(empty).state == "unproved"
