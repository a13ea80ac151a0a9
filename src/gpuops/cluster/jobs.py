"""Methods of a cluster for a job: why it cannot start, its layout, its placement, its files and its start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuops.calls import Calls
from gpuops.requests import LaunchRequest, PlaceRequest, PlanRequest, PreflightRequest, RenderRequest

if TYPE_CHECKING:
    from gpuops.collective.measurement import Measurement
    from gpuops.collective.preflight.diagnosis import Diagnosis
    from gpuops.facts import Facts
    from gpuops.launching.outcome import JobRun
    from gpuops.layout import ModelSpec
    from gpuops.placement import Placement
    from gpuops.planner.gpus import Precision
    from gpuops.planner.training import Framework, Optimizer
    from gpuops.render import Launch
    from gpuops.results.layout_plan import LayoutPlan


class Jobs(Calls):
    """Jobs on a cluster's hosts; each method passes the request of the same name to `ask`."""

    def preflight(
        self,
        command: Sequence[str],
        *,
        force_busy: Sequence[str] = (),
        hostfile_text: Mapping[str, str] | None = None,
        save_run: bool = True,
    ) -> Diagnosis:
        """Explain why the job that ``command`` launches cannot start, and which line to change."""
        return self.ask(PreflightRequest(command, force_busy, hostfile_text, save_run))

    def plan(
        self,
        model: Path | Mapping[str, Any] | None = None,
        sizes: Mapping[str, int] | None = None,
        *,
        cluster: str = "",
        global_batch: int | None = None,
        sequence: int | None = None,
        precision: Precision = "bf16",
        optimizer: Optimizer = "adam",
        framework: Framework = "megatron",
        strategy: str = "",
        why_not: Sequence[str] = (),
        against: str = "",
        explain: bool = False,
        top: int = 5,
        all_nodes: bool = False,
        calibration: Path | None = None,
        facts: Mapping[str, Facts] | None = None,
        max_age: float = 600.0,
        days: float | None = None,
        tokens: int | None = None,
        checkpoint_seconds: float = 60.0,
        restart_seconds: float = 600.0,
        repair_seconds: float = 172800.0,
        host_gib: float | None = None,
        nvme_gib: float | None = None,
    ) -> LayoutPlan:
        """Return the fastest layouts of ``model`` on these hosts, or on a catalogue's ``cluster``; see `PlanRequest`.

        Iterating over the plan yields an `Estimate` for each layout, the fastest first.
        """
        job = PlanRequest(model, sizes, cluster, global_batch, sequence, precision, optimizer, framework)
        asked = replace(job, strategy=strategy, why_not=why_not, against=against, explain=explain)
        asked = replace(asked, top=top, all_nodes=all_nodes, facts=facts, max_age=max_age, days=days, tokens=tokens)
        asked = replace(asked, checkpoint_seconds=checkpoint_seconds, restart_seconds=restart_seconds)
        asked = replace(asked, repair_seconds=repair_seconds, host_gib=host_gib, nvme_gib=nvme_gib)
        return self.ask(replace(asked, calibration=calibration))

    def place(
        self,
        layout: str = "dp=all",
        *,
        order: str = "tp-cp-ep-dp-pp",
        all_nodes: bool = False,
        allow_fewer: bool = False,
        force: bool = False,
        facts: Mapping[str, Facts] | None = None,
        measured: Measurement | None = None,
        max_age: float = 600.0,
        gpus_by_node: Mapping[str, int] | None = None,
        replaced: Sequence[str] = (),
        earlier: Path = Path("launch"),
    ) -> Placement:
        """Assign every rank of ``layout`` to a GPU of a healthy host; hosts that ``measured`` blames are excluded.

        Hosts that a validation of this project saw at most ``max_age`` seconds ago are not asked again. With
        ``gpus_by_node``, the number of GPUs by host name, no host is asked at all. Spares take the place of
        ``replaced`` hosts (patterns) of the job in the launch directory ``earlier``; its other ranks stay.
        """
        return self.ask(
            PlaceRequest(
                layout, order, all_nodes, allow_fewer, force, facts, measured, max_age, gpus_by_node, replaced, earlier
            )
        )

    def render(
        self,
        placement: Placement,
        target: str,
        *,
        command: Sequence[str] = ("train.py",),
        name: str = "train",
        port: int | None = None,
        model: Path | Mapping[str, Any] | ModelSpec | None = None,
        force: bool = False,
        image: str = "",
        mounts: Sequence[str] = (),
        queue: str = "",
        master: str = "",
        time_seconds: int = 0,
    ) -> Launch:
        """Return the files that start ``command`` on ``placement``, with their start command; see `Launch.write`.

        A target that runs containers takes the ``image``, and ``mounts`` as ``SOURCE:TARGET``; a scheduler takes the
        ``queue`` and the time limit.
        """
        job = (command, name, port, model, force, image, mounts, queue, master, time_seconds)
        return self.ask(RenderRequest(placement, target, *job))

    def launch(
        self,
        launch: Path | None = None,
        *,
        placement: Placement | None = None,
        command: Sequence[str] = (),
        name: str = "train",
        port: int | None = None,
        workdir: str = "",
        environment: Mapping[str, str] | None = None,
        preflight: bool = True,
        force_busy: Sequence[str] = (),
        logs: Path | None = None,
        grace: float = 10.0,
        dry_run: bool = False,
        master: str = "",
    ) -> JobRun:
        """Start the job of the files in ``launch``, or ``command`` on ``placement``, and return when it has ended.

        The job ends everywhere as soon as a rank fails, a node is lost, or this call is cancelled.
        """
        start = (launch, placement, command, name, port, workdir, environment)
        return self.ask(LaunchRequest(*start, preflight, force_busy, logs, grace, dry_run, master))
