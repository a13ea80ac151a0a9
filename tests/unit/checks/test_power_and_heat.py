import pytest


def only(verdict):
    (finding,) = verdict.findings
    return finding


class TestPowerLimit:
    def test_the_full_limit_passes(self, h100, titan):
        assert h100.judge("power-limit").status == "pass"
        assert titan.judge("power-limit").status == "pass"

    def test_a_cap(self, h100):
        finding = only(h100.with_gpu(2, power_limit_watts=500.0).judge("power-limit"))
        assert (finding.part, finding.expected, finding.found, finding.unit) == ("gpu2", 700, 500.0, "W")
        assert finding.severity == "fail"
        assert "nvidia-smi -i 2 -pl 700" in finding.fix

    @pytest.mark.parametrize("watts", [699.8, 700.0, 750.0])
    def test_rounding_and_more_are_no_cap(self, h100, watts):
        assert h100.with_gpu(2, power_limit_watts=watts).judge("power-limit").status == "pass"

    def test_what_is_not_told_is_unknown(self, h100):
        assert h100.with_gpu(2, power_limit_watts=None).judge("power-limit").status == "unknown"


class TestThrottle:
    @pytest.mark.parametrize("reasons", [(), ("gpu_idle",), ("sw_power_cap", "applications_clocks_setting")])
    def test_normal_reasons_pass(self, h100, reasons):
        assert h100.with_gpus(throttle_reasons=reasons).judge("throttle").status == "pass"

    @pytest.mark.parametrize(
        ("reasons", "severity", "fix"),
        [
            (("hw_slowdown", "hw_thermal_slowdown"), "fail", "airflow"),
            (("hw_slowdown", "hw_power_brake_slowdown"), "fail", "rack's power"),
            (("hw_slowdown",), "fail", "power supplies"),
            (("sw_thermal_slowdown",), "warn", "airflow"),
            (("sw_thermal_slowdown", "hw_slowdown"), "fail", "power supplies"),
        ],
    )
    def test_each_bad_reason_has_its_remedy(self, h100, reasons, severity, fix):
        finding = only(h100.with_gpu(2, throttle_reasons=("sw_power_cap", *reasons)).judge("throttle"))
        assert (finding.part, finding.severity) == ("gpu2", severity)
        assert fix in finding.fix
        assert all(reason in finding.message for reason in reasons)

    def test_a_power_brake_on_all_gpus_is_one_finding_on_the_node(self, h100):
        machine = h100.with_gpus(throttle_reasons=("hw_power_brake_slowdown", "hw_slowdown"))
        finding = only(machine.judge("throttle"))
        assert (finding.part, finding.severity) == ("node", "fail")
        assert "external to the GPU" in finding.fix
        assert len(machine.with_gpu(2, throttle_reasons=()).judge("throttle").findings) == 7

    @pytest.mark.parametrize(
        ("reason", "counter"),
        [
            ("hw_thermal_slowdown", "heat_slowdown_microseconds"),
            ("hw_power_brake_slowdown", "power_brake_microseconds"),
        ],
    )
    def test_one_look_at_a_reason_that_no_counter_shows_is_a_warning(self, h100, reason, counter):
        machine = h100.with_gpus(throttle_reasons=(reason, "hw_slowdown"), **{counter: 0})
        assert {finding.severity for finding in machine.judge("throttle").findings} == {"warn"}
        assert (
            "look again"
            in only(
                machine.with_gpus(throttle_reasons=()).with_gpu(2, throttle_reasons=(reason,)).judge("throttle")
            ).fix
        )
        for microseconds in (1, None):
            verdict = machine.with_gpus(**{counter: microseconds}).judge("throttle")
            assert {finding.severity for finding in verdict.findings} == {"fail"}

    def test_what_is_not_told_is_unknown(self, h100):
        assert h100.with_gpu(2, throttle_reasons=None).judge("throttle").status == "unknown"


class TestTemperature:
    @pytest.mark.parametrize(
        ("celsius", "margin", "status"),
        [(34, 53, "pass"), (79, 8, "pass"), (80, 7, "warn"), (86, 1, "warn"), (87, 0, "fail"), (70, -2, "fail")],
    )
    def test_the_cards_own_margin_decides(self, h100, celsius, margin, status):
        verdict = h100.with_gpu(2, temperature_celsius=celsius, tlimit_celsius=margin).judge("temperature")
        assert verdict.status == status
        assert [f.part for f in verdict.findings] == ["gpu2"] * (status != "pass")

    @pytest.mark.parametrize(("celsius", "status"), [(79, "pass"), (80, "warn"), (90, "warn"), (91, "fail")])
    def test_the_cards_own_slowdown_decides(self, titan, celsius, status):
        assert titan.with_gpu(1, temperature_celsius=celsius).judge("temperature").status == status

    @pytest.mark.parametrize(("celsius", "status"), [(79, "pass"), (80, "warn"), (83, "warn"), (84, "fail")])
    def test_without_a_limit_throttling_begins_at_84(self, titan, celsius, status):
        machine = titan.with_gpu(1, temperature_celsius=celsius, slowdown_celsius=None)
        assert machine.judge("temperature").status == status

    def test_what_is_not_told_is_unknown(self, h100):
        silent = h100.with_gpu(2, temperature_celsius=None, tlimit_celsius=None)
        assert silent.judge("temperature").status == "unknown"

    def test_a_margin_that_is_used_up_is_told_with_the_temperature_where_it_is_known(self, h100):
        hot = h100.with_gpu(2, temperature_celsius=89, tlimit_celsius=-2)
        assert only(hot.judge("temperature")).message == "89 °C, no margin left, so it slows down"
        hot = h100.with_gpu(2, temperature_celsius=None, tlimit_celsius=-2)
        assert only(hot.judge("temperature")).message == "no margin left, so it slows down"

    def test_the_finding_carries_the_measured_fact(self, h100):
        finding = only(h100.with_gpu(2, temperature_celsius=83, tlimit_celsius=4).judge("temperature"))
        assert (finding.expected, finding.found, finding.unit) == ("below 80", 83, "°C")
        assert finding.part_label == h100.values["gpus"][2].label
