"""kfit metrics: what Prometheus reads, and a real Prometheus reading it. Arguments: see cli_helpers.py."""
import http.client
import json
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import subprocess
import time
import unittest
import urllib.parse
import urllib.request

from cli_helpers import FIXTURE, KFIT, SANITIZER, Case, Held, key, main

HERE = pathlib.Path(__file__).parent
EXAMPLES = HERE.parent / "integrations/prometheus"
HOSTILE = b'"} 1\n# TYPE x\x1b[31m\\\xff'  # what no recorder writes, and a trace may hold
HOSTILE_SHOWN = '"} 1?# TYPE x?[31m\\?'
SAMPLE = re.compile(r'(\w+)(?:\{((?:\w+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (\S+)')
LABEL = re.compile(r'(\w+)="((?:[^"\\\n]|\\["\\n])*)"')


def unescape(text):
    return re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], text)


def parse(text):
    """{(name, frozenset of labels): value}; every line must be of the format, every family declared once and before."""
    series, families = {}, {}
    for line in text.splitlines():
        if line.startswith("# "):
            word, name, rest = line[2:].split(" ", 2)
            assert word == "HELP" and name not in families or word == "TYPE" and families[name] == "", line
            families[name] = "" if word == "HELP" else rest
            continue
        m = SAMPLE.fullmatch(line)
        assert m, repr(line)
        name = m[1]
        assert families[name] == ("counter" if name.endswith("_total") else "gauge"), line
        at = name, frozenset((k, unescape(v)) for k, v in LABEL.findall(m[2] or ""))
        assert at not in series, line
        series[at] = float(m[3])
    assert text.endswith("\n")
    return series


class Metrics(Held):
    def metrics(self, *args, rc=0):
        self.text, self.said = self.kfit("metrics", "--cache", self.cache, *args, rc=rc)
        return parse(self.text)

    def sum(self, series, name, **labels):
        found = [v for (n, at), v in series.items() if n == name and labels.items() <= dict(at).items()]
        self.assertTrue(found, f"no {name} {labels} in\n{self.text}")
        return sum(found)

    def textfile(self, *args, rc=0):
        self.said = self.kfit("metrics", "--textfile", self.dir / "kfit.prom", *args, self.traces, rc=rc)[1]
        self.text = (self.dir / "kfit.prom").read_text()
        return parse(self.text)


class Exposition(Metrics):
    def test_calls_hits_and_misses(self):
        self.trace((key(64), 100, 60), (key(128), 5, 0), label="prod")
        self.trace((key(64), 7, 7), label="prod")
        self.trace((key(64), 1, 0), label="test")
        m = self.metrics(self.traces)
        for name, value in [("kfit_calls_total", 112), ("kfit_hits_total", 67), ("kfit_misses_total", 45),
                            ("kfit_processes_started_total", 2)]:
            self.assertEqual(self.sum(m, name, label="prod"), value)
        self.assertEqual(self.sum(m, "kfit_misses_total", label="prod", reason="no_record"), 45)
        self.assertEqual(self.sum(m, "kfit_misses_total", label="prod", reason="banned"), 0)  # there from the start
        self.assertEqual(self.sum(m, "kfit_processes_ended_total", label="prod", end="clean"), 2)
        self.assertEqual(self.sum(m, "kfit_calls_total"), 113)
        self.assertEqual(self.sum(m, "kfit_traces", state="ended"), 3)

    def test_live_processes_by_state_and_why(self):
        a = self.hold((key(64), 10, 5), fixture="3,0,12,2,5,1,7")
        self.hold((key(64), 10, 0), (key(128), 1, 0), fixture="2,0,14,0,0,0,0")
        self.hold(fixture="0,14")
        self.fixture("stage", self.cache, key(64), 2.5)
        m = self.metrics(self.traces)
        self.assertEqual(self.sum(m, "kfit_processes", state="dispatching", reason="none"), 2)
        self.assertEqual(self.sum(m, "kfit_processes", state="original", reason="env"), 1)
        for name, value in [("kernels_loaded", 14), ("kernels_stale", 2), ("kernels_unusable", 7), ("keys_kept", 5),
                            ("keys_banned", 1), ("keys_recorded", 2), ("published_generation", 0), ("switched_off", 0)]:
            self.assertEqual(self.sum(m, "kfit_" + name), value, name)
        self.assertEqual(self.sum(m, "kfit_generation", of="oldest"), 0)
        self.assertEqual(self.sum(m, "kfit_generation", of="newest"), 3)
        self.assertAlmostEqual(self.sum(m, "kfit_replaced_ratio"), 5 / 21, places=5)
        self.c("approve", "--all")
        self.c("off", self.traces)
        m = self.metrics(self.traces)
        self.assertEqual(self.sum(m, "kfit_processes", state="original", reason="off"), 2)
        self.assertEqual((self.sum(m, "kfit_published_generation"), self.sum(m, "kfit_switched_off")), (1, 1))
        self.end(a)
        self.assertEqual(self.sum(self.metrics(self.traces), "kfit_processes"), 2)

    def test_ranks_on_two_generations(self):
        for rank, generation in enumerate([3, 3, 2]):
            self.hold(fixture=f"{generation},0,1", RANK=str(rank), MASTER_ADDR="n")
        self.hold(label="fine", fixture="3,0,1", RANK="0", MASTER_ADDR="m")
        m = self.metrics(self.traces)
        self.assertEqual((self.sum(m, "kfit_jobs_mixed", label="held"), self.sum(m, "kfit_jobs_mixed", label="fine")), (1, 0))

    def test_hostile_labels_stay_labels(self):
        self.trace((key(64), 3, 1), label="PLACEHOLDER-OF-SIZE-64")
        (path,) = pathlib.Path(self.traces).iterdir()
        data = path.read_bytes()
        self.assertEqual(data.count(b"PLACEHOLDER-OF-SIZE-64"), 1)
        path.write_bytes(data.replace(b"PLACEHOLDER-OF-SIZE-64", HOSTILE.ljust(22, b"\0")))
        m = self.metrics(self.traces)
        self.assertEqual(self.sum(m, "kfit_calls_total", label=HOSTILE_SHOWN), 3)
        self.assertNotIn("\x1b", self.text)
        self.assertEqual(self.sum(self.textfile(), "kfit_calls_total", label=HOSTILE_SHOWN), 3)
        self.assertEqual(self.sum(self.textfile(), "kfit_calls_total", label=HOSTILE_SHOWN), 3)  # through the state

    def test_ten_thousand_keys_are_no_more_series_than_one(self):
        self.trace((key(64), 5, 3), label="same")
        few = self.metrics(self.traces)
        self.trace(("@10000", 5, 3), label="same")
        many = self.metrics(self.traces)
        self.assertEqual(few.keys(), many.keys())
        self.assertEqual(self.sum(many, "kfit_calls_total"), 50005)
        with_keys = self.metrics("--keys", 7, self.traces)
        self.assertEqual({n for n, _ in with_keys} - {n for n, _ in many}, {"kfit_key_calls_total"})
        self.assertEqual(len(with_keys) - len(many), 14)
        self.assertEqual(self.sum(with_keys, "kfit_key_calls_total", key=key(64)), 10)  # in both traces: it leads
        self.assertEqual(self.sum(with_keys, "kfit_key_calls_total", key=key(64), outcome="hit"), 6)
        self.assertEqual(self.sum(with_keys, "kfit_key_calls_total"), 40)

    def test_many_deployments_are_bounded(self):
        for i in range(70):
            self.trace((key(64), 10, 0), label=f"canary-{i}")
        m = self.textfile()
        labels = {dict(at)["label"] for n, at in m if n == "kfit_calls_total"}
        self.assertEqual(len(labels), 65)
        self.assertEqual(self.sum(m, "kfit_calls_total", label="(other)", program="(other)"), 60)
        self.assertEqual(self.sum(m, "kfit_calls_total"), 700)
        self.trace((key(64), 1, 0), label="one more")
        again = self.textfile()
        self.assertEqual(m.keys(), again.keys())  # who has a series keeps it
        self.assertEqual(self.sum(again, "kfit_calls_total", label="(other)"), 61)

    def test_a_real_program(self):
        if SANITIZER != "none":
            self.skipTest("a shim with a sanitizer cannot be preloaded")
        script = "import numpy as n\na = n.ones((4, 64), 'f'); b = n.ones((64, 96), 'f')\nfor i in range(50): c = a @ b\n" \
                 "print(c[0, 0], flush=True); input()"
        label = self.dir.name  # no other's, also where this test runs twice at once
        p = self.start(KFIT, "run", "--quiet", "--trace", self.traces, "--label", label, "--", "/usr/bin/python3", "-c", script,
                       stdin=subprocess.PIPE)
        self.assertEqual(p.stdout.readline(), "64.0\n")
        m = self.metrics()  # where it is now nobody said: found through the process
        self.assertEqual(self.sum(m, "kfit_calls_total", label=label), 50)
        self.assertEqual(self.sum(m, "kfit_processes", label=label, state="original", reason="off"), 1)
        p.communicate("\n", timeout=60)
        self.assertEqual(self.sum(self.metrics(self.traces), "kfit_misses_total", label=label, reason="off"), 50)


class Counters(Metrics):
    """What was counted once stays counted."""

    def check_grew(self, before, after):
        for at, value in before.items():
            if at[0].endswith("_total"):
                self.assertGreaterEqual(after.get(at, -1), value, at)

    def test_they_outlive_traces(self):
        p = self.hold((key(64), 100, 60), (key(128), 5, 0))
        m = [self.textfile("--keys", 1)]
        self.assertEqual(self.sum(m[0], "kfit_calls_total"), 105)
        self.tell(p, "+0 10 10")
        self.tell(p, "+1 7 0")
        m.append(self.textfile("--keys", 1))
        self.assertEqual((self.sum(m[1], "kfit_calls_total"), self.sum(m[1], "kfit_hits_total")), (122, 70))
        self.end(p)
        m.append(self.textfile("--keys", 1))
        self.assertEqual(self.sum(m[2], "kfit_processes_ended_total", end="clean"), 1)
        run = pathlib.Path(self.traces) / "run-1"  # as kfit run moves them
        run.mkdir(mode=0o700)
        moved = pathlib.Path(p.path).rename(run / pathlib.Path(p.path).name)
        m.append(self.textfile("--keys", 1))
        shutil.copy(moved, self.traces)  # and people copy them
        m.append(self.textfile("--keys", 1))
        self.assertEqual(self.sum(m[4], "kfit_traces", state="ended"), 1)
        shutil.rmtree(self.traces)
        os.mkdir(self.traces, 0o700)
        m.append(self.textfile("--keys", 1))
        self.trace((key(64), 8, 0), label="held")
        m.append(self.textfile("--keys", 1))
        for now in m[2:6]:
            self.assertEqual((self.sum(now, "kfit_calls_total"), self.sum(now, "kfit_processes_started_total"),
                              self.sum(now, "kfit_processes_ended_total")), (122, 1, 1))
            self.assertEqual(self.sum(now, "kfit_key_calls_total", key=key(64)), 110)
        self.assertEqual(self.sum(m[6], "kfit_calls_total"), 122 + 8)
        self.assertEqual(self.sum(m[6], "kfit_key_calls_total", key=key(64)), 118)
        for before, after in zip(m, m[1:]):
            self.check_grew(before, after)

    def test_a_killed_process_ends_once(self):
        p = self.start(FIXTURE, "kill", self.traces, "held", key(64), 7, 0)
        p.communicate(timeout=60)
        for _ in range(2):
            m = self.textfile()
            self.assertEqual(self.sum(m, "kfit_processes_ended_total", end="unknown"), 1)
            self.assertEqual(self.sum(m, "kfit_calls_total"), 7)
        pathlib.Path(self.traces, os.listdir(self.traces)[0]).unlink()
        self.assertEqual(self.sum(self.textfile(), "kfit_processes_ended_total", end="unknown"), 1)

    def test_leading_keys_change_and_return(self):
        p = self.hold((key(64), 100, 0), (key(128), 50, 0), *[(key(256 + 4 * i), 1, 0) for i in range(8)])
        self.assertEqual(self.sum(self.textfile("--keys", 1), "kfit_key_calls_total", key=key(64)), 100)
        self.tell(p, "+1 100 100")
        m = self.textfile("--keys", 1)
        self.assertEqual(self.sum(m, "kfit_key_calls_total", key=key(128), outcome="hit"), 100)
        self.assertEqual({dict(at)["key"] for n, at in m if n == "kfit_key_calls_total"}, {key(128)})
        self.tell(p, "+0 100 100")
        self.assertEqual(self.sum(self.textfile("--keys", 1), "kfit_key_calls_total", key=key(64)), 200)
        for i in range(6):  # more leaders than are kept count of: the least gives way
            self.tell(p, f"+{i + 2} {1000 * (i + 1)} 0")
            m = self.textfile("--keys", 1)
            self.assertEqual(self.sum(m, "kfit_key_calls_total", key=key(256 + 4 * i)), 1000 * (i + 1) + 1)
        state = json.loads((self.dir / "kfit.prom.state").read_text())
        self.assertEqual(len(state["keys"]), 4)
        self.end(p)

    def test_counts_beyond_a_double_and_beyond_all(self):
        self.trace((key(64), 2**53 + 1, 0), label="big")
        self.textfile()
        state = json.loads((self.dir / "kfit.prom.state").read_text())
        self.assertEqual(state["deployments"][0]["count"].split()[2], str(2**53 + 1))
        self.trace((key(64), 2**64 - 1, 0), label="big")
        self.textfile()
        self.assertIn(f" {2**64 - 1}\n", self.text)  # stays at the end, does not wrap

    def test_a_state_that_cannot_be_read_is_refused_and_left(self):
        self.trace((key(64), 7, 0))
        self.textfile("--keys", 1)
        state, prom = self.dir / "kfit.prom.state", self.dir / "kfit.prom"
        good, shown = json.loads(state.read_text()), prom.read_bytes()
        damages = ["", "{", "[]", json.dumps(dict(good, kfit_metrics_state=2)), json.dumps(dict(good, deployments=7))]
        for part, name, value in [("deployments", "count", "1 x"), ("deployments", "count", "1 " * 30), ("deployments", "label", "a\n"),
                                  ("deployments", "label", "x" * 64), ("deployments", "processes", None), ("traces", "id", "xyz"),
                                  ("traces", "deployment", 1), ("traces", "deployment", -1), ("traces", "deployment", "0"),
                                  ("traces", "seen_unix", -5), ("traces", "keys", [{"n": "1 2 3 4"}]), ("keys", "key", "gemm"),
                                  ("keys", "calls", "-1")]:
            bad = json.loads(json.dumps(good))
            bad[part][0][name] = value
            damages.append(json.dumps(bad))
        damages.append(json.dumps(dict(good, traces=2 * good["traces"])))  # not in order: would be found by chance
        for damaged in damages:
            state.write_text(damaged)
            _, err = self.kfit("metrics", "--textfile", prom, "--keys", 1, self.traces, rc=1)
            self.assertIn("kfit.prom.state: ", err, damaged)
            self.assertEqual((state.read_text(), prom.read_bytes()), (damaged, shown))
        state.write_text(json.dumps(good))
        self.textfile("--keys", 1)

    def test_two_do_not_share_a_state(self):
        self.trace((key(64), 7, 0))
        with Server(self, "--state", self.dir / "s", self.traces):
            _, err = self.kfit("metrics", "--state", self.dir / "s", self.traces, rc=1)
            self.assertIn("in use by another", err)
        self.kfit("metrics", "--state", self.dir / "s", self.traces)

    def test_a_full_disk(self):
        self.trace((key(64), 7, 0))
        rc, out, err = self.private(
            'T="$C.tmpfs"; mkdir "$T" && mount -t tmpfs -o size=64k,mode=700 kfit "$T" || exit 99\n'
            '"$K" metrics --textfile "$T/a.prom" "$1" || exit 3; cat "$T/a.prom" >"$C.before"\n'
            'dd if=/dev/zero of="$T/filler" bs=4k 2>/dev/null; '
            '"$K" metrics --textfile "$T/a.prom" "$1" && exit 4; cmp "$T/a.prom" "$C.before" || exit 5\n'
            'ls -A "$T"; rm "$T/filler"; "$K" metrics --textfile "$T/a.prom" "$1" || exit 6', self.traces)
        self.assertEqual((rc, set(out.split())), (0, {"a.prom", "a.prom.state", "a.prom.state.lock", "filler"}), err)
        self.assertIn("No space left on device", err)

    def test_what_cannot_be_read_is_counted(self):
        self.trace((key(64), 7, 0))
        (pathlib.Path(self.traces) / "bad.kft").write_bytes(b"x" * 9000)
        m = self.metrics(self.traces, self.dir / "missing", rc=1)
        self.assertEqual(self.sum(m, "kfit_traces", state="unreadable"), 2)
        self.assertEqual(self.sum(m, "kfit_calls_total"), 7)
        self.assertIn("bad.kft", self.said)
        self.assertIn("missing: No such file", self.said)

    def test_usage(self):
        for args, words in [(["--textfile", "x"], ".prom"), (["--textfile", "x.prom", "--listen", "0"], "exclude"),
                            (["--keys", "101"], "at most 100"), (["--deadline", "0"], "--deadline")]:
            self.assertIn(words, self.kfit("metrics", *args, rc=2)[1])


class Server:
    """kfit metrics --listen on a free port."""

    def __init__(self, case, *args, listen="0"):
        self.case, self.args, self.listen, self.killed = case, args, listen, False

    def __enter__(self):
        self.p = self.case.start(KFIT, "metrics", "--cache", self.case.cache, "--listen", self.listen, *self.args)
        line = self.p.stderr.readline()
        if "built without" in line or "cannot be opened" in line:
            self.p.communicate(timeout=60)
            self.case.skipTest(line.strip())
        m = re.fullmatch(r"kfit: serving (http://(.*):(\d+)/metrics)\n", line)
        self.case.assertTrue(m, line + (self.p.communicate(timeout=60)[1] if self.p.poll() is not None else ""))
        self.url, self.host, self.port = m[1], m[2], int(m[3])
        return self

    def __exit__(self, kind, *_):
        if self.p.poll() is None:
            self.p.send_signal(signal.SIGTERM)
        out, self.err = self.p.communicate(timeout=60)
        if kind is None:
            self.case.assertEqual((self.p.returncode, out), (-signal.SIGKILL if self.killed else 0, ""), self.err)

    def kill(self):
        self.p.kill()
        self.killed = True

    def ask(self, method="GET", path="/metrics", body=None):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        c.request(method, path, body)
        r = c.getresponse()
        data = r.read().decode()
        c.close()
        return r, data

    def raw(self, data):
        """A connection that has said this; "" is all it ever says if it is to be slow."""
        s = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        s.sendall(data)
        return s


def answer_of(s):
    """All that comes until the other side is done."""
    got = b""
    try:
        while chunk := s.recv(65536):
            got += chunk
    except ConnectionResetError:
        pass
    s.close()
    return got


class Serving(Metrics):
    def test_one_page_and_nothing_else(self):
        self.trace((key(64), 7, 2))
        with Server(self, self.traces) as s:
            self.assertEqual(s.host, "127.0.0.1")
            r, text = s.ask()
            self.assertEqual(r.status, 200)
            self.assertEqual(r.getheader("Content-Type"), "text/plain; version=0.0.4; charset=utf-8")
            self.assertEqual(r.getheader("Connection"), "close")
            self.assertEqual({v for (n, _), v in parse(text).items() if n == "kfit_calls_total"}, {7})
            r, nothing = s.ask("HEAD")
            self.assertEqual((r.status, nothing), (200, ""))
            for method, path, status in [("GET", "/", 404), ("GET", "/metrics/", 404), ("GET", "/../metrics", 404),
                                         ("GET", "/metrics%00x", 404), ("POST", "/metrics", 405), ("PUT", "/metrics", 405),
                                         ("DELETE", "/", 405), ("OPTIONS", "*", 405)]:
                r, text = s.ask(method, path, b"x=1" if method in ("POST", "PUT") else None)
                self.assertEqual(r.status, status, (method, path))
                self.assertNotIn("kfit_", text)
            self.assertEqual(s.ask()[0].status, 200)

    def test_nonsense_is_refused(self):
        with Server(self, "--deadline", 1, self.traces_dir()) as s:
            for data in [b"nonsense\r\n\r\n", b"GET /metrics HTTP/9.9\r\n\r\n", b"\0" * 100 + b"\r\n\r\n", b"GET /metrics\r\n\r\n",
                         b"GET /metrics HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 5000 + b"\r\n",
                         b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
                         b"POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n" + b"z" * 1000]:
                c = socket.create_connection(("127.0.0.1", s.port), timeout=60)
                try:
                    c.sendall(data)
                    c.shutdown(socket.SHUT_WR)
                except OSError:  # refused before all of it was said
                    pass
                self.assertNotIn(b"kfit_", answer_of(c), data[:40])
            self.assertEqual(s.ask()[0].status, 200)

    def traces_dir(self):
        os.makedirs(self.traces, 0o700, exist_ok=True)
        return self.traces

    def test_the_slow_do_not_keep_the_others_out(self):
        with Server(self, "--deadline", 1, self.traces_dir()) as s:
            slow = [s.raw(b"GET /metrics HTTP/1.1\r\nHost: a\r\n") for _ in range(20)]
            self.assertEqual(s.ask()[0].status, 200)  # beside them
            dripping = slow[0]
            try:  # a byte now and then is no reason to go on
                for i in range(1200):
                    dripping.sendall(b"X")
                    if readable(dripping, 0.05):
                        break
                else:
                    self.fail("a dripping client was served for a minute")
            except (ConnectionResetError, BrokenPipeError):
                pass
            for c in slow[1:]:
                self.assertNotIn(b"kfit_", answer_of(c))
            dripping.close()
            full = [s.raw(b"G") for _ in range(40)]  # more than it takes at once: later ones wait their turn
            self.assertEqual(s.ask()[0].status, 200)
            for c in full:
                c.close()

    def test_who_asks_and_does_not_listen(self):
        self.trace(("@10000", 5, 3))
        with Server(self, "--keys", 100, self.traces) as s:
            clients = []
            for _ in range(10):
                c = socket.socket()
                c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
                c.connect(("127.0.0.1", s.port))
                c.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
                clients.append(c)
            self.assertEqual(s.ask()[0].status, 200)
            for c in clients:
                c.close()
            self.assertEqual(s.ask()[0].status, 200)

    def test_it_ends_when_told(self):
        self.trace((key(64), 7, 2))
        for sig in (signal.SIGTERM, signal.SIGINT):
            with Server(self, "--state", self.dir / "s", self.traces) as s:
                self.assertEqual(s.ask()[0].status, 200)
                hanging = s.raw(b"GET /me")
                s.p.send_signal(sig)
                s.p.wait(timeout=60)
                hanging.close()
                socket.create_server(("127.0.0.1", s.port)).close()  # its port is free again

    def test_counters_go_on_after_a_restart(self):
        """Also after SIGKILL: what was shown was saved before."""
        p = self.hold((key(64), 7, 2))
        args = "--state", self.dir / "s", self.traces
        with Server(self, *args) as s:
            s.ask()
        self.tell(p, "+0 3 0")
        self.end(p)
        with Server(self, *args) as s:
            s.ask()
            s.kill()
        for f in pathlib.Path(self.traces).iterdir():
            f.unlink()
        with Server(self, *args) as s:
            self.text = s.ask()[1]
            self.assertEqual(self.sum(parse(self.text), "kfit_calls_total"), 10)

    def test_where_it_cannot_listen(self):
        for listen, words in [("x", "no port"), ("", "no port"), ("70000", "no port"), ("-1", "no port"), ("localhost:1", "no address"),
                              ("[::1:1", "no address"), ("[zz]:1", "no address"), ("1.2.3:4", "no address"),
                              ("1" * 200 + ":1", "too long"), ("127.0.0.1:1x", "no port")]:
            p = self.start(KFIT, "metrics", "--listen=" + listen, self.traces_dir())
            out, err = p.communicate(timeout=60)
            if "built without" in err:
                self.skipTest(err)
            self.assertEqual(p.returncode, 1, listen)
            self.assertIn(words, err)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            _, err = self.kfit("metrics", "--listen", taken.getsockname()[1], self.traces, rc=1)
            self.assertRegex(err, "cannot listen on .*: Address already in use")

    def test_other_addresses(self):
        self.traces_dir()
        with Server(self, self.traces, listen=":0") as s:  # a port alone is the loopback's, colon or not
            self.assertEqual(s.host, "127.0.0.1")
        with Server(self, self.traces, listen="0.0.0.0:0") as s:
            self.assertEqual((s.host, s.ask()[0].status), ("0.0.0.0", 200))
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError as why:
            self.skipTest(f"no IPv6 loopback here ({why})")
        with Server(self, self.traces, listen="[::1]:0") as s:
            self.assertEqual(s.host, "[::1]")
            with urllib.request.urlopen(s.url, timeout=60) as r:
                self.assertEqual(r.status, 200)

    def test_without_the_library(self):
        with Server(self, self.traces_dir()) as s:
            maps = pathlib.Path(f"/proc/{s.p.pid}/maps").read_text()
        (library,) = {line.split()[-1] for line in maps.splitlines() if "libmicrohttpd" in line}
        rc, out, err = self.private('mount --bind /dev/null "$1" || exit 99; "$K" metrics --listen 0; echo $?; "$K" --version',
                                    library)
        self.assertEqual((rc, out[:7]), (0, "1\nkfit "), err)
        self.assertIn("libmicrohttpd.so.12 cannot be opened", err)
        self.assertIn("--textfile", err)


def readable(s, seconds):
    return bool(select.select([s], [], [], seconds)[0])


def tool(case, name):
    path = shutil.which(name)
    if not path:
        case.skipTest(f"no {name} here: apt-get install --no-install-recommends prometheus")
    return path


class Examples(Metrics):
    def all_names(self):
        self.hold((key(64), 10, 5), fixture="3,0,12,2,5,1,7", FIXTURE_GPU="0")
        return {name for name, _ in self.metrics("--keys", 1, self.traces)}

    def test_rules_and_dashboard_name_what_there_is(self):
        names = self.all_names()
        rules = (EXAMPLES / "kfit.rules.yml").read_text()
        recorded = set(re.findall(r"record: (\S+)", rules))
        for text in [rules, (EXAMPLES / "dashboard.json").read_text(), (HERE / "prometheus_rules.yml").read_text()]:
            used = set(re.findall(r"\bkfit_[a-z0-9_]+", text))
            self.assertGreater(len(used), 7)
            self.assertLessEqual(used, names)
            self.assertLessEqual(set(re.findall(r"\bkfit:[a-z0-9_:]+", text)), recorded)
        board = json.loads((EXAMPLES / "dashboard.json").read_text())
        self.assertEqual(names - set(re.findall(r"\bkfit_[a-z0-9_]+", json.dumps(board))),
                         {"kfit_keys_recorded", "kfit_replaced_ratio", "kfit_traces",
                          "kfit_scan_duration_seconds", "kfit_build_info"})
        readme = (EXAMPLES / "README.md").read_text()
        for name in names:
            self.assertTrue(name in readme or "_" + name.rsplit("_", 1)[1] + "`" in readme, name)

    def test_promtool(self):
        promtool = tool(self, "promtool")
        self.all_names()
        checks = [(["check", "metrics"], self.text), (["check", "rules", EXAMPLES / "kfit.rules.yml"], None),
                  (["check", "config", EXAMPLES / "prometheus.yml"], None), (["test", "rules", HERE / "prometheus_rules.yml"], None)]
        for args, text in checks:
            p = subprocess.run([promtool, *args], input=text, text=True, capture_output=True, timeout=120)
            self.assertEqual(p.returncode, 0, p.stdout + p.stderr)
            self.assertNotIn("error", p.stderr)


class Prometheus(Metrics):
    """A real one, that scrapes the real page."""

    def begin(self, server):
        prometheus = tool(self, "prometheus")
        shutil.copy(EXAMPLES / "kfit.rules.yml", self.dir)
        config = (EXAMPLES / "prometheus.yml").read_text()
        config = config.replace("15s", "1s").replace("127.0.0.1:9464", f"127.0.0.1:{server.port}")
        (self.dir / "prometheus.yml").write_text(config)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        log = open(self.dir / "prometheus.log", "w")
        p = subprocess.Popen([prometheus, f"--config.file={self.dir}/prometheus.yml", f"--web.listen-address=127.0.0.1:{self.port}",
                              f"--storage.tsdb.path={self.dir}/tsdb"], stdout=log, stderr=log, cwd=self.dir)
        log.close()

        def end():
            p.terminate()
            p.wait(timeout=60)
        self.addCleanup(end)
        self.prometheus = p

    def api(self, path, **args):
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?" + urllib.parse.urlencode(args)
        with urllib.request.urlopen(url, timeout=60) as r:
            answer = json.load(r)
        self.assertEqual(answer["status"], "success", answer)
        return answer["data"]

    def query(self, text):
        return {tuple(sorted(r["metric"].items())): float(r["value"][1]) for r in self.api("query", query=text)["result"]}

    def wait_for(self, text, want):
        """Until the query's only value is this; Prometheus looks once a second."""
        got = None
        for _ in range(600):
            self.assertIsNone(self.prometheus.poll(), (self.dir / "prometheus.log").read_text())
            try:
                got = list(self.query(text).values())
            except OSError as why:  # not up yet
                got = why
            if got == [want]:
                return
            time.sleep(0.1)
        self.fail(f"{text} is {got}, not {want}\n" + (self.dir / "prometheus.log").read_text())

    def test_its_own_view(self):
        tool(self, "prometheus")
        p = self.hold((key(64), 100, 60), label='prod "a\\b"', fixture="3,0,12,2,5,1,7")
        q = self.hold((key(64), 10, 0), label="other", fixture="2,0,1")
        with Server(self, "--keys", 3, self.traces) as s:
            self.begin(s)
            self.wait_for('up{job="kfit"}', 1)
            self.wait_for("sum(kfit_calls_total)", 110)
            (series,) = [dict(at) for at in self.query("kfit_hits_total > 0")]
            self.assertEqual(series["label"], 'prod "a\\b"')
            self.wait_for('kfit_misses_total{label="other",reason="no_record"}', 10)
            self.wait_for('kfit_processes{label="other",state="dispatching"}', 1)
            self.wait_for('max(kfit_generation{of="newest"})', 3)
            self.wait_for("count(kfit_key_calls_total)", 2)
            self.tell(p, "+0 11 11")
            self.wait_for("sum(kfit_calls_total)", 121)
            self.end(q)  # counters neither fall nor start anew when a process ends and its trace goes
            pathlib.Path(q.path).unlink()
            self.wait_for('kfit_processes_ended_total{label="other",end="unknown"} + '
                          'ignoring(end) kfit_processes_ended_total{label="other",end="clean"}', 1)
            self.wait_for("sum(kfit_calls_total)", 121)
            self.wait_for("sum(resets(kfit_calls_total[10m]))", 0)
            self.wait_for("sum(kfit_processes)", 1)
            groups = self.api("rules")["groups"]
            self.assertEqual({r["lastError"] for g in groups for r in g["rules"] if "lastError" in r} - {""}, set())
            self.assertGreaterEqual(sum(len(g["rules"]) for g in groups), 13)
            board = json.loads((EXAMPLES / "dashboard.json").read_text())
            targets = [t["expr"] for panel in board["panels"] for t in panel["targets"]]
            self.assertGreater(len(targets), 15)
            for expr in targets:
                asked = re.sub(r'"\$\w+"', '".*"', expr).replace("$__rate_interval", "1m")
                self.assertNotIn("$", asked)
                self.query(asked)


if __name__ == "__main__":
    main()
