from dataclasses import fields, replace
from pathlib import Path

import pytest

from gpuops.collective.request import MeasureRequest
from gpuops.errors import InputError
from gpuops.isolation.evidence import CONFIDENCE
from gpuops.requests import NvlinkRequest


def test_the_fields_are_those_of_the_public_call():
    assert [field.name for field in fields(MeasureRequest)] == [
        "engine",
        "scopes",
        "operation",
        "gib",
        "seconds",
        "force_busy",
        "interface",
        "libnccl",
        "facts",
        "keep_answers",
        "confidence",
        "save_run",
    ]


def test_a_request_is_data():
    request = MeasureRequest("tcp", ("rail",), gib=0.5, force_busy=("gpu01",), libnccl=Path("libnccl.so.2"))
    assert request == MeasureRequest("tcp", ("rail",), gib=0.5, force_busy=("gpu01",), libnccl=Path("libnccl.so.2"))
    assert request != replace(request, seconds=1.0)
    assert hash(request) == hash(replace(request, facts={}))
    assert "force_busy=('gpu01',)" in repr(request)
    with pytest.raises(AttributeError):
        request.engine = "nccl"


@pytest.mark.parametrize(("gib", "size_bytes"), [(None, None), (1, 1 << 30), (0.5, 1 << 29)])
def test_the_payload_is_told_in_bytes(gib, size_bytes):
    assert MeasureRequest(gib=gib).size_bytes == size_bytes


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"engine": "ncll"}, 'unknown engine "ncll"; did you mean "nccl"?'),
        ({"engine": "x"}, 'unknown engine "x"; use auto, nccl, nccl-tests, tcp'),
        ({"scopes": ("rail", "rack")}, 'unknown scope "rack"'),
        ({"operation": "broadcast"}, 'unknown operation "broadcast"'),
    ],
)
def test_a_word_that_means_nothing_is_refused(wrong, sentence):
    with pytest.raises(InputError) as refused:
        MeasureRequest(**wrong)
    assert sentence in str(refused.value)


def test_nvlink_is_compared_by_an_engine_that_uses_it():
    assert NvlinkRequest().engine == "auto"
    with pytest.raises(InputError, match='unknown engine "tcp"; use auto, nccl, nccl-tests'):
        NvlinkRequest("tcp")


def test_a_healthy_part_is_blamed_as_rarely_as_the_isolation_says():
    assert MeasureRequest().confidence == CONFIDENCE
