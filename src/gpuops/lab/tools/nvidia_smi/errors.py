"""The memory errors that nvidia-smi reports on one GPU: ECC counts, retired pages and remapped rows."""

from __future__ import annotations

from collections.abc import Iterator

from gpuops.lab.model import Gpu, GpuModel
from gpuops.lab.tools.nvidia_smi.entry import NOT_KNOWN, Entry, alike, section, yes


def ecc_mode(model: GpuModel) -> str:
    """Return the ECC mode."""
    if model.ecc_off:
        return "Disabled"
    return "Enabled" if model.ecc else NOT_KNOWN


def ecc(gpu: Gpu, major: int) -> Entry:
    """Return the counts of errors."""
    # Turing and drivers before 550 do not distinguish parity from SEC-DED
    fine = major >= 550 and gpu.model.architecture != "Turing"
    if not fine:
        volatile, aggregate = _ecc_counts(gpu, (("sram_uncorrectable", "SRAM Uncorrectable"),))
        return section(
            "ecc_errors",
            "ECC Errors",
            section("volatile", "Volatile", *volatile),
            section("aggregate", "Aggregate", *aggregate),
        )
    volatile, aggregate = _ecc_counts(
        gpu,
        (
            ("sram_uncorrectable_parity", "SRAM Uncorrectable Parity"),
            ("sram_uncorrectable_secded", "SRAM Uncorrectable SEC-DED"),
        ),
    )
    zero = "0" if gpu.model.ecc else NOT_KNOWN
    sources = (("l2", "L2"), ("sm", "SM"), ("microcontroller", "Microcontroller"), ("pcie", "PCIE"), ("other", "Other"))
    exceeded = Entry("sram_threshold_exceeded", "SRAM Threshold Exceeded", "No" if gpu.model.ecc else NOT_KNOWN)
    return section(
        "ecc_errors",
        "ECC Errors",
        section("volatile", "Volatile", *volatile),
        section("aggregate", "Aggregate", *aggregate, exceeded),
        section(
            "aggregate_uncorrectable_sram_sources",
            "Aggregate Uncorrectable SRAM Sources",
            *alike(zero, ((f"sram_{tag}", f"SRAM {label}") for tag, label in sources)),
        ),
        Entry("channel_repair_pending", "Channel Repair Pending", "No"),
        Entry("tpc_repair_pending", "TPC Repair Pending", "No"),
        Entry("unrepairable_memory", "Unrepairable Memory", "No") if major >= 590 else None,
    )


def _ecc_counts(gpu: Gpu, uncorrectable_sram: tuple[tuple[str, str], ...]) -> Iterator[tuple[Entry, ...]]:
    """Yield the counts since the last reset, and those of the card's life."""
    zero, since_reset = "0" if gpu.model.ecc else NOT_KNOWN, gpu.ecc_uncorrectable
    for count in (since_reset, since_reset + gpu.ecc_uncorrectable_before_reset):
        yield (
            Entry("sram_correctable", "SRAM Correctable", zero),
            *alike(zero, uncorrectable_sram),
            Entry("dram_correctable", "DRAM Correctable", zero),
            Entry("dram_uncorrectable", "DRAM Uncorrectable", str(count) if gpu.model.ecc else NOT_KNOWN),
        )


def retired(gpu: Gpu) -> Entry:
    """Return the retired pages."""
    # page retirement ended with Volta
    own = gpu.model.retires_pages
    count, waits = ("0", yes(gpu.remap_pending)) if own else (NOT_KNOWN, NOT_KNOWN)
    pages = (Entry("retired_count", "", count), Entry("retired_pagelist", "", () if own else NOT_KNOWN))
    return section(
        "retired_pages",
        "Retired Pages",
        section("multiple_single_bit_retirement", "", *pages),
        section("double_bit_retirement", "", *pages),
        Entry("", "Single Bit ECC", count),
        Entry("", "Double Bit ECC", count),
        Entry("pending_blacklist", "Pending Page Blacklist", waits),
        Entry("pending_retirement", "", waits),
    )


def remapped(gpu: Gpu) -> Entry:
    """Return the remapped rows."""
    banks = gpu.model.remap_banks
    if not banks:
        return Entry("remapped_rows", "Remapped Rows", NOT_KNOWN)
    worn = min(gpu.remapped_correctable + gpu.remapped_uncorrectable, 1)
    exhausted = worn if gpu.remap_failed else 0
    histogram = (("max", banks - worn), ("high", worn - exhausted), ("partial", 0), ("low", 0), ("none", exhausted))
    return section(
        "remapped_rows",
        "Remapped Rows",
        Entry("remapped_row_corr", "Correctable Error", str(gpu.remapped_correctable)),
        Entry("remapped_row_unc", "Uncorrectable Error", str(gpu.remapped_uncorrectable)),
        Entry("remapped_row_pending", "Pending", yes(gpu.remap_pending)),
        Entry("remapped_row_failure", "Remapping Failure Occurred", yes(gpu.remap_failed)),
        section(
            "row_remapper_histogram",
            "Bank Remap Availability Histogram",
            *(Entry(f"row_remapper_histogram_{n}", n.capitalize(), f"{count} bank(s)") for n, count in histogram),
        ),
    )
