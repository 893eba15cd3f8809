"""kfit metrics as Prometheus has it: the examples against what there is, promtool, and a real one that scrapes the page. Arguments:
see cli_helpers.py."""
import json
import pathlib
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request

from cli_helpers import key, main
from metrics_helpers import Metrics, Server

HERE = pathlib.Path(__file__).parent
EXAMPLES = HERE.parent / "integrations/prometheus"


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
