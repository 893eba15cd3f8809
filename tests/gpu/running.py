"""Commands within a time limit, for the programs here that run many: story.py and collect.py."""
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

alive, lock, over = set(), threading.RLock(), threading.Event()  # a signal's handler takes the lock again


def bounded(words, limit, env, cwd=None, grace=3):
    """Exit status (124: out of time), output and seconds. Out of time it is asked to end, and killed after `grace` seconds, with
    all that it started."""
    start = time.monotonic()
    with tempfile.TemporaryFile("w+") as out:  # not a pipe: a child that outlives the command would hold it open
        with lock:
            if over.is_set():
                return 124, "not started: everything is being ended", 0.0
            p = subprocess.Popen(words, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
            alive.add(p)
        try:
            rc = p.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            end(p, grace)
            rc = 124
        with lock:
            alive.discard(p)
        out.seek(0)
        text = out.buffer.read().decode(errors="replace")
    return rc, text, round(time.monotonic() - start, 2)


def end(p, grace=3):
    for how in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(p.pid, how)
        except ProcessLookupError:
            break
        try:
            p.wait(timeout=grace)
        except subprocess.TimeoutExpired:
            continue
    p.wait()


def end_all():
    """Every command that runs, and none is started any more."""
    over.set()
    with lock:
        running = list(alive)
    for p in running:
        end(p)


def end_on_signals():
    """A program that is ended leaves nothing of its own behind."""
    def handler(number, _):
        end_all()
        sys.exit(128 + number)

    for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(s, handler)
