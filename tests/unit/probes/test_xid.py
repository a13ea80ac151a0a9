import pytest

from gpuops.probes.nvidia.xid import XIDS, meaning_of


@pytest.mark.parametrize(
    ("action", "codes"),
    [
        ("none", [43, 44, 66, 67, 137, 162, 165]),
        ("monitor", [13, 31, 32, 63, 80, 92, 94, 121, 145, 149, 157]),
        ("follow", [45]),
        ("reset", [46, 48, 62, 74, 95, 109, 119, 120, 136, 140, 143, 158, 169, 171]),
        ("reboot", [151, 167, 168]),
        ("isolate", [54, 64, 79]),
    ],
)
def test_each_code_asks_for_its_action(action, codes):
    assert {code: meaning_of(code).action for code in codes} == dict.fromkeys(codes, action)


@pytest.mark.parametrize("code", XIDS)
def test_every_row_says_what_to_do_and_where_it_was_read(code):
    row = meaning_of(code)
    assert row.code == code
    assert row.meaning
    assert row.advice
    assert row.source


def test_an_unknown_code_is_monitored():
    assert meaning_of(99999).action == "monitor"
    assert "table" in meaning_of(99999).meaning


@pytest.mark.parametrize(
    ("change", "action"),
    [
        ("0x1 (GPU Reset Required) to 0x0 (None)", "none"),
        ("0x0 (None) to 0x1 (GPU Reset Required)", "reset"),
        ("0x0 (None) to 0x2 (Node Reboot Required)", "reboot"),
        ("0x0 (None) to 0x3 (Drain P2P)", "monitor"),
        ("0x0 (None) to 0x1 (PF FLR)", "reset"),
        ("0x0 (None) to 0x5 (Recover IMEX Domain)", "monitor"),
        ("0x0 (None) to 0x4 (Drain and Reset)", "reset"),
        ("0x0 (None) to 0x9 (Something new)", "reset"),
        ("0x2 (Node Reboot Required) to 0x0 (No", "reset"),
    ],
)
def test_the_text_of_154_decides(change, action):
    assert meaning_of(154, f"GPU recovery action changed from {change}").action == action


def test_no_other_code_listens_to_that_text():
    assert meaning_of(79, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)").action == "isolate"
