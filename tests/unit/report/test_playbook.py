from gpuops.playbook.record import Record
from gpuops.report.page import Page
from gpuops.report.playbook import ending


def test_end_of_a_run_fits_the_page_and_names_nodes_once():
    waiting = {"gpu01": ("boot", "restart"), "gpu02": ("boot", "restart"), "gpu03": (), "gpu04": ("boot",)}
    record = Record(
        playbook="p.yml",
        run_id="r1",
        check=False,
        results=(),
        stopped="1 of 4 nodes of a batch failed",
        waiting=waiting,
        locked=(),
        untouched=("gpu05", "gpu06"),
        interrupted=False,
        seconds=1.5,
    )
    assert list(ending(record, Page())) == [
        "stopped: 1 of 4 nodes of a batch failed",
        "not started: gpu[05-06]",
        "handlers pending on gpu[01-02] until this playbook runs again: boot, restart",
        "handlers pending on gpu04 until this playbook runs again: boot",
    ]
