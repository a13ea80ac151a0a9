"""Rank on a node, one process per GPU: opens the GPU's primary context, loads NCCL, and moves data on request.

Python 3.6 grammar, standard library only. ``node/nccl.py`` starts it with its whole environment and sends it this
program, after ``nccl_libraries.py`` and ``nccl_pattern.py``. It writes lines of JSON to its original stdout:
``{"stage": …}`` for progress, then ``{"answer": …}`` or ``{"error": …}`` for each message. The output of CUDA, NCCL and
plugins goes to stderr.
"""
import ctypes
import json
import os
import signal
import sys
import time

NOT_READY = 600                     # CUDA_ERROR_NOT_READY
COMPUTE_MODE, GPU_DIRECT_RDMA = 20, 116     # CUdevice_attribute
FLOAT32, SUM = 7, 0                 # ncclDataType_t, ncclRedOp_t
IN_PROGRESS = 7                     # ncclInProgress
PR_SET_PDEATHSIG, BY_LINE = 1, 1    # <linux/prctl.h>, _IOLBF of glibc
REPORT_SECONDS = 0.1


class NcclRank:
    """One GPU and its rank in a communicator. Each public method answers the message of the same name."""

    def __init__(self, say) -> None:
        self.say = say
        self.cuda = self.nccl = self.stream = self.pattern = None
        self.gpu, self.communicator, self.rank, self.ranks = None, None, 0, 1
        self.buffers, self.size = [], 0
        self.reported_at = 0.0

    def look(self, message) -> dict:
        """Return what the driver reports, without opening a context on any GPU."""
        cuda = self.driver()
        count = cuda.take(INT, "cuDeviceGetCount")
        return {"driver_cuda": cuda.take(INT, "cuDriverGetVersion"), "gpus": list(map(self.device_info, range(count)))}

    def driver(self) -> Cuda:
        self.say({"stage": "load"})
        self.cuda = Cuda("libcuda.so.1", CUDA)
        self.cuda.call("cuInit", 0)
        return self.cuda

    def device_info(self, gpu) -> dict:
        device, rdma = self.cuda.take(INT, "cuDeviceGet", gpu), INT()
        status = self.cuda.status("cuDeviceGetAttribute", ctypes.byref(rdma), GPU_DIRECT_RDMA, device)  # 11.3
        return {
            "name": self.cuda.word("cuDeviceGetName", device),
            "address": self.cuda.word("cuDeviceGetPCIBusId", device).lower(),
            "compute_mode": self.cuda.take(INT, "cuDeviceGetAttribute", COMPUTE_MODE, device),
            "rdma": status == 0 and rdma.value == 1,
        }

    def load(self, message) -> dict:
        """Open the GPU's primary context, which NCCL's own CUDA runtime also uses, and load NCCL."""
        cuda = self.driver()
        self.gpu = message["gpu"]
        device = cuda.take(INT, "cuDeviceGet", self.gpu)
        cuda.call("cuCtxSetCurrent", cuda.take(PTR, "cuDevicePrimaryCtxRetain", device))
        self.stream = PTR(cuda.take(PTR, "cuStreamCreate", 0))
        self.pattern = Pattern(cuda, self.stream)
        self.nccl = Nccl(message["nccl"], NCCL)
        free, total = SIZE(), SIZE()
        cuda.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        version = self.nccl.take(INT, "ncclGetVersion")
        if version != message["version"]:
            raise LibraryError("%s is NCCL %d, expected %d" % (message["nccl"], version, message["version"]))
        return {"free_bytes": free.value, "checked": self.pattern.how}

    def id(self, message) -> dict:
        """Return the id of a new communicator; this process listens for its ranks until it exits."""
        made = UniqueId()
        self.nccl.call("ncclGetUniqueId", ctypes.byref(made))
        return {"id": bytes(made).hex()}

    def join(self, message) -> dict:
        self.say({"stage": "join"})
        unique = UniqueId.from_buffer_copy(bytes.fromhex(message["id"]))
        self.rank, self.ranks = message["rank"], message["ranks"]
        if self.ranks > MOST_RANKS:
            raise LibraryError("sums of more than %d ranks are not exact in fp32" % MOST_RANKS)
        self.communicator = PTR()
        self.nccl.call("ncclCommInitRank", ctypes.byref(self.communicator), self.ranks, unique, self.rank)
        taken = INT()
        self.nccl.call("ncclCommCuDevice", self.communicator, ctypes.byref(taken))
        if taken.value != self.gpu:     # NCCL uses the context that its CUDA runtime considers current
            raise LibraryError("NCCL uses GPU %d instead of GPU %d" % (taken.value, self.gpu))
        self.say({"stage": "joined"})
        return {}

    def drive(self, message) -> dict:
        """Run one operation ``count`` times; return the seconds of each by the GPU's clock, and the wrong elements.

        ``bytes`` is the size of the larger buffer, as in nccl-tests.
        """
        operation = message["operation"]
        each, sends, receives = shares(operation, self.ranks, message["bytes"] // 4)
        self.allocate(message["bytes"])
        self.pattern.fill(self.buffers[0], sends, sent(self.rank))
        self.cuda.call("cuMemsetD32_v2", self.buffers[1], 0xFFFFFFFF, receives)     # NaN, which equals no number
        self.cuda.call("cuStreamSynchronize", self.stream)
        self.say({"stage": "launch"})
        seconds = self.timed(getattr(self, "run_" + operation), each, message["count"])
        self.say({"stage": "check"})
        shape = received(operation, self.rank, self.ranks, each)
        wrong = self.pattern.count_wrong(self.buffers[1], receives, shape)
        if message["leave"]:
            self.leave()
        return {"seconds": seconds, "wrong": wrong, "elements": receives}

    def allocate(self, size) -> None:
        if self.size != size:
            while self.buffers:
                self.cuda.call("cuMemFree_v2", self.buffers.pop())
            self.buffers = [self.cuda.take(ADDRESS, "cuMemAlloc_v2", size) for _ in "io"]
            self.size = size

    def timed(self, run, each, count) -> list:
        """Return the seconds of each run; queue all of them first, so that this process adds no time in between."""
        events = [PTR(self.cuda.take(PTR, "cuEventCreate", 0)) for _ in range(count + 1)]
        self.cuda.call("cuEventRecord", events[0], self.stream)
        for event in events[1:]:
            run(each)
            self.cuda.call("cuEventRecord", event, self.stream)
        for completed, event in enumerate(events[1:]):
            self.wait(event, completed)
        milliseconds = [self.cuda.take(FLOAT, "cuEventElapsedTime", a, b) for a, b in zip(events, events[1:])]
        for event in events:
            self.cuda.call("cuEventDestroy_v2", event)
        return [value / 1000 for value in milliseconds]

    def wait(self, event, completed) -> None:
        """Wait for ``event`` and report progress; NCCL may detect an error before the GPU does."""
        while True:
            status = self.cuda.status("cuEventQuery", event)
            if status == 0:
                return
            if status != NOT_READY:
                raise LibraryError("the GPU failed: " + self.cuda.explain(status))
            failed = INT()
            self.nccl.call("ncclCommGetAsyncError", self.communicator, ctypes.byref(failed))
            if failed.value not in (0, IN_PROGRESS):
                raise LibraryError("NCCL failed: " + self.nccl.explain(failed.value))
            self.report_progress(completed)
            time.sleep(0.0005)

    def report_progress(self, completed) -> None:
        now = time.monotonic()
        if now - self.reported_at > REPORT_SECONDS:
            self.reported_at = now
            self.say({"stage": "run", "done": completed})

    def run_all_reduce(self, each) -> None:
        self.collect("ncclAllReduce", each, FLOAT32, SUM)

    def run_all_gather(self, each) -> None:
        self.collect("ncclAllGather", each, FLOAT32)

    def run_reduce_scatter(self, each) -> None:
        self.collect("ncclReduceScatter", each, FLOAT32, SUM)

    def collect(self, name, *how) -> None:
        self.nccl.call(name, self.buffers[0], self.buffers[1], *(how + (self.communicator, self.stream)))

    def run_all_to_all(self, each) -> None:
        self.exchange(each, [(peer, peer, 4 * each * peer) for peer in range(self.ranks)])

    def run_send_recv(self, each) -> None:
        self.exchange(each, [((self.rank + 1) % self.ranks, (self.rank - 1) % self.ranks, 0)])

    def exchange(self, each, parts) -> None:
        """Send and receive at the same time; a part is (destination, source, byte offset in the buffers)."""
        self.nccl.call("ncclGroupStart")
        for to, source, at in parts:
            self.nccl.call("ncclSend", self.buffers[0] + at, each, FLOAT32, to, self.communicator, self.stream)
            self.nccl.call("ncclRecv", self.buffers[1] + at, each, FLOAT32, source, self.communicator, self.stream)
        self.nccl.call("ncclGroupEnd")

    def leave(self) -> None:
        self.say({"stage": "leave"})
        communicator, self.communicator = self.communicator, None
        self.nccl.call("ncclCommDestroy", communicator)


def prepare() -> object:
    """Exit with the parent, redirect the output of C libraries to stderr, and return the stream for answers."""
    libc = Library(None, LIBC)
    libc.call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL)
    answers = os.fdopen(os.dup(1), "w", 1)
    os.dup2(2, 1)
    libc.call("setvbuf", PTR.in_dll(ctypes.CDLL(None), "stdout"), None, BY_LINE, 0)
    return answers


def serve() -> None:
    answers = prepare()
    rank = NcclRank(lambda reply: answers.write(json.dumps(reply) + "\n"))
    for line in sys.stdin.buffer:
        message = json.loads(line.decode())
        try:
            reply = {"answer": getattr(rank, message["do"])(message)}
        except LibraryError as error:
            reply = {"error": str(error)}
        rank.say(reply)


if "MARK" in globals():         # set by the command line that starts this program
    serve()
