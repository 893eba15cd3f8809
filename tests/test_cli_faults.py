"""kfit where the machine is against it: full disks, read-only mounts, files of others. Arguments: see cli_helpers.py."""
import json
import os
import pathlib
import shutil

from cli_helpers import FIXTURE, KFIT, Case, key, main


class Faults(Case):
    """A cache with two winners staged and none published."""

    def setUp(self):
        super().setUp()
        for n in (64, 128):
            self.fixture("stage", self.cache, key(n), 2.5)

    def staged(self):
        self.c("cache verify")
        return {r["key"] for r in json.loads(self.c("cache ls", "--staged", "--json")[0])}

    def as_nobody(self, *args, rc=1):
        if os.geteuid():
            self.skipTest("needs root to be another user")
        shutil.copy(KFIT, self.dir / "kfit")  # the build tree may not be nobody's to read
        self.dir.chmod(0o755)
        p = self.start(self.dir / "kfit", *args, user=65534, group=65534, extra_groups=[])
        out, err = p.communicate(timeout=60)
        self.assertEqual(p.returncode, rc, out + err)
        return out, err

    def test_read_only_mount(self):
        mount = 'mount --bind "$C" "$C" && mount -o remount,bind,ro "$C" || exit 99; '
        for command in ["review", "cache ls --staged", "cache verify"]:
            rc, out, err = self.private(mount + f'exec "$K" {command} --cache "$C"')
            self.assertEqual(rc, 0, err)
        for command in ["approve --all", 'off "$C"', "tune --key " + key(64)]:
            rc, out, err = self.private(mount + f'exec "$K" {command} --cache "$C"')
            self.assertEqual(rc, 1, out + err)
            self.assertIn("Read-only file system", err)
        self.assertEqual(self.staged(), {key(64), key(128)})

    def test_full_disk(self):
        rc, out, err = self.private(
            'T="$C.tmpfs"; mkdir "$T" && mount -t tmpfs -o size=4m,mode=700 kfit "$T" || exit 99; cp -a "$C/." "$T"\n'
            'dd if=/dev/zero of="$T/filler" bs=4k 2>/dev/null; '
            '"$K" approve --all --cache "$T" && exit 3; "$K" off --cache "$T" "$T" && exit 4; test -e "$T/current" && exit 5\n'
            'rm "$T/filler"; "$K" cache verify --cache "$T" && "$K" approve --all --cache "$T" && '
            '"$K" cache verify --cache "$T" && "$K" cache ls --json --cache "$T"')
        self.assertEqual(rc, 0, f"{out}\n{err}")
        self.assertIn("No space left on device", err)
        published = json.loads(out[out.index("["):])
        self.assertEqual({r["key"] for r in published}, {key(64), key(128)})

    def test_full_disk_for_traces(self):
        path = self.trace((key(64), 100, 60))
        rc, out, err = self.private(
            'T="$C.tmpfs"; mkdir "$T" && mount -t tmpfs -o size=4k,mode=700 kfit "$T" || exit 99; '
            '"$K" trace merge -o "$T/all.kft" "$1" && exit 3; ls -A "$T"', path)
        self.assertEqual((rc, out), (0, ""), err)  # nothing half-written
        self.assertIn("No space left on device", err)

    def test_files_of_others(self):
        path = pathlib.Path(self.trace((key(64), 100, 60)))
        for d in [self.dir / "cache", path.parent]:
            d.chmod(0o755)
        _, err = self.as_nobody("review", "--cache", self.cache)
        self.assertIn("store: ", err)
        _, err = self.as_nobody("trace", "ls", path)
        self.assertRegex(err, r"\.kft.*Permission denied")
        # one that all may write is no more and no less trusted than any other: it is data
        path.chmod(0o666)
        out, _ = self.as_nobody("trace", "ls", path, rc=0)
        self.assertIn(str(path), out)
        self.assertEqual(self.staged(), {key(64), key(128)})

    def test_two_pid_namespaces(self):
        """Two kfits that are both process 1 stage into one store: one after the other, or with a word about it."""
        command = ["unshare", "-rpf", "--kill-child", FIXTURE, "stage", self.cache]
        ps = [self.start(*command, key(n), "2.5") for n in (256, 512)]
        said = [p.communicate(timeout=60)[1] for p in ps]
        if any("unshare:" in s for s in said):
            self.skipTest("no PID namespaces here: " + said[0])
        done = {key(n) for n, p in zip((256, 512), ps) if p.returncode == 0}
        self.assertTrue(done, said)
        self.assertTrue(all("outside this PID namespace" in s for p, s in zip(ps, said) if p.returncode), said)
        self.assertEqual(self.staged(), {key(64), key(128)} | done)


if __name__ == "__main__":
    main()
