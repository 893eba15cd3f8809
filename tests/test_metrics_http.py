"""kfit metrics --listen: one page over HTTP, whoever asks and however. Arguments: see cli_helpers.py."""
import os
import pathlib
import select
import signal
import socket
import urllib.request

from cli_helpers import KFIT, key, main
from metrics_helpers import Metrics, Server, parse


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


def readable(s, seconds):
    return bool(select.select([s], [], [], seconds)[0])


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


if __name__ == "__main__":
    main()
