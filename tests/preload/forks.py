"""Calls BLAS in this process and in children made in every way Python knows, ended in every way they end.

forks.py METHOD: os.fork, fork, forkserver or spawn. Prints "pid calls" for each process, by itself, before it ends.
"""
import multiprocessing
import os
import signal
import sys

import numpy as np

x = np.ones((4, 8), np.float32)
w = np.ones((8, 16), np.float32)


def work(calls, end):
    for _ in range(calls):
        assert (x @ w)[0, 0] == 8
    os.write(1, b"%d %d\n" % (os.getpid(), calls))
    if end:
        os.kill(os.getpid(), end)


if __name__ == "__main__":
    method = sys.argv[1]
    for i, end in enumerate((0, signal.SIGTERM, signal.SIGKILL)):
        if method == "os.fork":
            pid = os.fork()
            if not pid:
                work(5 + i, end)
                os._exit(0)
            os.waitpid(pid, 0)
        else:
            child = multiprocessing.get_context(method).Process(target=work, args=(5 + i, end))
            child.start()
            child.join()
        if i == 0:
            work(3, 0)  # the first child started before its parent, the others after
