"""What the tests of kfit metrics share: its lines read as Prometheus would, and a server of them. Arguments: see cli_helpers.py."""
import http.client
import re
import signal
import socket

from cli_helpers import KFIT, Held

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
