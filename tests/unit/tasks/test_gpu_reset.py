import pytest

from gpuops import Failed, NeedsOperator
from gpuops.playbook.parameters import as_params
from gpuops.playbook.planning import plan
from gpuops.playbook.task import Machine
from gpuops.probes.host.lspci import PciFunction, gpu_functions
from gpuops.probes.nvidia.nvidia_smi import Gpu, RemappedRows, Smi, SmiError, smi
from gpuops.probes.nvidia.occupancy import Holder, Occupancy, occupancy
from gpuops.probing import Probe, Unknown
from gpuops.shell import Completed

SWITCH = PciFunction("0000:07:00.0", "0680", "10de", "22a3", "a1", "")
QUIET = Occupancy(driver_loaded=True, holders=(Holder(7, "/usr/bin/nvidia-persistenced", "root", ("/dev/nvidia0",)),))


def gpu(index, *, pending=False, architecture="Hopper"):
    rows = RemappedRows(0, 0, pending, failure=False)
    return Gpu(index, f"0000:{index:02x}:00.0", architecture=architecture, remapped_rows=rows)


@pytest.fixture
def planned(library, monkeypatch):
    """What the task plans where the probes say this."""

    def planned(cards=(), *, functions=(SWITCH,), held=QUIET, error=None, **params):
        said = {
            smi.question: cards if isinstance(cards, Unknown) else Smi(gpus=tuple(cards), error=error),
            gpu_functions.question: functions,
            occupancy.question: held,
        }
        monkeypatch.setattr(Probe, "read", lambda _, answer: said[answer.question])
        task = library["gpu_reset"]
        made = as_params(task, {"reason": "a test", **params})
        return plan(task, made, Machine("n1"), lambda asked: [Completed("n1", q, 0) for q in asked], library)

    return planned


def targets(found):
    """What nvidia-smi is asked to reset; nothing: all GPUs."""
    (change,) = found.changes
    return change.command.words[change.command.words.index("--gpu-reset") + 1 :]


@pytest.mark.parametrize("architecture", ["Ampere", "Hopper"])
def test_a_baseboard_of_switches_is_reset_as_one(planned, architecture):
    cards = [gpu(index, pending=index == 3, architecture=architecture) for index in range(8)]
    assert targets(planned(cards, if_pending=True)) == ()
    assert targets(planned(cards, gpus=[3])) == ()


def test_without_switches_only_the_cards_that_are_meant(planned):
    cards = [gpu(0), gpu(1, pending=True), gpu(2, pending=True)]
    assert targets(planned(cards, functions=(), if_pending=True)) == ("-i", "0000:01:00.0,0000:02:00.0")
    assert targets(planned(cards, functions=(), gpus=[2])) == ("-i", "0000:02:00.0")
    assert targets(planned(cards, functions=())) == ()


def test_blackwell_needs_no_whole_baseboard(planned):
    cards = [gpu(index, pending=index == 1, architecture="Blackwell") for index in range(8)]
    assert targets(planned(cards, if_pending=True)) == ("-i", "0000:01:00.0")


def test_where_nobody_knows_of_switches_all_are_reset(planned):
    assert targets(planned([gpu(0, pending=True), gpu(1)], functions=Unknown("no lspci"), if_pending=True)) == ()


def test_what_waits_for_nothing_is_left_alone(planned):
    assert planned([gpu(0), gpu(1)], if_pending=True).changes == []


def test_a_reset_that_is_due_must_hold_and_one_that_is_wished_is_done_once(planned):
    assert planned([gpu(0, pending=True)], if_pending=True).changes[0].kind == "state"
    assert planned([gpu(0)]).changes[0].kind == "act"


@pytest.mark.parametrize(
    "signs",
    [
        {"error": SmiError("gpu-lost", "GPU is lost", ())},
        {"functions": (PciFunction("0000:03:00.0", "0302", "10de", "2330", "ff", ""),)},
    ],
)
def test_a_card_that_fell_off_the_bus_takes_a_reboot(planned, signs):
    (change,) = planned([gpu(0)], **signs).changes
    assert change.reboot.startswith("a test (")


def test_whoever_computes_is_left_alone(planned):
    holder = Holder(4711, "/usr/bin/python3", "alice", ("/dev/nvidia0",))
    found = planned([gpu(0)], held=Occupancy(driver_loaded=True, holders=(holder,)))
    assert (found.changes, type(found.stop)) == ([], NeedsOperator)


def test_without_an_answer_of_the_driver_nothing_is_planned(planned):
    assert isinstance(planned(Unknown("it hangs")).stop, Failed)
