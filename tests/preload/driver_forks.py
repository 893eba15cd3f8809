"""Launches kernels in children made in every way Python knows, ended in every way they end, before this process has
touched the GPU.

driver_forks.py METHOD: fork, forkserver or spawn. Prints "pid launches" for each child, by itself, before it ends.
"""
import ctypes
import multiprocessing
import os
import signal
import sys


def work(launches, end):
    cu = ctypes.CDLL("libcuda.so.1")
    context, module, f = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    assert not cu.cuInit(0)
    assert not cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    assert not cu.cuCtxSetCurrent(context)
    image = b"/*\nkfit-double 1\narch sm_90\nentry works nothing i\nend\n*/\n.version 7.0\n.target sm_80\n.address_size 64\n"
    image += b".visible .entry works(.param .u32 p)\n{\n ret;\n}\n"
    assert not cu.cuModuleLoadData(ctypes.byref(module), image)
    assert not cu.cuModuleGetFunction(ctypes.byref(f), module, b"works")
    params = (ctypes.c_void_p * 1)(ctypes.addressof(ctypes.c_int(0)))
    for _ in range(launches):
        assert not cu.cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, None, params, None)
    os.write(1, b"%d %d\n" % (os.getpid(), launches))
    if end:
        os.kill(os.getpid(), end)


if __name__ == "__main__":
    for i, end in enumerate((0, signal.SIGTERM, signal.SIGKILL)):
        child = multiprocessing.get_context(sys.argv[1]).Process(target=work, args=(5 + i, end))
        child.start()
        child.join()
