"""Bring up, check and use GPU clusters over plain SSH.

Programs use `Cluster` (see docs/python.md). Checks, playbook tasks and other content import from here as well.
Names are loaded on first use, to keep ``import gpuops`` and ``gpuops --help`` fast.
"""

from __future__ import annotations

import importlib

from gpuops.version import __version__

TYPE_CHECKING = False  # typing would take time in which Ctrl-C prints a traceback
if TYPE_CHECKING:
    from typing import Any

    from gpuops.catalogue import Catalogue
    from gpuops.cluster import Cluster
    from gpuops.collective.loopback import Loopback
    from gpuops.collective.measurement import Measurement
    from gpuops.collective.nvlink import NvlinkComparison
    from gpuops.collective.preflight.diagnosis import Diagnosis
    from gpuops.collective.sharp import SharpComparison
    from gpuops.collective.sweep import SweepResult
    from gpuops.errors import (
        AuthenticationError,
        BecomeError,
        CancelledError,
        ClosedError,
        ConnectError,
        ContentError,
        DocumentError,
        GpuopsError,
        HostKeyError,
        IncompatibleError,
        InputError,
        Interrupted,
        InUseError,
        LayoutError,
        LockedError,
        LostError,
        MissingError,
        NodeError,
        OfflineError,
        OutputError,
        PatternError,
        TemplateError,
    )
    from gpuops.events import Activity, Event, GateDone, HostDone, LeftOut, Note, Progress, RoundStarted, StepDone
    from gpuops.facts import Facts
    from gpuops.inventory import Bmc, GpuCable, Host, Power, Psu
    from gpuops.judging import Finding, NotApplicable, check
    from gpuops.operations.simulate import simulate
    from gpuops.operations.simulate_program import simulate_program
    from gpuops.placement import Placement
    from gpuops.playbook.record import Record
    from gpuops.playbook.task import Change, Failed, Later, Machine, Mode, NeedsOperator, NodePath, Plan, task, use
    from gpuops.playbook.templating import fill_template
    from gpuops.probing import PartName, Probe, Unknown
    from gpuops.profile import Profile
    from gpuops.reasons import Conclusion, Excluded, Objection
    from gpuops.render import Launch
    from gpuops.report.output import save_facts
    from gpuops.requests import (
        AdmitRequest,
        DrainRequest,
        ExpectRequest,
        FactsRequest,
        FixRequest,
        HostKeysRequest,
        LearnProfileRequest,
        LoopbackRequest,
        MeasureRequest,
        NvlinkRequest,
        OnboardRequest,
        PingRequest,
        PlaceRequest,
        PreflightRequest,
        ProvisionRequest,
        RenderRequest,
        RunRequest,
        SetStateRequest,
        SharpRequest,
        SweepRequest,
        TopologyRequest,
        TrustRequest,
        ValidateRequest,
    )
    from gpuops.results.answers import Answers
    from gpuops.results.expectation import Expectation
    from gpuops.results.health import Report
    from gpuops.results.learned import LearnedProfile
    from gpuops.results.life import History, Onboarding, Transition
    from gpuops.results.repair import Repair
    from gpuops.results.topology import NodeTopologies
    from gpuops.secret import Secret
    from gpuops.shell import Command, Completed, Files, Resources, read_files
    from gpuops.transport.host_keys import HostKeys

__all__ = [
    "Activity",
    "AdmitRequest",
    "Answers",
    "AuthenticationError",
    "BecomeError",
    "Bmc",
    "CancelledError",
    "Catalogue",
    "Change",
    "ClosedError",
    "Cluster",
    "Command",
    "Completed",
    "Conclusion",
    "ConnectError",
    "ContentError",
    "Diagnosis",
    "DocumentError",
    "DrainRequest",
    "Event",
    "Excluded",
    "ExpectRequest",
    "Expectation",
    "Facts",
    "FactsRequest",
    "Failed",
    "Files",
    "Finding",
    "FixRequest",
    "GateDone",
    "GpuCable",
    "GpuopsError",
    "History",
    "Host",
    "HostDone",
    "HostKeyError",
    "HostKeys",
    "HostKeysRequest",
    "InUseError",
    "IncompatibleError",
    "InputError",
    "Interrupted",
    "Later",
    "Launch",
    "LayoutError",
    "LearnProfileRequest",
    "LearnedProfile",
    "LeftOut",
    "LockedError",
    "Loopback",
    "LoopbackRequest",
    "LostError",
    "Machine",
    "MeasureRequest",
    "Measurement",
    "MissingError",
    "Mode",
    "NeedsOperator",
    "NodeError",
    "NodePath",
    "NodeTopologies",
    "NotApplicable",
    "Note",
    "NvlinkComparison",
    "NvlinkRequest",
    "Objection",
    "OfflineError",
    "OnboardRequest",
    "Onboarding",
    "OutputError",
    "PartName",
    "PatternError",
    "PingRequest",
    "PlaceRequest",
    "Placement",
    "Plan",
    "Power",
    "PreflightRequest",
    "Probe",
    "Profile",
    "Progress",
    "ProvisionRequest",
    "Psu",
    "Record",
    "RenderRequest",
    "Repair",
    "Report",
    "Resources",
    "RoundStarted",
    "RunRequest",
    "Secret",
    "SetStateRequest",
    "SharpComparison",
    "SharpRequest",
    "StepDone",
    "SweepRequest",
    "SweepResult",
    "TemplateError",
    "TopologyRequest",
    "Transition",
    "TrustRequest",
    "Unknown",
    "ValidateRequest",
    "__version__",
    "check",
    "fill_template",
    "read_files",
    "save_facts",
    "simulate",
    "simulate_program",
    "task",
    "use",
]

_HOMES = {
    "Activity": "events",
    "AdmitRequest": "requests",
    "Answers": "results.answers",
    "AuthenticationError": "errors",
    "BecomeError": "errors",
    "Bmc": "inventory",
    "CancelledError": "errors",
    "Catalogue": "catalogue",
    "Change": "playbook.task",
    "ClosedError": "errors",
    "Cluster": "cluster",
    "Command": "shell",
    "Completed": "shell",
    "Conclusion": "reasons",
    "ConnectError": "errors",
    "ContentError": "errors",
    "Diagnosis": "collective.preflight.diagnosis",
    "DocumentError": "errors",
    "DrainRequest": "requests",
    "Event": "events",
    "Excluded": "reasons",
    "ExpectRequest": "requests",
    "Expectation": "results.expectation",
    "Facts": "facts",
    "FactsRequest": "requests",
    "Failed": "playbook.task",
    "Files": "shell",
    "Finding": "judging",
    "FixRequest": "requests",
    "GateDone": "events",
    "GpuCable": "inventory",
    "GpuopsError": "errors",
    "History": "results.life",
    "Host": "inventory",
    "HostDone": "events",
    "HostKeyError": "errors",
    "HostKeys": "transport.host_keys",
    "HostKeysRequest": "requests",
    "InUseError": "errors",
    "IncompatibleError": "errors",
    "InputError": "errors",
    "Interrupted": "errors",
    "Later": "playbook.task",
    "Launch": "render",
    "LayoutError": "errors",
    "LearnProfileRequest": "requests",
    "LearnedProfile": "results.learned",
    "LeftOut": "events",
    "LockedError": "errors",
    "LostError": "errors",
    "Machine": "playbook.task",
    "Loopback": "collective.loopback",
    "LoopbackRequest": "requests",
    "MeasureRequest": "requests",
    "Measurement": "collective.measurement",
    "MissingError": "errors",
    "Mode": "playbook.task",
    "NeedsOperator": "playbook.task",
    "NodeError": "errors",
    "NodePath": "playbook.task",
    "NotApplicable": "judging",
    "Note": "events",
    "NvlinkComparison": "collective.nvlink",
    "NvlinkRequest": "requests",
    "NodeTopologies": "results.topology",
    "Objection": "reasons",
    "OfflineError": "errors",
    "OnboardRequest": "requests",
    "Onboarding": "results.life",
    "OutputError": "errors",
    "PartName": "probing",
    "PatternError": "errors",
    "PingRequest": "requests",
    "PlaceRequest": "requests",
    "Placement": "placement",
    "Plan": "playbook.task",
    "Power": "inventory",
    "PreflightRequest": "requests",
    "Probe": "probing",
    "Profile": "profile",
    "Progress": "events",
    "ProvisionRequest": "requests",
    "Psu": "inventory",
    "Record": "playbook.record",
    "RenderRequest": "requests",
    "Repair": "results.repair",
    "Report": "results.health",
    "Resources": "shell",
    "RoundStarted": "events",
    "RunRequest": "requests",
    "Secret": "secret",
    "SetStateRequest": "requests",
    "SharpComparison": "collective.sharp",
    "SharpRequest": "requests",
    "StepDone": "events",
    "SweepRequest": "requests",
    "SweepResult": "collective.sweep",
    "TemplateError": "errors",
    "Transition": "results.life",
    "TopologyRequest": "requests",
    "TrustRequest": "requests",
    "Unknown": "probing",
    "ValidateRequest": "requests",
    "check": "judging",
    "fill_template": "playbook.templating",
    "read_files": "shell",
    "save_facts": "report.output",
    "simulate": "operations.simulate",
    "simulate_program": "operations.simulate_program",
    "task": "playbook.task",
    "use": "playbook.task",
}


def __getattr__(name: str) -> Any:
    """Load a public name from the module that defines it (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'gpuops' has no attribute {name!r}")
    return getattr(importlib.import_module(f"gpuops.{_HOMES[name]}"), name)
