"""One name for one thing: fields of a request, keywords of its method, and parameters of its command."""

import dataclasses
import importlib
import inspect

import pytest

from gpuops import requests
from gpuops.calls import OPERATIONS
from gpuops.cli import program
from gpuops.cli._common.options import OPTIONS
from gpuops.cluster import Cluster
from gpuops.reasons import Request
from gpuops.workspace import Workspace

METHODS = {
    "PingRequest": "ping",
    "FactsRequest": "facts",
    "RunRequest": "run",
    "ValidateRequest": "validate",
    "MeasureRequest": "allreduce",
    "LearnProfileRequest": "learn_profile",
    "TopologyRequest": "topology",
    "ExpectRequest": "allreduce_expected",
    "NvlinkRequest": "nvlink",
    "LoopbackRequest": "loopback",
    "SweepRequest": "sweep",
    "SharpRequest": "sharp",
    "PreflightRequest": "preflight",
    "PlaceRequest": "place",
    "PlanRequest": "plan",
    "RenderRequest": "render",
    "LaunchRequest": "launch",
    "ProvisionRequest": "provision",
    "FixRequest": "fix",
    "BundleRequest": "bundle",
    "HostKeysRequest": "host_keys",
    "TrustRequest": "trust",
    "OnboardRequest": "onboard",
    "AdmitRequest": "admit",
    "DrainRequest": "drain",
    "SetStateRequest": "set_state",
}
VERBS = {
    **METHODS,
    "MeasureRequest": "allreduce",
    "LearnProfileRequest": "profiles learn",
    "ExpectRequest": "allreduce expect",
    "NvlinkRequest": "allreduce nvlink",
    "LoopbackRequest": "allreduce loopback",
    "SweepRequest": "allreduce sweep",
    "SharpRequest": "allreduce sharp",
    "HostKeysRequest": "trust",
    "SetStateRequest": "state set",
}
FROM_HOSTS = {"facts", "keep_answers"}
"""The command line reads facts with --from, and keeps answers with --save."""
OTHER_WORDS = {
    ("RunRequest", "command"): "words",
    ("PreflightRequest", "command"): "words",
    ("PreflightRequest", "hostfile_text"): None,  # the command line reads the files that the launch command names
    ("PlaceRequest", "measured"): None,  # no file contains only a measurement
    ("PlaceRequest", "gpus_by_node"): "pattern",
    ("PlanRequest", "cluster"): "machines",  # the command line has a cluster of hosts
    ("RenderRequest", "command"): "words",
    ("RenderRequest", "target"): "targets",
    ("RenderRequest", "placement"): None,  # computed from the options of place
    ("LaunchRequest", "command"): "words",
    ("LaunchRequest", "placement"): None,
    ("FixRequest", "check_only"): None,  # the command line always previews first
}
REQUESTS = sorted(OPERATIONS, key=lambda request: request.__name__)


def of(request):
    return [field.name for field in dataclasses.fields(request)]


def parameters_of(line):
    command = program
    for word in line.split():
        command = command.get_command(None, word)
    return {parameter.name for parameter in command.params}


def test_every_request_has_an_operation_a_method_and_a_verb():
    names = {name for name in requests.__all__ if name.endswith("Request")}
    assert names == {request.__name__ for request in OPERATIONS} == set(METHODS)
    assert all(issubclass(request, Request) and getattr(requests, request.__name__) is request for request in REQUESTS)


@pytest.mark.parametrize("request_type", REQUESTS, ids=lambda r: r.__name__)
def test_the_fields_of_a_request_are_the_keywords_of_its_method(request_type):
    parameters = dict(inspect.signature(getattr(Cluster, METHODS[request_type.__name__])).parameters)
    del parameters["self"]
    assert list(parameters) == of(request_type)
    for field in dataclasses.fields(request_type):
        default = parameters[field.name].default
        expected = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
        assert default == expected, field.name


@pytest.mark.parametrize("request_type", REQUESTS, ids=lambda r: r.__name__)
def test_method_passes_its_arguments_to_the_request(request_type, monkeypatch):
    monkeypatch.setattr(Cluster, "ask", lambda _self, request: request)
    given = {name: f"the {name}" for name in of(request_type)}
    if request_type is requests.MeasureRequest:
        given |= {"engine": "tcp", "scopes": ("rail",), "operation": "all_gather", "confidence": 0.01}
    if request_type is requests.ExpectRequest:
        given["operation"] = "all_gather"
    if request_type in (requests.NvlinkRequest, requests.SharpRequest):
        given["engine"] = "nccl"
    if request_type is requests.LaunchRequest:
        given["launch"] = None  # it has a placement
    if request_type is requests.SweepRequest:
        given |= {"engine": "tcp", "scope": "group", "operation": "all_gather"}
    with Cluster.of([]) as cluster:
        assert getattr(cluster, METHODS[request_type.__name__])(**given) == request_type(**given)


@pytest.mark.parametrize("request_type", REQUESTS, ids=lambda r: r.__name__)
def test_the_fields_of_a_request_are_the_parameters_of_its_verb(request_type):
    name = request_type.__name__
    parameters = parameters_of(VERBS[name])
    for field in set(of(request_type)) - FROM_HOSTS:
        word = OTHER_WORDS.get((name, field), field)
        assert word is None or word in parameters, field


def test_every_option_has_the_name_of_a_field():
    fields = {field for request in REQUESTS for field in of(request)}
    assert set(OPTIONS) <= fields
    for name, option in OPTIONS.items():
        parameters = [each.name for each in option(lambda: None).__click_params__ if each.expose_value]
        assert parameters == [name]


@pytest.mark.parametrize(("request_type", "path"), OPERATIONS.items(), ids=lambda each: getattr(each, "__name__", each))
def test_every_operation_takes_a_workspace_and_its_request(request_type, path):
    module, _, function = path.partition(".")
    operation = getattr(importlib.import_module(f"gpuops.operations.{module}"), function)
    hints = inspect.get_annotations(operation, eval_str=True)
    assert list(inspect.signature(operation).parameters) == ["work", "request"]
    assert (hints["work"], hints["request"]) == (Workspace, request_type)
    assert {"to_document", "to_json", "conclusion"} <= set(dir(getattr(hints["return"], "__origin__", hints["return"])))
