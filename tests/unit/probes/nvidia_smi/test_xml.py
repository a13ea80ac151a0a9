import time
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuops.probes.nvidia.nvidia_smi.gpu import Process, RemappedRows, Smi, SmiError
from gpuops.probes.nvidia.nvidia_smi.xml import parse_xml
from gpuops.probing import Unknown

HOPPER = """
    <product_name>NVIDIA H100 80GB HBM3</product_name>
    <product_architecture>Hopper</product_architecture>
    <persistence_mode>Enabled</persistence_mode>
    <mig_mode><current_mig>Disabled</current_mig><pending_mig>Disabled</pending_mig></mig_mode>
    <mig_devices>None</mig_devices>
    <serial>1650123000001</serial>
    <uuid>GPU-11111111-2222-3333-4444-555555555555</uuid>
    <vbios_version>96.00.99.00.01</vbios_version>
    <gpu_recovery_action>None</gpu_recovery_action>
    <pci>
      <pci_gpu_link_info>
        <pcie_gen><max_link_gen>5</max_link_gen><current_link_gen>4</current_link_gen></pcie_gen>
        <link_widths><max_link_width>16x</max_link_width><current_link_width>8x</current_link_width></link_widths>
      </pci_gpu_link_info>
    </pci>
    <performance_state>P0</performance_state>
    <clocks_event_reasons>
      <clocks_event_reason_gpu_idle>Not Active</clocks_event_reason_gpu_idle>
      <clocks_event_reason_sw_power_cap>Active</clocks_event_reason_sw_power_cap>
      <clocks_event_reason_hw_thermal_slowdown>Active</clocks_event_reason_hw_thermal_slowdown>
    </clocks_event_reasons>
    <fb_memory_usage><total>81559 MiB</total><used>1024 MiB</used></fb_memory_usage>
    <utilization><gpu_util>97 %</gpu_util></utilization>
    <ecc_mode><current_ecc>Enabled</current_ecc></ecc_mode>
    <ecc_errors>
      <volatile>
        <sram_correctable>1</sram_correctable>
        <sram_uncorrectable_parity>2</sram_uncorrectable_parity>
        <sram_uncorrectable_secded>3</sram_uncorrectable_secded>
        <dram_correctable>4</dram_correctable>
        <dram_uncorrectable>5</dram_uncorrectable>
      </volatile>
      <aggregate><sram_uncorrectable>N/A</sram_uncorrectable><dram_uncorrectable>7</dram_uncorrectable></aggregate>
    </ecc_errors>
    <retired_pages><pending_retirement>N/A</pending_retirement></retired_pages>
    <remapped_rows>
      <remapped_row_corr>1</remapped_row_corr>
      <remapped_row_unc>0</remapped_row_unc>
      <remapped_row_pending>Yes</remapped_row_pending>
      <remapped_row_failure>No</remapped_row_failure>
    </remapped_rows>
    <temperature>
      <gpu_temp>41 C</gpu_temp><gpu_temp_tlimit>-3 C</gpu_temp_tlimit><memory_temp>52 C</memory_temp>
    </temperature>
    <gpu_power_readings>
      <instant_power_draw>511.25 W</instant_power_draw><current_power_limit>700.00 W</current_power_limit>
      <default_power_limit>700.00 W</default_power_limit><max_power_limit>700.00 W</max_power_limit>
    </gpu_power_readings>
    <supported_clocks><supported_mem_clock><value>2619 MHz</value></supported_mem_clock></supported_clocks>
    <fabric>
      <state>Completed</state><status>Success</status><cliqueId>3</cliqueId>
      <clusterUuid>12345678-0000-0000-0000-000000000000</clusterUuid><health><summary>Healthy</summary></health>
    </fabric>
    <processes>
      <process_info>
        <pid>4242</pid><type>C</type><process_name>python</process_name><used_memory>1000 MiB</used_memory>
      </process_info>
    </processes>
"""

THROTTLED = """
    <clocks_throttle_reasons>
      <clocks_throttle_reason_gpu_idle>Not Active</clocks_throttle_reason_gpu_idle>
      <clocks_throttle_reason_sw_power_cap>Active</clocks_throttle_reason_sw_power_cap>
    </clocks_throttle_reasons>
"""


def answer(*bodies, attached=None):
    gpus = "".join(f'<gpu id="00000000:{16 + n:02X}:00.0">{body}</gpu>' for n, body in enumerate(bodies))
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n<nvidia_smi_log>\n'
        "<driver_version>580.95.05</driver_version><cuda_version>13.0</cuda_version>"
        f"<attached_gpus>{len(bodies) if attached is None else attached}</attached_gpus>\n{gpus}\n</nvidia_smi_log>\n"
    )


def indented(body):
    """The same over many lines, as nvidia-smi prints it."""
    root = ET.fromstring(answer(body))
    ET.indent(root, "\t")
    return "".join("\n\t\t" + ET.tostring(part, encoding="unicode").rstrip() for part in root.find("gpu"))


def gpu(body):
    value = parse_xml(answer(body))
    assert isinstance(value, Smi)
    return value.gpus[0]


def test_every_field_of_a_gpu_is_read_with_its_unit():
    value = gpu(HOPPER)
    assert (value.index, value.address) == (0, "0000:10:00.0")
    assert (value.name, value.architecture, value.serial) == ("NVIDIA H100 80GB HBM3", "Hopper", "1650123000001")
    assert (value.uuid, value.vbios_version) == ("GPU-11111111-2222-3333-4444-555555555555", "96.00.99.00.01")
    assert (value.persistence_mode, value.mig_mode, value.mig_devices, value.ecc_mode) == (True, False, 0, True)
    assert (value.memory_total_mib, value.memory_used_mib, value.utilization_percent) == (81559, 1024, 97)
    assert (value.temperature_celsius, value.tlimit_celsius, value.memory_temperature_celsius) == (41, -3, 52)
    assert (value.power_draw_watts, value.power_limit_watts) == (511.25, 700.0)
    assert (value.default_power_limit_watts, value.max_power_limit_watts) == (700.0, 700.0)
    assert (value.pcie_generation, value.pcie_generation_max, value.pcie_width, value.pcie_width_max) == (4, 5, 8, 16)
    assert value.performance_state == "P0"
    assert value.throttle_reasons == ("sw_power_cap", "hw_thermal_slowdown")
    assert value.remapped_rows == RemappedRows(1, 0, pending=True, failure=False)
    assert (value.fabric_state, value.fabric_status, value.fabric_health) == ("Completed", "Success", "Healthy")
    assert (value.fabric_cluster_uuid, value.fabric_clique_id) == ("12345678-0000-0000-0000-000000000000", 3)
    assert (value.recovery_action, value.retired_pages_pending, value.slowdown_celsius) == ("None", None, None)
    assert value.processes == (Process(4242, "python", 1000, "C"),)
    assert value.faulty_fields == ()


def test_lines_and_tabs_change_nothing():
    assert gpu(indented(HOPPER)) == gpu(HOPPER)


def test_ecc_errors_are_sram_and_dram_together_whatever_the_schema_calls_them():
    value = gpu(HOPPER)
    assert (value.ecc_uncorrected_volatile, value.ecc_corrected_volatile, value.ecc_uncorrected_aggregate) == (10, 5, 7)
    old = gpu("<ecc_errors><volatile><double_bit><total>2</total></double_bit></volatile></ecc_errors>")
    assert (old.ecc_uncorrected_volatile, old.ecc_corrected_volatile) == (2, None)


@pytest.mark.parametrize(
    ("body", "field", "expected"),
    [
        ("<power_readings><power_draw>26.16 W</power_draw></power_readings>", "power_draw_watts", 26.16),
        ("<gpu_power_readings><power_draw>67.03 W</power_draw></gpu_power_readings>", "power_draw_watts", 67.03),
        (
            "<power_readings><enforced_power_limit>75.00 W</enforced_power_limit></power_readings>",
            "power_limit_watts",
            75.0,
        ),
        (THROTTLED, "throttle_reasons", ("sw_power_cap",)),
        ("<temperature><gpu_temp_slow_threshold>95 C</gpu_temp_slow_threshold></temperature>", "slowdown_celsius", 95),
        ("<mig_devices><mig_device/><mig_device/></mig_devices>", "mig_devices", 2),
        ("<retired_pages><pending_blacklist>Yes</pending_blacklist></retired_pages>", "retired_pages_pending", True),
        ("<processes>\n</processes>", "processes", ()),
    ],
)
def test_older_schemas_say_the_same_under_other_names(body, field, expected):
    assert getattr(gpu(indented(body)), field) == expected
    assert getattr(gpu(body), field) == expected


@pytest.mark.parametrize("silence", ["N/A", "[N/A]", "Not Supported", "[Not Supported]", "Insufficient Permissions"])
def test_what_the_card_does_not_say_is_none_and_no_fault(silence):
    value = gpu(
        f"<serial>{silence}</serial><temperature><gpu_temp>{silence}</gpu_temp></temperature>"
        f"<remapped_rows>{silence}</remapped_rows><processes>{silence}</processes>"
        f"<clocks_event_reasons><clocks_event_reason_gpu_idle>{silence}</clocks_event_reason_gpu_idle>"
        "</clocks_event_reasons>"
    )
    assert (value.serial, value.temperature_celsius, value.remapped_rows) == (None, None, None)
    assert (value.processes, value.throttle_reasons, value.faulty_fields) == (None, None, ())


@pytest.mark.parametrize("fault", ["ERR!", "[Unknown Error]", "Unknown Error", "[GPU requires reset]"])
def test_a_field_that_answers_with_an_error_is_named(fault):
    value = gpu(f"<serial>1650</serial><temperature><gpu_temp>{fault}</gpu_temp></temperature>")
    assert value.temperature_celsius is None
    assert value.faulty_fields == ("temperature/gpu_temp",)


def test_a_gpu_that_is_lost_while_nvidia_smi_asks_is_an_error_with_its_address():
    value = parse_xml(answer(HOPPER, "<serial>[GPU is lost]</serial><fan_speed>[GPU is lost]</fan_speed>"))
    assert value.error == SmiError("gpu-lost", "GPU is lost", ("0000:11:00.0",))
    assert value.gpus[1].faulty_fields == ("serial", "fan_speed")
    assert value.gpus[1].serial is None


@pytest.mark.parametrize("text", ["41", "41 F", "41.5.1 C", "forty C", "41 C 42 C", "٤١ C", "9" * 30 + " C"])
def test_a_number_without_its_own_unit_is_no_number(text):
    assert gpu(f"<temperature><gpu_temp>{text}</gpu_temp></temperature>").temperature_celsius is None


def test_fewer_gpus_than_attached_stay_a_value_to_be_judged():
    value = parse_xml(answer(HOPPER, attached=8))
    assert (value.attached_gpus, len(value.gpus)) == (8, 1)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no XML"),
        ("<html></html>", "no XML"),
        (answer(HOPPER)[:-3], "truncated"),
        (answer(HOPPER).replace("</gpu>", ""), "malformed"),
        (answer("<a>&lol;</a>").replace("nvidia_smi_log SYSTEM", 'x [<!ENTITY lol "l">]'), "entities"),
        (answer(HOPPER).replace("00000000:10:00.0", "somewhere"), "no PCI address"),
        ("<nvidia_smi_log></nvidia_smi_log>", "lists no GPUs"),
    ],
)
def test_what_is_not_a_whole_answer_is_unknown_and_says_why(text, why):
    value = parse_xml(text)
    assert isinstance(value, Unknown)
    assert why in value.why


def test_a_list_that_no_gpu_holds_changes_nothing_and_never_swallows_what_follows():
    clocks = "<supported_clocks><value>1980 MHz</value></supported_clocks>"
    assert parse_xml(answer(clocks + HOPPER, HOPPER)) == parse_xml(answer(HOPPER, HOPPER))
    assert gpu(clocks + "<serial>1650</serial>" + clocks).serial == "1650"
    unclosed, unopened = clocks[: clocks.index("</supported")], clocks[clocks.index("</supported") :]
    assert isinstance(parse_xml(answer(unclosed, HOPPER, unopened)), Unknown)
    assert isinstance(parse_xml(answer(clocks + clocks.replace("</value>", "") + unopened)), Unknown)


def test_a_fault_is_told_also_where_it_stands_in_a_section_that_no_gpu_holds():
    clocks = "\n\t\t<clocks>\n\t\t\t<sm_clock>{}</sm_clock>\n\t\t</clocks>\n"
    assert gpu(clocks.format("1980 MHz") + HOPPER).faulty_fields == ()
    assert gpu(clocks.format("Unknown Error") + HOPPER).faulty_fields == ("clocks/sm_clock",)


@pytest.mark.parametrize(
    ("head", "body"), [("", "<supported_clocks><a>"), ("\n\t\t<clocks>", "\n\t\t\t<a>"), ("", "\n\t\t<clocks>")]
)
def test_lists_without_an_end_are_given_up_in_linear_time(head, body):
    seconds = {5_000: [], 50_000: []}
    for times in 3 * list(seconds):
        started = time.process_time()
        assert isinstance(parse_xml(answer(head + body * times)), Unknown)
        seconds[times].append(time.process_time() - started)
    # ten times as much; quadratic time is a hundred times. The fastest of three: other work only makes one slower
    assert min(seconds[50_000]) < 50 * min(seconds[5_000])


def test_deep_nesting_is_survived():
    value = parse_xml(answer("<a>" * 20_000 + "</a>" * 20_000))
    assert isinstance(value, (Smi, Unknown))


@given(st.text())
def test_any_text_gets_an_answer(text):
    assert isinstance(parse_xml(text), Unknown)


@given(st.integers(min_value=0, max_value=len(answer(HOPPER, HOPPER)) - len("</nvidia_smi_log>\n")))
def test_a_cut_answer_is_unknown(length):
    assert isinstance(parse_xml(answer(HOPPER, HOPPER)[:length]), Unknown)


@given(st.integers(min_value=0, max_value=len(answer(HOPPER)) - 1), st.characters(codec="utf-8"))
def test_a_damaged_byte_never_raises(place, character):
    text = answer(HOPPER)
    assert isinstance(parse_xml(text[:place] + character + text[place + 1 :]), (Smi, Unknown))
