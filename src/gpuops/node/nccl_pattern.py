"""Data that ranks send and should receive: integers that depend on rank and index, generated and checked on the GPU.

Element e of a pattern is times·h(base + e mod block) + add + w(e / block). h(i), 0 to 255, has a prime as its period,
so that a chunk moved by a power of two does not look right; w(rank) is rank mod 127. Sums over 44,000 ranks stay below
2^24, so they are exact in fp32 in any order of addition. Sent after ``node/nccl_libraries.py``.
"""
import array
import ctypes

PRIME, FACTOR, WEIGHTS, MOST_RANKS = 65521, 2654435761, 127, 44000
PTX = b"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry pattern(.param .u64 buffer, .param .u64 count, .param .u64 base, .param .u64 block,
                        .param .u32 times, .param .u32 add, .param .u64 wrong)
{
    .reg .pred %p;
    .reg .b32 %r<8>;
    .reg .f32 %f<2>;
    .reg .b64 %d<13>;
    ld.param.u64 %d0, [buffer];
    ld.param.u64 %d1, [count];
    ld.param.u64 %d2, [base];
    ld.param.u64 %d3, [block];
    ld.param.u32 %r0, [times];
    ld.param.u32 %r1, [add];
    ld.param.u64 %d4, [wrong];
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mov.u32 %r5, %tid.x;
    mul.wide.u32 %d5, %r3, %r4;
    cvt.u64.u32 %d6, %r5;
    add.u64 %d5, %d5, %d6;
    mov.u32 %r3, %nctaid.x;
    mul.wide.u32 %d7, %r3, %r4;
NEXT:
    setp.ge.u64 %p, %d5, %d1;
    @%p bra DONE;
    div.u64 %d8, %d5, %d3;
    mul.lo.u64 %d9, %d8, %d3;
    sub.u64 %d9, %d5, %d9;
    add.u64 %d9, %d9, %d2;
    rem.u64 %d9, %d9, 65521;
    cvt.u32.u64 %r6, %d9;
    mul.lo.u32 %r6, %r6, 2654435761;
    shr.u32 %r6, %r6, 24;
    mad.lo.u32 %r6, %r6, %r0, %r1;
    rem.u64 %d10, %d8, 127;
    cvt.u32.u64 %r7, %d10;
    add.u32 %r6, %r6, %r7;
    cvt.rn.f32.u32 %f0, %r6;
    shl.b64 %d11, %d5, 2;
    add.u64 %d11, %d0, %d11;
    add.u64 %d5, %d5, %d7;
    setp.ne.u64 %p, %d4, 0;
    @%p bra COMPARE;
    st.global.f32 [%d11], %f0;
    bra NEXT;
COMPARE:
    ld.global.f32 %f1, [%d11];
    setp.eq.f32 %p, %f0, %f1;
    @%p bra NEXT;
    mov.u64 %d12, 1;
    red.global.add.u64 [%d4], %d12;
    bra NEXT;
DONE:
    ret;
}
"""


def hashed(index) -> int:
    return (index % PRIME * FACTOR & 0xFFFFFFFF) >> 24


def weight(rank) -> int:
    return rank % WEIGHTS


def shares(operation, ranks, elements) -> tuple:
    """Return the elements of one rank's part, and those that a rank sends and receives, for nccl-tests' size."""
    if operation in ("all_reduce", "send_recv"):
        return elements, elements, elements
    each = elements // ranks
    return each, each if operation == "all_gather" else each * ranks, each if operation == "reduce_scatter" else each * ranks


def sent(rank) -> tuple:
    """Return the shape (base, block, times, add) of the data that ``rank`` sends; block None means a single block."""
    return 0, None, 1, weight(rank)


def received(operation, rank, ranks, each) -> tuple:
    """Return the shape of the data that ``rank`` should receive."""
    base = rank * each if operation in ("reduce_scatter", "all_to_all") else 0
    if operation in ("all_reduce", "reduce_scatter"):
        return base, None, ranks, sum(map(weight, range(ranks)))
    if operation == "send_recv":
        return base, None, 1, weight((rank - 1) % ranks)
    return base, each, 1, 0


class Pattern:
    """Generator and checker of buffers: on the GPU if the driver can compile PTX, else with copies to this process."""

    def __init__(self, cuda, stream) -> None:
        self.cuda = cuda
        self.stream = stream
        self.hashes = [hashed(index) for index in range(PRIME)]
        module = PTR()
        status = cuda.status("cuModuleLoadData", ctypes.byref(module), PTX)
        self.kernel = None
        self.how = "copied back, because the driver cannot compile PTX (%s)" % cuda.explain(status)
        if status == 0:
            self.kernel = PTR(cuda.take(PTR, "cuModuleGetFunction", module, b"pattern"))
            self.wrong = cuda.take(ADDRESS, "cuMemAlloc_v2", 8)
            self.how = "on the GPU"

    def fill(self, buffer, count, shape) -> None:
        if self.kernel:
            self.launch(buffer, count, shape, 0)
        else:
            for at, tile in self.tiles(count, shape):
                self.cuda.call("cuMemcpyHtoD_v2", buffer + 4 * at, tile, len(tile))

    def count_wrong(self, buffer, count, shape) -> int:
        if not self.kernel:
            return sum(self.differing(buffer + 4 * at, tile) for at, tile in self.tiles(count, shape))
        self.cuda.call("cuMemsetD32_v2", self.wrong, 0, 2)
        self.launch(buffer, count, shape, self.wrong)
        wrong_count = ctypes.c_uint64()
        self.cuda.call("cuMemcpyDtoH_v2", ctypes.byref(wrong_count), self.wrong, 8)
        return wrong_count.value

    def launch(self, buffer, count, shape, wrong) -> None:
        base, block, times, add = shape
        values = [ADDRESS(value) for value in (buffer, count, base, block or max(count, 1))]
        values += [UINT(value) for value in (times, add)] + [ADDRESS(wrong)]
        pointers = (PTR * len(values))(*(ctypes.addressof(value) for value in values))
        grid = min(max((count + 255) // 256, 1), 65535)
        self.cuda.call("cuLaunchKernel", self.kernel, grid, 1, 1, 256, 1, 1, 0, self.stream, pointers, None)
        self.cuda.call("cuStreamSynchronize", self.stream)

    def tiles(self, count, shape) -> object:
        """Yield the pattern in pieces: (first element, bytes)."""
        base, block, times, add = shape
        block = block or max(count, 1)
        for start in range(0, count, block):
            plus = add + weight(start // block)
            turned = base % PRIME
            values = self.hashes[turned:] + self.hashes[:turned]
            tile = array.array("f", (times * value + plus for value in values[:min(block, PRIME)])).tobytes()
            ends = min(start + block, count)
            for at in range(start, ends, PRIME):
                yield at, tile[:4 * min(PRIME, ends - at)]

    def differing(self, buffer, tile) -> int:
        room = ctypes.create_string_buffer(len(tile))
        self.cuda.call("cuMemcpyDtoH_v2", room, buffer, len(tile))
        if room.raw == tile:
            return 0
        return sum(a != b for a, b in zip(array.array("f", room.raw), array.array("f", tile)))
