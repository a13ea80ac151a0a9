"""The measurements of nvidia-smi on one GPU: memory, errors, temperatures, power, clocks, fabric, processes."""

from __future__ import annotations

from collections.abc import Sequence

from gpuops.lab.model import Gpu, GpuModel, Node
from gpuops.lab.tools.nvidia_smi import errors
from gpuops.lab.tools.nvidia_smi.entry import NOT_KNOWN, Entry, active, alike, section, with_unit

REASONS = (
    ("gpu_idle", "Idle"),
    ("applications_clocks_setting", "Applications Clocks Setting"),
    ("sw_power_cap", "SW Power Cap"),
    ("hw_slowdown", "HW Slowdown"),
    ("hw_thermal_slowdown", "    HW Thermal Slowdown"),
    ("hw_power_brake_slowdown", "    HW Power Brake Slowdown"),
    ("sync_boost", "Sync Boost"),
    ("sw_thermal_slowdown", "SW Thermal Slowdown"),
    ("display_clocks_setting", "Display Clock Setting"),
)
# one baseboard is not a cluster: only NVL racks have a UUID there
_NO_CLUSTER = "00000000-0000-0000-0000-000000000000"
DEPRECATED = "Requested functionality has been deprecated"


def readings(node: Node, gpu: Gpu, major: int) -> tuple[Entry, ...]:
    """Return all measurements of ``gpu``, in order."""
    modern = major >= 550
    entries = (
        Entry("fan_speed", "Fan Speed", "41 %" if gpu.model.fan else NOT_KNOWN),
        Entry("performance_state", "Performance State", gpu.state),
        _reasons(gpu),
        _reason_counters(gpu) if modern else None,
        Entry("sparse_operation_mode", "Sparse Operation Mode", _sparse(gpu)) if modern else None,
        *_memory(gpu),
        Entry("compute_mode", "Compute Mode", "Default"),
        *_utilization(gpu),
        _pair("dram_encryption_mode", "DRAM Encryption Mode", "dram_encryption", NOT_KNOWN) if modern else None,
        _pair("ecc_mode", "ECC Mode", "ecc", errors.ecc_mode(gpu.model)),
        errors.ecc(gpu, major),
        errors.retired(gpu),
        errors.remapped(gpu),
        _temperature(gpu),
        _targets(gpu),
        *_power(gpu, major),
        *_clocks(gpu, major),
        _fabric(node, gpu, major),
        _supported_clocks(gpu),
        _processes(gpu),
        section("accounted_processes", ""),
        section("capabilities", "Capabilities", Entry("egm", "EGM", "disabled")) if modern else None,
    )
    return tuple(e for e in entries if e is not None)


def _pair(tag: str, label: str, name: str, value: str) -> Entry:
    return section(tag, label, *alike(value, ((f"current_{name}", "Current"), (f"pending_{name}", "Pending"))))


def _sparse(gpu: Gpu) -> str:
    return "Disabled" if gpu.model.architecture in {"Ampere", "Hopper"} else NOT_KNOWN


def _reasons(gpu: Gpu) -> Entry:
    told_reasons = (Entry(f"clocks_event_reason_{n}", label, active(n in gpu.reasons)) for n, label in REASONS)
    return section("clocks_event_reasons", "Clocks Event Reasons", *told_reasons)


def _reason_counters(gpu: Gpu) -> Entry:
    names = (
        ("sw_power_cap", "SW Power Capping", 0),
        ("sync_boost", "Sync Boost", 0),
        ("sw_therm_slowdown", "SW Thermal Slowdown", 0),
        ("hw_therm_slowdown", "HW Thermal Slowdown", gpu.thermal_slowdown_us),
        ("hw_power_brake", "HW Power Braking", 41_207_338 if "hw_power_brake_slowdown" in gpu.reasons else 0),
    )
    counters = (Entry(f"clocks_event_reasons_counters_{n}", label, f"{us} us") for n, label, us in names)
    return section("clocks_event_reasons_counters", "Clocks Event Reasons Counters", *counters)


def _usage(tag: str, label: str, total: int, used: int, reserved: int | None = None) -> Entry:
    free = total - used - (reserved or 0)
    return section(
        tag,
        label,
        Entry("total", "Total", f"{total} MiB"),
        Entry("reserved", "Reserved", f"{reserved} MiB") if reserved is not None else None,
        Entry("used", "Used", f"{used} MiB"),
        Entry("free", "Free", f"{free} MiB"),
    )


def _memory(gpu: Gpu) -> tuple[Entry, ...]:
    model = gpu.model
    return (
        _usage("fb_memory_usage", "FB Memory Usage", model.memory_mib, gpu.used_mib, model.reserved_mib),
        _usage("bar1_memory_usage", "BAR1 Memory Usage", model.bar1_mib, 1),
        _usage("cc_protected_memory_usage", "Conf Compute Protected Memory Usage", 0, 0),
    )


def _utilization(gpu: Gpu) -> tuple[Entry, ...]:
    busy = gpu.utilization_percent
    idle = (("encoder_util", "Encoder"), ("decoder_util", "Decoder"), ("jpeg_util", "JPEG"), ("ofa_util", "OFA"))
    stats = (
        ("session_count", "Active Sessions"),
        ("average_fps", "Average FPS"),
        ("average_latency", "Average Latency"),
    )
    return (
        section(
            "utilization",
            "Utilization",
            Entry("gpu_util", "GPU", f"{busy} %"),
            Entry("memory_util", "Memory", f"{busy // 2} %"),
            *alike("0 %", idle),
        ),
        section("encoder_stats", "Encoder Stats", *alike("0", stats)),
        section("fbc_stats", "FBC Stats", *alike("0", stats)),
    )


def _temperature(gpu: Gpu) -> Entry:
    model = gpu.model
    top = model.max_operating_celsius
    mark, word = ("_tlimit", " T.Limit") if model.reports_margin else ("", "")
    base, memory_top = 0, model.memory_max_celsius
    if model.reports_margin:
        base, memory_top = top, None if gpu.memory_celsius is None else 0
    return section(
        "temperature",
        "Temperature",
        Entry("gpu_temp", "GPU Current Temp", f"{gpu.celsius} C"),
        Entry(
            "gpu_temp_tlimit", "GPU T.Limit Temp", with_unit(gpu.margin_celsius if model.reports_margin else None, "C")
        ),
        Entry(f"gpu_temp_max{mark}_threshold", f"GPU Shutdown{word} Temp", _limit(base, model.shutdown_celsius)),
        Entry(f"gpu_temp_slow{mark}_threshold", f"GPU Slowdown{word} Temp", _limit(base, model.slowdown_celsius)),
        Entry(f"gpu_temp_max_gpu{mark}_threshold", f"GPU Max Operating{word} Temp", _limit(base, top)),
        Entry("gpu_target_temperature", "GPU Target Temperature", with_unit(model.target_celsius, "C")),
        Entry("memory_temp", "Memory Current Temp", with_unit(gpu.memory_celsius, "C")),
        Entry(f"gpu_temp_max_mem{mark}_threshold", f"Memory Max Operating{word} Temp", with_unit(memory_top, "C")),
    )


def _limit(base: int, celsius: int) -> str:
    """Return a limit as a margin below ``base``, or unchanged if ``base`` is 0."""
    return f"{base - celsius if base else celsius} C"


def _targets(gpu: Gpu) -> Entry:
    target = gpu.model.target_celsius
    return section(
        "supported_gpu_target_temp",
        "",
        Entry("gpu_target_temp_min", "", with_unit(target and 65, "C")),
        Entry("gpu_target_temp_max", "", with_unit(target and gpu.model.max_operating_celsius, "C")),
    )


def _power(gpu: Gpu, major: int) -> tuple[Entry, ...]:
    model = gpu.model
    modern = major >= 550
    limits = (gpu.limit_watts, gpu.limit_watts, model.default_watts, model.min_watts, model.max_watts)
    state = Entry("power_state", "", gpu.state)
    drawn, lowest, highest = model.module_watts or (None, None, None)
    module = (highest, highest, highest, lowest, highest)
    parts = [
        section("gpu_power_readings", "GPU Power Readings", state, *_draw(gpu.watts, modern=modern), *_limits(limits))
    ]
    if modern:
        parts.append(section("gpu_memory_power_readings", "GPU Memory Power Readings ", *_average(model.memory_watts)))
    parts.append(
        section("module_power_readings", "Module Power Readings", state, *_draw(drawn, modern=modern), *_limits(module))
    )
    if modern:
        profiles = (
            ("power_profile_requested_profiles", "Requested Profiles"),
            ("power_profile_enforced_profiles", "Enforced Profiles"),
        )
        parts.append(Entry("power_smoothing", "Power Smoothing", NOT_KNOWN))
        parts.append(section("power_profiles", "Workload Power Profiles", *alike(NOT_KNOWN, profiles)))
    if major >= 590:
        parts.append(Entry("edpp_multiplier", "EDPp Multiplier", "100.00%" if model.fabric else NOT_KNOWN))
    return tuple(parts)


def _watts(value: float | None) -> str:
    return NOT_KNOWN if value is None else f"{value:.2f} W"


def _average(value: float | None) -> tuple[Entry, ...]:
    return (
        Entry("average_power_draw", "Average Power Draw", _watts(value)),
        Entry("instant_power_draw", "Instantaneous Power Draw", NOT_KNOWN),
    )


def _draw(value: float | None, *, modern: bool) -> tuple[Entry, ...]:
    if not modern:
        return (Entry("power_draw", "Power Draw", _watts(value)),)
    return (
        Entry("average_power_draw", "Average Power Draw", _watts(value)),
        Entry("instant_power_draw", "Instantaneous Power Draw", _watts(value)),
    )


def _limits(values: tuple[float | None, ...]) -> tuple[Entry, ...]:
    names = ("Current", "Requested", "Default", "Min", "Max")
    return tuple(
        Entry(f"{name.lower()}_power_limit", f"{name} Power Limit", _watts(value))
        for name, value in zip(names, values, strict=True)
    )


def _clocks(gpu: Gpu, major: int) -> tuple[Entry, ...]:
    model = gpu.model
    fastest = model.max_mhz
    usual = model.application_mhz or fastest
    names = (("graphics_clock", "Graphics", "graphics"), ("mem_clock", "Memory", "memory"))
    fixed = tuple(Entry(tag, label, _application(model, f"{usual[name]} MHz", major)) for tag, label, name in names)
    boost = f"{fastest['graphics']} MHz" if model.ecc else NOT_KNOWN
    policy = (("auto_boost", "Auto Boost"), ("auto_boost_default", "Auto Boost Default"))
    sections = (
        _clock_set("clocks", "Clocks", gpu.graphics_mhz, gpu.memory_mhz, model.idle_mhz["video"]),
        section("applications_clocks", "Applications Clocks", *fixed),
        section("default_applications_clocks", "Default Applications Clocks", *fixed),
        section("deferred_clocks", "Deferred Clocks", Entry("mem_clock", "Memory", NOT_KNOWN)),
        _clock_set("max_clocks", "Max Clocks", fastest["graphics"], fastest["memory"], fastest["video"]),
        section("max_customer_boost_clocks", "Max Customer Boost Clocks", Entry("graphics_clock", "Graphics", boost)),
        section("clock_policy", "Clock Policy", *alike(NOT_KNOWN, policy)),
        section("voltage", "Voltage", Entry("graphics_volt", "Graphics", "737.500 mV")) if major < 550 else None,
    )
    return tuple(e for e in sections if e is not None)


def _application(model: GpuModel, clock: str, major: int) -> str:
    if major >= 590:
        return DEPRECATED
    return NOT_KNOWN if model.brand == "GeForce" else clock


def _clock_set(tag: str, label: str, graphics: int, memory: int, video: int) -> Entry:
    return section(
        tag,
        label,
        Entry("graphics_clock", "Graphics", f"{graphics} MHz"),
        Entry("sm_clock", "SM", f"{graphics} MHz"),
        Entry("mem_clock", "Memory", f"{memory} MHz"),
        Entry("video_clock", "Video", f"{video} MHz"),
    )


def _health(gpu: Gpu, names: Sequence[tuple[str, str]]) -> tuple[Entry, ...]:
    """Return the health of the GPU's routes, which a healthy HGX H100 does not report."""
    if not gpu.route_unhealthy:
        return tuple(Entry(tag, label, gpu.model.fabric_health.get(tag, NOT_KNOWN)) for tag, label in names)
    values = {"summary": "Unhealthy", "bandwidth": "Full", "route_unhealthy": "True", "incorrect_configuration": "None"}
    return tuple(Entry(tag, label, values.get(tag, "False")) for tag, label in names)


def _fabric(node: Node, gpu: Gpu, major: int) -> Entry:
    if not gpu.model.fabric:
        state, status, clique, cluster = (NOT_KNOWN,) * 4
    elif node.fabric_ready:
        rack = node.rack
        clique, cluster = (str(rack.clique), rack.cluster) if rack else ("0", _NO_CLUSTER)
        state, status = "Completed", "Success"
    else:
        state, status, clique, cluster = "In Progress", NOT_KNOWN, NOT_KNOWN, NOT_KNOWN
    health: tuple[tuple[str, str], ...] = (
        ("summary", "Summary"),
        ("bandwidth", "Bandwidth"),
        ("route_recovery_in_progress", "Route Recovery in progress"),
        ("route_unhealthy", "Route Unhealthy"),
        ("access_timeout_recovery", "Access Timeout Recovery"),
        ("incorrect_configuration", "Incorrect Configuration"),
    )
    if major >= 595:
        health = (*health, ("partition_assigned", "Partition Assigned"))
    modern = (
        Entry("cliqueId", "CliqueId", clique),
        Entry("clusterUuid", "ClusterUUID", cluster),
        section("health", "Health", *_health(gpu, health)),
    )
    return section(
        "fabric",
        "Fabric",
        Entry("state", "State", state),
        Entry("status", "Status", status),
        *(modern if major >= 550 else ()),
    )


def _supported_clocks(gpu: Gpu) -> Entry:
    model = gpu.model
    steps = range(model.max_mhz["graphics"], model.min_graphics_mhz - 1, -15)
    clocks = (Entry("supported_graphics_clock", "", f"{mhz} MHz") for mhz in steps)
    memory = Entry("value", "", f"{model.max_mhz['memory']} MHz")
    return section("supported_clocks", "", section("supported_mem_clock", "", memory, *clocks))


def _processes(gpu: Gpu) -> Entry:
    sections = (
        section(
            "process_info",
            "",
            Entry("gpu_instance_id", "GPU instance ID", NOT_KNOWN),
            Entry("compute_instance_id", "Compute instance ID", NOT_KNOWN),
            Entry("pid", "Process ID", str(p.pid)),
            Entry("type", "    Type", "C"),
            Entry("process_name", "    Name", p.name),
            Entry("used_memory", "    Used GPU Memory", f"{p.memory_mib} MiB"),
        )
        for p in gpu.processes
    )
    return section("processes", "Processes", *sections)
