from gpuops.probes.nvidia.gpus import Gpu, all_gpus, gpus
from gpuops.probes.nvidia.nvidia_smi import smi
from gpuops.probing import Unknown

XML = "<nvidia_smi_log><attached_gpus>{count}</attached_gpus>{gpus}</nvidia_smi_log>\n"
GPU = '<gpu id="00000000:1B:00.0"><product_name>NVIDIA H100 80GB HBM3</product_name></gpu>'


def test_it_is_asked_with_nvidia_smis_own_question():
    assert gpus.question == smi.question


def test_the_gpus_that_answer(answer):
    (gpu,) = gpus.read(answer(gpus, XML.format(count=1, gpus=GPU)))
    assert (gpu.address, gpu.name) == ("0000:1b:00.0", "NVIDIA H100 80GB HBM3")


def test_no_gpu_is_unknown_with_the_reason(answer):
    assert gpus.read(answer(gpus, XML.format(count=0, gpus=""))) == Unknown("nvidia-smi lists no GPU")
    lost = "Unable to determine the device handle for GPU0000:CB:00.0: Unknown Error"
    assert gpus.read(answer(gpus, lost, status=15)) == Unknown(lost)
    assert "not installed" in gpus.read(answer(gpus, status=127)).why
    assert isinstance(gpus.read(answer(gpus, XML.format(count=1, gpus=GPU)[:60])), Unknown)


def test_one_answer_is_parsed_once(answer):
    said = answer(gpus, XML.format(count=1, gpus=GPU))
    assert gpus.read(said)[0] is smi.read(said).gpus[0]


def test_a_roster_has_every_gpu_that_anything_knows_of():
    known = Gpu(0, "0000:1b:00.0", name="H100")
    listed = all_gpus([known], ["0000:c3:00.0", "0000:1b:00.0", "0000:52:00.0"])
    assert listed == {
        "0000:1b:00.0": known,
        "0000:52:00.0": Gpu(1, "0000:52:00.0"),
        "0000:c3:00.0": Gpu(2, "0000:c3:00.0"),
    }
    assert all_gpus([], []) == {}
