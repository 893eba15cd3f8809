"""What integrations/operations/ tells operators, done. Arguments: see cli_helpers.py."""
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

from cli_helpers import KFIT, SANITIZER, Case, Staged, key, main

SOURCE = pathlib.Path(__file__).resolve().parent.parent
OPERATIONS = SOURCE / "integrations/operations"
SHIM = (pathlib.Path(KFIT).parent / "../preload/libkfit_preload.so").resolve()
PYTHON = "/usr/bin/python3"
NO_COMMANDS = ["kfit generation signature 1", "kfit generation file 1 M D"]  # what signatures and exports begin with
RUNBOOK = (OPERATIONS / "runbook.md").read_text()

# What runs under the shim: products with a key that has a kernel, and with one that nearly has.
SERVER = f"""#!{PYTHON}
import sys
import numpy
pairs = [(numpy.ones((4, 64), "f"), numpy.ones((64, n), "f")) for n in (64, 96)]
def serve():
    for x, w in pairs:
        for _ in range(10):
            x @ w
if len(sys.argv) > 1:
    for _ in range(int(sys.argv[1])):
        serve()
else:
    serve()
    print("ready", flush=True)
    for line in sys.stdin:
        serve()
        print("served", flush=True)
"""


def sections():
    """(heading, [(language, text)...]) of the runbook, in its order."""
    for part in re.split(r"(?m)^## ", RUNBOOK)[1:]:
        heading, _, body = part.partition("\n")
        yield heading, re.findall(r"(?ms)^```(\w+)\n(.*?)^```$", body)


class Documents(Case):
    def setUp(self):
        super().setUp()
        self.tables = json.loads(self.kfit("--describe")[0])
        self.groups = {c["name"] for c in self.tables["commands"] if c["group"]}
        self.leaves = {c["name"] for c in self.tables["commands"] if not c["group"]}
        self.options = {}

    def options_of(self, command):
        if command not in self.options:
            usage = json.loads(self.kfit(*command.split(), "--describe")[0])
            self.options[command] = {"--" + o["name"] for o in usage["options"]} | \
                {"-" + o["letter"] for o in usage["options"] if o["letter"]} | {"--help", "--usage"}
        return self.options[command]

    def check(self, line, where):
        """A command line that begins with kfit: the command is there, and so are its options."""
        try:
            words = shlex.split(line, comments=True)[1:]
        except ValueError:  # a quotation mark of the prose around it
            words = line.split()[1:]
        if not words or not re.fullmatch(r"[a-z]+", words[0]) or line in NO_COMMANDS:
            return False
        command = words[0]
        if command in self.groups:
            if len(words) < 2 or not re.fullmatch(r"[a-z]+", words[1]):
                return True
            command = " ".join(words[:2])
        self.assertIn(command, self.leaves | self.groups, f"{where}: {line}")
        for w in words:
            if w in ["--", "|", ">", "&&", ";"] or w.endswith(";"):
                break
            if re.match(r"--?[a-z]", w):
                self.assertIn(w.split("=")[0], self.options_of(command), f"{where}: {line}")
        return True

    def test_commands_in_the_documents_exist(self):
        seen = 0
        for path in SOURCE.rglob("*.md"):
            if any(p.startswith("build") for p in path.relative_to(SOURCE).parts):
                continue
            text = path.read_text()
            blocks = re.findall(r"(?ms)^```\w*\n(.*?)^```$", text) + re.findall(r"(?m)^ {4,}\S.*$", text)
            spans = re.findall(r"(?<!`)`(kfit [^`]+)`", re.sub(r"\n *", " ", text))
            for span in spans + [line for b in blocks for line in re.findall(r"(?m)^ *(?:[A-Z_]+=\S+ )*(kfit .*)$", b)]:
                for line in re.split(r"&& |; ", span):
                    seen += line.startswith("kfit ") and self.check(line, path.relative_to(SOURCE))
        self.assertGreater(seen, 60)

    def test_commands_in_the_examples_exist(self):
        seen = 0
        for path in OPERATIONS.iterdir():
            if path.suffix == ".md":
                continue
            text = re.sub(r'"?, "', " ", path.read_text()).replace('["kfit', "kfit")  # ["kfit", "status"]
            for line in re.findall(r"(?:^|[ /])(kfit (?:run|cache|metrics|status|off)\b[^\"\]`\n]*)", text):
                seen += self.check(line, path.name)
        self.assertGreater(seen, 3)

    def test_variables_are_those_of_the_table(self):
        table = {v["name"] for v in self.tables["variables"]}
        for path in OPERATIONS.iterdir():
            for name in re.findall(r"\bKFIT_[A-Z_]*[A-Z]\b", path.read_text()):
                self.assertIn(name, table, path.name)

    def test_every_reason_is_explained(self):
        header = (SOURCE / "runtime/include/kfit/reason.h").read_text()
        reasons = set(re.findall(r'^    X\([A-Z_]+, "(\w+)"', header, re.M)) - {"none"}
        rows = re.findall(r"(?m)^\| (`[\w`, ]+`) \|", RUNBOOK)
        self.assertEqual({r for row in rows for r in re.findall(r"`(\w+)`", row)}, reasons)

    def test_links_lead_somewhere(self):
        for path in SOURCE.rglob("*.md"):
            if any(p.startswith("build") for p in path.relative_to(SOURCE).parts):
                continue
            for link in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
                self.assertTrue((path.parent / link).exists(), f"{path}: {link}")

    def test_what_is_not_run_has_no_command_of_ours(self):
        for heading, blocks in sections():
            for language, text in blocks:
                self.assertIn(language, ["sh", "console"], heading)
                if language == "console":
                    self.assertNotRegex(text, r"(?m)^\s*kfit ", heading)


class Served(Staged):
    """Two generations, and a server with the shim and the real library."""

    def setUp(self):
        if SANITIZER != "none":
            self.skipTest("a shim with a sanitizer cannot be preloaded")
        if os.environ.get("KFIT_TEST_ALONE") != "1":
            self.skipTest("no private PID namespace here: kfit off would reach the machine's other processes")
        if not os.access(PYTHON, os.X_OK) or subprocess.run([PYTHON, "-c", "import numpy"], capture_output=True).returncode:
            self.skipTest(f"{PYTHON} has no numpy")
        super().setUp()
        self.c("approve", key(64))
        self.c("approve", "--all")
        self.server = self.dir / "server"
        self.server.write_text(SERVER)
        self.server.chmod(0o755)
        self.env.update(OPENBLAS_NUM_THREADS="1", KFIT_CACHE=self.cache, SERVER=str(self.server), KEY=key(64), NEAR_KEY=key(96),
                        TRACES=str(self.dir / "runtime/kfit"), PATH=f"{pathlib.Path(KFIT).parent}:{os.environ['PATH']}")

    def serve(self, **env):
        p = subprocess.Popen([self.server], env={**self.env, **env}, cwd=self.dir, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(p.communicate)
        self.assertEqual(p.stdout.readline(), "ready\n")
        return p

    def more(self, p):
        p.stdin.write("\n")
        p.stdin.flush()
        self.assertEqual(p.stdout.readline(), "served\n")

    def process(self, p, *where):
        (row,) = [r for r in json.loads(self.kfit("status", "--json", *where)[0])["processes"] if r["pid"] == p.pid]
        return row


class Runbook(Served):
    """A test for each section that has commands; what they should bring about is in after_SECTION."""

    def setUp(self):
        super().setUp()
        self.p = self.again(KFIT_LABEL="web")
        self.assertEqual(self.process(self.p)["hits"], 10)

    def run_section(self, heading, blocks):
        before = getattr(self, "before_" + slug(heading), lambda: None)
        after = getattr(self, "after_" + slug(heading))
        before()
        out = ""
        for script in blocks:
            p = subprocess.run(["sh", "-eu", "-c", script], env=self.env, cwd=self.dir, capture_output=True, text=True, timeout=100,
                               stdin=subprocess.DEVNULL)
            self.assertEqual(p.returncode, self.status(heading), f"{heading}: {script}\n{p.stdout}\n{p.stderr}")
            out += p.stdout + p.stderr
        after(out)

    @staticmethod
    def status(heading):
        return 1 if heading == "The cache is damaged" else 0

    def again(self, **env):
        return self.serve(LD_PRELOAD=str(SHIM), KFIT_MODE="both", **env)

    def hits_grow(self):
        before = self.process(self.p)["hits"]
        self.more(self.p)
        return self.process(self.p)["hits"] - before

    def after_turn_it_off_now(self, out):
        self.assertRegex(out, rf"(?m)^{self.p.pid} ")
        self.assertIn("latency up since 14:00", out)
        self.assertEqual(self.hits_grow(), 0)
        (self.dir / "cache/off").write_text("")  # as touch would leave it
        self.assertEqual(self.process(self.again())["hits"], 0)

    def before_turn_it_on_again(self):
        self.kfit("off")
        self.assertEqual(self.hits_grow(), 0)

    def after_turn_it_on_again(self, out):
        self.assertEqual(self.hits_grow(), 10)
        self.assertFalse((self.dir / "cache/off").exists())

    def after_roll_back(self, out):
        self.assertEqual((self.generation(), set(self.records())), ("3", {key(64)}))
        self.assertIn(key(128), out)  # what generation 2 has and 1 has not
        self.assertEqual(self.process(self.p)["generation"], 2)  # until it is restarted
        self.assertEqual(self.process(self.again())["generation"], 3)

    def after_one_kernel_is_to_blame(self, out):
        self.assertIn("wrong sums on host 12", out)
        self.assertEqual((self.generation(), set(self.records())), ("3", {key(128), key(256)}))
        self.assertEqual(self.process(self.again())["hits"], 0)
        self.c("approve", "--all")
        self.assertIn(key(64), self.records())  # the ban was lifted

    def before_a_crash_loop(self):
        for _ in range(2):
            self.p.kill()
            self.p.wait(timeout=60)
            self.p = self.again(KFIT_LABEL="web")
        self.assertEqual(self.hits_grow(), 0)

    def after_a_crash_loop(self, out):
        self.assertIn("held back", out)
        self.assertRegex(out, r"(?m)^warn state .*generation 2")
        self.assertEqual(self.process(self.again(KFIT_LABEL="web"))["hits"], 10)

    def after_no_gain_why(self, out):
        self.assertIn(f"{self.p.pid}", out)
        self.assertRegex(out, r"\d+ % was replaced")
        self.assertIn("no_record", out)
        self.assertIn(key(64), out)
        self.assertIn("KFIT_CACHE", out)

    def after_near_misses(self, out):
        self.assertRegex(out, r"only in n|differs.*\bn\b")
        (row,) = json.loads(self.kfit("trace", "ls", "--json", "traces")[0])
        self.assertEqual(row["calls"], 60)

    def after_after_an_upgrade(self, out):
        self.assertRegex(out, "stale|Fixture 1")
        self.assertIn(key(128), out)
        self.assertEqual(self.generation(), "2")

    def after_the_disk_is_full(self, out):
        self.assertIn("MiB free", out)
        self.assertEqual({k["key"] for k in json.loads((self.dir / "all.json").read_text())["keys"]}, {key(64), key(96)})

    def before_a_killed_kfit_run(self):
        run = subprocess.Popen([KFIT, "run", "--", self.server], env=self.env, cwd=self.dir, text=True, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE)
        self.assertEqual(run.stdout.readline(), "ready\n")
        run.kill()
        run.communicate(timeout=60)

    def after_a_killed_kfit_run(self, out):
        self.assertRegex(out, r"(?m)^(warn|ok  ) left .*/runtime/kfit/run-")

    def before_the_cache_is_damaged(self):
        path = self.dir / "cache/generations/1.mdb"
        path.chmod(0o644)
        path.write_bytes(path.read_bytes()[:-1])

    def after_the_cache_is_damaged(self, out):
        self.assertIn("generation 1: ", out)

    def before_several_ranks(self):
        for rank in "01":
            self.again(KFIT_LABEL="job", RANK=rank, WORLD_SIZE="2", KFIT_GENERATION=str(1 + int(rank)))

    def after_several_ranks(self, out):
        self.assertRegex(out, "MIXED GENERATIONS in job .*rank 0 .* generation 1, rank 1 .* generation 2")
        self.assertIn(key(64), out)

    def after_signing_keys(self, out):
        trust = str(self.dir / "release.key.pub")
        self.assertEqual(self.process(self.again(KFIT_TRUST=trust))["hits"], 10)
        self.assertEqual(self.process(self.again(KFIT_TRUST=trust, KFIT_GENERATION="1"))["hits"], 0)  # not signed

    def after_another_machine(self, out):
        found = json.loads(self.kfit("review", "--json", "--cache", "elsewhere")[0])["changes"]
        self.assertEqual({c["key"] for c in found}, {key(64), key(128), key(256)})

    def after_what_to_watch(self, out):
        self.assertRegex(out, r'(?m)^kfit_hits_total\{.*label="web".*\} 10$')


def slug(heading):
    return re.sub(r"\W+", "_", heading.lower()).strip("_")


def section_test(heading, scripts):
    return lambda self: self.run_section(heading, scripts)


for heading_, blocks_ in sections():
    scripts_ = [text for language, text in blocks_ if language == "sh"]
    if scripts_:
        setattr(Runbook, "test_" + slug(heading_), section_test(heading_, scripts_))


class Pod(Served):
    """The pod's init container and its server, with the pod's directories in the case's."""

    def pod(self):
        try:
            import yaml
        except ImportError:
            self.skipTest("no python3-yaml here")
        return yaml.safe_load((OPERATIONS / "pod.yaml").read_text())

    def here(self, text):
        for there, d in [("/usr/lib/kfit", "image/lib"), ("/usr/share/server-kernels", "image"), ("/run/kfit", "run"), ("/kfit", "volume")]:
            text = re.sub(r"(?<![\w/.])" + there + r"(?=[/ \n]|$)", str(self.dir / d), text)
        return text

    def test_mounts_and_volumes_fit(self):
        spec = self.pod()["spec"]
        volumes = {v["name"] for v in spec["volumes"]}
        used = set()
        for c in spec["initContainers"] + spec["containers"]:
            mounts = [m["mountPath"] for m in c["volumeMounts"]]
            used |= {m["name"] for m in c["volumeMounts"]}
            self.assertLessEqual(used, volumes)
            for v in c.get("env", []):
                if v.get("value", "").startswith("/"):
                    self.assertTrue(any(v["value"].startswith(m + "/") for m in mounts), v)
        self.assertEqual(used, volumes)

    def test_the_init_container_and_the_server_run(self):
        spec = self.pod()["spec"]
        (self.dir / "image").mkdir()
        (self.dir / "volume").mkdir()
        (self.dir / "run").mkdir(mode=0o777)
        (self.dir / "image/lib").mkdir()
        shutil.copy(SHIM, self.dir / "image/lib")
        (trust,) = self.kfit("key", "new", "signer")[0].splitlines()
        self.c("cache sign", "2", "--sign", "signer")
        self.c("cache export", "current", self.dir / "image/generation.kfit")
        shutil.rmtree(self.cache)
        del self.env["KFIT_CACHE"]
        (init,) = spec["initContainers"]
        pod = {c["name"]: {v["name"]: self.here(v.get("value", "pod-1")) for v in c["env"]} for c in [init, *spec["containers"]]}

        def run_init(env):
            return subprocess.run([*init["command"], *map(self.here, init["args"])], env={**self.env, **env}, capture_output=True, text=True,
                                  timeout=100)

        p = run_init(pod["kfit-files"])  # with the example's key
        self.assertNotEqual(p.returncode, 0)
        self.assertIn("sign", p.stderr)
        for env in pod.values():
            if "KFIT_TRUST" in env:
                env["KFIT_TRUST"] = trust
        shutil.rmtree(self.dir / "volume/lib")
        p = run_init(pod["kfit-files"])
        self.assertEqual(p.returncode, 0, p.stderr)
        server = self.serve(**pod["server"])
        self.env.update(pod["kfit"])
        row = self.process(server)
        self.assertEqual((row["hits"], row["generation"], row["label"]), (10, 2, "pod-1"))
        self.kfit("off")  # as `kubectl exec` would
        self.more(server)
        self.assertEqual(self.process(server)["hits"], 10)


class Units(Case):
    def test_systemd_accepts_the_units(self):
        if not shutil.which("systemd-analyze"):
            self.skipTest("no systemd-analyze here")
        units = sorted(p for p in OPERATIONS.iterdir() if p.suffix in [".service", ".timer", ".conf"])
        self.assertGreater(len(units), 1)
        for path in units:
            text = path.read_text().replace("/usr/bin/kfit", KFIT).replace("/usr/bin/server", "/bin/true")
            if path.suffix == ".conf":  # a drop-in of a unit that is there
                text = "[Service]\nExecStart=/bin/true\n" + text
            copy = self.dir / path.with_suffix(".service" if path.suffix == ".conf" else path.suffix).name
            copy.write_text(text)
        for path in units:
            copy = self.dir / path.with_suffix(".service" if path.suffix == ".conf" else path.suffix).name
            p = subprocess.run(["systemd-analyze", "--man=no", "verify", copy], env={**self.env, "SYSTEMD_UNIT_PATH": f"{self.dir}:"},
                               capture_output=True, text=True)
            said = [line for line in p.stderr.splitlines() if str(self.dir) in line or copy.name in line]
            self.assertEqual((p.returncode, said), (0, []), p.stderr)


ALONE = ["unshare", "-rmpf", "--mount-proc", "--kill-child", "sh", "-c", 'mount -t tmpfs -o mode=1777 kfit /dev/shm && exec "$@"', "sh"]

if __name__ == "__main__":
    # `kfit off`, as an operator types it, reaches every process of the machine: here there are none but our own
    if "KFIT_TEST_ALONE" not in os.environ:
        alone = not subprocess.run([*ALONE, "true"], capture_output=True).returncode
        os.environ["KFIT_TEST_ALONE"] = "1" if alone else "0"
        if alone:
            os.execvp(ALONE[0], [*ALONE, sys.executable, *sys.argv])
    main()
