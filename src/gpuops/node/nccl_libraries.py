"""ctypes bindings of the two libraries that a rank loads on a node, each with a table of the functions in use.

Python 3.6 grammar, standard library only. Sent before ``node/nccl_pattern.py`` and ``node/nccl_rank.py``.
"""
import ctypes

INT, UINT, SIZE, ADDRESS, FLOAT = ctypes.c_int, ctypes.c_uint, ctypes.c_size_t, ctypes.c_uint64, ctypes.c_float
PTR, TEXT, REF = ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER


class UniqueId(ctypes.Structure):
    """``ncclUniqueId``: 128 bytes passed by value; they may contain NULs, so it is not a string."""

    _fields_ = [("internal", ctypes.c_byte * 128)]


# the functions in use with their argument types; all return a status, 0 for success, except those in RETURNS. cuda.h
# maps plain names to those with _v2: the unversioned symbols are the ABI of CUDA 3
CUDA = {
    "cuInit": [UINT],
    "cuDriverGetVersion": [REF(INT)],
    "cuGetErrorName": [INT, REF(TEXT)],
    "cuDeviceGetCount": [REF(INT)],
    "cuDeviceGet": [REF(INT), INT],
    "cuDeviceGetName": [TEXT, INT, INT],
    "cuDeviceGetPCIBusId": [TEXT, INT, INT],
    "cuDeviceGetAttribute": [REF(INT), INT, INT],
    "cuDevicePrimaryCtxRetain": [REF(PTR), INT],
    "cuCtxSetCurrent": [PTR],
    "cuMemGetInfo_v2": [REF(SIZE), REF(SIZE)],
    "cuMemAlloc_v2": [REF(ADDRESS), SIZE],
    "cuMemFree_v2": [ADDRESS],
    "cuMemcpyHtoD_v2": [ADDRESS, PTR, SIZE],
    "cuMemcpyDtoH_v2": [PTR, ADDRESS, SIZE],
    "cuMemsetD32_v2": [ADDRESS, UINT, SIZE],
    "cuStreamCreate": [REF(PTR), UINT],
    "cuStreamSynchronize": [PTR],
    "cuEventCreate": [REF(PTR), UINT],
    "cuEventRecord": [PTR, PTR],
    "cuEventQuery": [PTR],
    "cuEventElapsedTime": [REF(FLOAT), PTR, PTR],
    "cuEventDestroy_v2": [PTR],
    "cuModuleLoadData": [REF(PTR), TEXT],
    "cuModuleGetFunction": [REF(PTR), PTR, TEXT],
    "cuLaunchKernel": [PTR, UINT, UINT, UINT, UINT, UINT, UINT, UINT, PTR, REF(PTR), REF(PTR)],
}
NCCL = {
    "ncclGetVersion": [REF(INT)],
    "ncclGetUniqueId": [REF(UniqueId)],
    "ncclGetErrorString": [INT],
    "ncclGetLastError": [PTR],
    "ncclCommInitRank": [REF(PTR), INT, UniqueId, INT],
    "ncclCommCuDevice": [PTR, REF(INT)],
    "ncclCommDestroy": [PTR],
    "ncclCommGetAsyncError": [PTR, REF(INT)],
    "ncclGroupStart": [],
    "ncclGroupEnd": [],
    "ncclAllReduce": [ADDRESS, ADDRESS, SIZE, INT, INT, PTR, PTR],
    "ncclAllGather": [ADDRESS, ADDRESS, SIZE, INT, PTR, PTR],
    "ncclReduceScatter": [ADDRESS, ADDRESS, SIZE, INT, INT, PTR, PTR],
    "ncclSend": [ADDRESS, SIZE, INT, INT, PTR, PTR],
    "ncclRecv": [ADDRESS, SIZE, INT, INT, PTR, PTR],
}
LIBC = {"prctl": [INT, ctypes.c_ulong], "setvbuf": [PTR, PTR, INT, SIZE]}
RETURNS = {"ncclGetErrorString": TEXT, "ncclGetLastError": TEXT}


class LibraryError(Exception):
    """Failed call of CUDA or NCCL, or a library that cannot be loaded."""


class Library:
    """Shared library, restricted to the functions in its table."""

    def __init__(self, path, table) -> None:
        self._functions = {}
        self._table = table
        try:
            self._loaded = ctypes.CDLL(path)
        except OSError as error:
            raise LibraryError("cannot load %s" % error if str(error).startswith(path) else "cannot load %s: %s" % (path, error))

    def function(self, name) -> object:
        """Return the function with its types set."""
        if name not in self._functions:
            arguments = self._table[name]
            try:
                function = getattr(self._loaded, name)
            except AttributeError:
                raise LibraryError("the library has no %s: it is too old, or the wrong library" % name)
            function.restype, function.argtypes = RETURNS.get(name, INT), arguments
            self._functions[name] = function
        return self._functions[name]

    def status(self, name, *arguments) -> int:
        return self.function(name)(*arguments)

    def call(self, name, *arguments) -> None:
        """Call a function that must succeed."""
        status = self.status(name, *arguments)
        if status:
            raise LibraryError("%s: %s" % (name, self.explain(status)))

    def explain(self, status) -> str:
        return "status %d" % status

    def take(self, type_, name, *arguments) -> object:
        """Call a function that must succeed, and return the value that it writes through its first argument."""
        value = type_()
        self.call(name, ctypes.byref(value), *arguments)
        return value.value


class Cuda(Library):
    """CUDA driver API, ``libcuda.so.1``."""

    def explain(self, status) -> str:
        name = TEXT()
        has_name = self.status("cuGetErrorName", status, ctypes.byref(name)) == 0 and name.value
        return name.value.decode() if has_name else "error %d" % status

    def word(self, name, device) -> str:
        """Return the text that a function writes for ``device``."""
        room = ctypes.create_string_buffer(256)
        self.call(name, room, len(room), device)
        return room.value.decode("utf-8", "replace")


class Nccl(Library):
    """NCCL, ``libnccl.so.2``."""

    def explain(self, status) -> str:
        description = self.function("ncclGetErrorString")(status) or b""
        try:
            last = self.function("ncclGetLastError")(None) or b""
        except LibraryError:    # before 2.13
            last = b""
        return b": ".join(filter(None, (description, last.strip()))).decode("utf-8", "replace")
