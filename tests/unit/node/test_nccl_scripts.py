import array
import ast
import ctypes
import os
import pathlib
import re
import shutil
import subprocess

import pytest

import gpuops

NODE = pathlib.Path(gpuops.__file__).parent / "node"
PARTS = ("nccl_libraries", "nccl_pattern", "nccl_rank")
TEXT = "\n".join((NODE / f"{part}.py").read_text() for part in PARTS)
TREE = ast.parse(TEXT)
PTXAS = shutil.which("ptxas", path=f"{os.environ['PATH']}:/usr/local/cuda/bin")  # only a CUDA toolkit has it


@pytest.fixture(scope="module")
def rank():
    """The names of what runs for each GPU, without its running."""
    names = {}
    exec(compile(TEXT, "nccl_rank", "exec"), names)
    return names


def tables(rank):
    return {**rank["CUDA"], **rank["NCCL"], **rank["LIBC"]}


def test_every_function_that_is_called_is_in_a_table_and_the_other_way_round(rank):
    calls = [node for node in ast.walk(TREE) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    named = {
        argument.value
        for call in calls
        for argument in call.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
        if re.fullmatch(r"(cu[A-Z]|nccl[A-Z])\w*|prctl|setvbuf", argument.value)
    }
    assert named == set(tables(rank))


def test_no_function_is_reached_past_the_tables():
    opened = [
        node for node in ast.walk(TREE) if isinstance(node, ast.Attribute) and node.attr in ("CDLL", "cdll", "PyDLL")
    ]
    assert len(opened) == 2  # Library's own, and the variable stdout
    assert TEXT.count("getattr(self._loaded") == 1
    assert not re.search(r"self\._loaded\.\w", TEXT)
    assert "ctypes.util" not in TEXT


def test_every_function_has_its_types_set_before_it_can_be_called(rank):
    class Loaded:
        def __getattr__(self, name):
            function = type("Function", (), {"restype": "unset", "argtypes": "unset"})()
            setattr(self, name, function)
            return function

    for table in ("CUDA", "NCCL", "LIBC"):
        library = rank["Library"](None, rank[table])
        library._loaded = Loaded()
        for name, arguments in rank[table].items():
            function = library.function(name)
            assert function.argtypes is arguments
            assert function.restype in (ctypes.c_int, ctypes.c_char_p)
            assert all(issubclass(kind, (ctypes._SimpleCData, ctypes._Pointer, ctypes.Structure)) for kind in arguments)
        with pytest.raises(KeyError):
            library.function("cuMemAlloc")


def test_driver_functions_of_which_an_older_abi_exists_are_named_by_version(rank):
    superseded = (
        "MemGetInfo MemAlloc MemFree MemcpyHtoD MemcpyDtoH MemsetD32 EventDestroy StreamDestroy CtxCreate".split()
    )
    assert not {f"cu{name}" for name in superseded} & set(rank["CUDA"])
    assert {"cuMemAlloc_v2", "cuMemFree_v2", "cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2"} <= set(rank["CUDA"])
    assert "cuCtxCreate" not in TEXT  # the primary context is NCCL's


def test_an_id_is_128_bytes_by_value(rank):
    assert ctypes.sizeof(rank["UniqueId"]) == 128
    assert rank["NCCL"]["ncclCommInitRank"] == [
        ctypes.POINTER(ctypes.c_void_p),
        ctypes.c_int,
        rank["UniqueId"],
        ctypes.c_int,
    ]
    with_nuls = bytes(range(128))
    assert bytes(rank["UniqueId"].from_buffer_copy(with_nuls)) == with_nuls
    assert "Config" not in TEXT  # ncclConfig_t changes from release to release


OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")


class Memory:
    """Stands for the driver: addresses are bytes of one array, and there is no JIT."""

    def __init__(self, size):
        self.bytes = bytearray(size)

    def status(self, name, *_):
        assert name == "cuModuleLoadData"
        return 221

    def explain(self, status):
        return str(status)

    def call(self, name, first, second, size):
        if name == "cuMemcpyHtoD_v2":
            self.bytes[first : first + size] = second
        else:
            first.raw = bytes(self.bytes[second : second + size])


def filled(rank, shape, count):
    memory = Memory(4 * count)
    rank["Pattern"](memory, None).fill(0, count, shape)
    return list(array.array("f", bytes(memory.bytes)))


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_what_must_be_received_is_what_the_operation_makes_of_what_is_sent(rank, operation, ranks):
    each, sends, receives = rank["shares"](operation, ranks, 300)
    sent = [filled(rank, rank["sent"](r), sends) for r in range(ranks)]
    for r in range(ranks):
        blocks = [sent[p][r * each : (r + 1) * each] for p in range(ranks)]
        expected = {
            "all_reduce": lambda: [sum(values) for values in zip(*sent, strict=True)],
            "reduce_scatter": lambda blocks=blocks: [sum(values) for values in zip(*blocks, strict=True)],
            "all_gather": lambda: [value for values in sent for value in values],
            "all_to_all": lambda blocks=blocks: [value for block in blocks for value in block],
            "send_recv": lambda r=r: sent[(r - 1) % ranks],
        }[operation]()
        assert filled(rank, rank["received"](operation, r, ranks, each), receives) == expected


def test_the_pattern_tells_ranks_indices_and_shifts_by_powers_of_two_apart(rank):
    count = 200_000
    mine, other = (filled(rank, rank["sent"](r), count) for r in (0, 1))
    assert all(a != b for a, b in zip(mine, other, strict=True))
    for shift in (1 << k for k in range(17)):
        assert sum(a == b for a, b in zip(mine, mine[shift:], strict=False)) < 0.02 * count


def test_sums_are_exact_in_fp32_up_to_the_promised_number_of_ranks(rank):
    most = rank["MOST_RANKS"]
    _, _, times, add = rank["received"]("all_reduce", 0, most, 1)
    assert times * 255 + add < 2**24
    assert add == sum(r % 127 for r in range(most))


def test_one_wrong_element_is_counted_by_the_copy_back(rank):
    memory = Memory(4 * 70_000)
    pattern = rank["Pattern"](memory, None)
    shape = rank["received"]("all_gather", 0, 2, 35_000)
    pattern.fill(0, 70_000, shape)
    assert pattern.count_wrong(0, 70_000, shape) == 0
    memory.bytes[4 * 69_999] ^= 1
    assert pattern.count_wrong(0, 70_000, shape) == 1


class Ptx:
    """Carries out one thread of a kernel's text: the few instructions that it has, as the PTX ISA defines them."""

    def __init__(self, text, **parameters):
        body = text[text.index("{") + 1 : text.rindex("}")]
        self.lines = [line.strip().rstrip(";") for line in body.splitlines() if line.strip()]
        self.labels = {line[:-1]: at for at, line in enumerate(self.lines) if line.endswith(":")}
        self.values = dict(parameters)
        self.memory = parameters["memory"]

    def value(self, word):
        return self.values[word] if word in self.values else int(word)

    def run(self, thread, threads, block=0):
        special = {"%tid.x": thread, "%ntid.x": threads, "%ctaid.x": block, "%nctaid.x": 2}
        self.values.update(special)
        at = 0
        while True:
            line = self.lines[at]
            at += 1
            if line.endswith(":") or line.startswith(".reg"):
                continue
            if line.startswith("@%p "):
                if not self.values["%p"]:
                    continue
                line = line[4:]
            name, _, rest = line.partition(" ")
            words = [word.strip() for word in rest.split(",")]
            if name == "ret":
                return
            if name == "bra":
                at = self.labels[words[0]]
                continue
            self.step(name, words)

    def step(self, name, words):
        kind = name.split(".")
        into, *given = words
        if kind[0] in ("ld", "st", "red"):
            self.touch(kind, words)
            return
        a, *more = [self.value(word) for word in given]
        results = {
            "mov": lambda: a,
            "cvt": lambda: a,
            "add": lambda: a + more[0],
            "sub": lambda: a - more[0],
            "mul": lambda: a * more[0],
            "mad": lambda: a * more[0] + more[1],
            "div": lambda: a // more[0],
            "rem": lambda: a % more[0],
            "shl": lambda: a << more[0],
            "shr": lambda: a >> more[0],
            "setp": lambda: {"ge": a >= more[0], "ne": a != more[0], "eq": a == more[0]}[kind[1]],
        }
        result = results[kind[0]]()
        whole = kind[0] == "setp" or kind[1] == "rn"
        into_type = kind[-2] if kind[0] == "cvt" else "u64" if "wide" in kind else kind[-1]
        self.values[into] = result if whole else result % 2 ** int(into_type[1:])

    def touch(self, kind, words):
        if kind[:2] == ["ld", "param"]:
            self.values[words[0]] = self.values[words[1].strip("[]")]
        elif kind[0] == "ld":
            self.values[words[0]] = self.memory[self.value(words[1].strip("[]"))]
        elif kind[0] == "st":
            self.memory[self.value(words[0].strip("[]"))] = float(self.value(words[1]))
        else:
            self.memory[self.value(words[0].strip("[]"))] += self.value(words[1])


def launched(rank, memory, shape, count, wrong):
    base, block, times, add = shape
    names = {"buffer": 1 << 40, "count": count, "base": base, "block": block or count}
    names |= {"times": times, "add": add, "wrong": wrong, "memory": memory}
    for block_index in (0, 1):
        for thread in range(32):
            Ptx(rank["PTX"].decode(), **names).run(thread, 32, block_index)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_kernel_s_text_makes_and_checks_the_same_pattern(rank, operation):
    ranks, me = 3, 2
    each, _, receives = rank["shares"](operation, ranks, 900)
    base, *others = rank["received"](operation, me, ranks, each)
    shape = (base + 3_000_000_123, *others)  # far beyond 32 bits of bytes, and past the hash's period
    memory = {}
    launched(rank, memory, shape, receives, 0)
    assert [memory[(1 << 40) + 4 * at] for at in range(receives)] == filled(rank, shape, receives)
    memory[7] = 0
    launched(rank, memory, shape, receives, 7)
    assert memory[7] == 0
    memory[1 << 40] += 1
    memory[(1 << 40) + 4 * (receives - 1)] = float("nan")
    launched(rank, memory, shape, receives, 7)
    assert memory[7] == 2


if PTXAS:

    @pytest.mark.parametrize("architecture", ["sm_75", "sm_90", "sm_100"])
    def test_nvidia_s_assembler_takes_the_kernel(rank, architecture, tmp_path):
        (tmp_path / "pattern.ptx").write_bytes(rank["PTX"])
        words = [PTXAS, "-arch", architecture, tmp_path / "pattern.ptx", "-o", tmp_path / "pattern.cubin"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("name", ["nccl", *PARTS])
def test_scripts_keep_to_the_grammar_of_python_3_6(name):
    text = (NODE / f"{name}.py").read_text()
    ast.parse(text, feature_version=(3, 6))
    imported = {
        alias.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import) for alias in node.names
    }
    newer = {"dataclasses", "importlib.resources", "contextvars", "graphlib", "zoneinfo", "tomllib"}
    assert not imported & newer
    assert len(text.splitlines()) <= 400
    assert "annotations import" not in text.replace("from __future__ ", "")
