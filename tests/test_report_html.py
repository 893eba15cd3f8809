"""kfit report's page, its first line and --ab. Arguments: see cli_helpers.py, and after them report_fixture.

What can be told from the file is told with html.parser and always runs; what a browser makes of it needs chromium.
KFIT_PICTURES=DIR keeps pictures of the page there, to be looked at.
"""
import base64
import hashlib
import json
import os
import pathlib
import re
import sys
import tempfile
import unittest
from html.parser import HTMLParser

REPORT_FIXTURE = os.path.abspath(sys.argv.pop(5))

import chromium  # noqa: E402
from cli_helpers import Case, Staged, key, main  # noqa: E402

VOID = {"meta", "br", "input", "rect", "line", "circle"}  # the last three close themselves
# What markup, script, template, terminal and text encoding could make of a text.
HOSTILE = [b"</script><script>document.title='owned'</script>", b"\"'><img src=x onerror=alert(1)>", b"<!--<script>", b"-->]]>",
           b"{{headline}}{{>js}}", b"\xe2\x80\xa8\xe2\x80\xa9", b"\xff\xfe\xc3(", b"\x01\x1b[31m\x7f\r\n\t", b"`${alert(1)}`\\u003c\\",
           b"&lt;b&gt;&#60;i", b"javascript:alert(1)", b"</style><svg onload=alert(1)>", b"</template></title></textarea>x",
           b"</script x", b"</script/x", b"<!--<script /"]


def ab(**changed):
    return {"version": 1, "command": ["python3", "serve.py"], "mode": "runs", "pairs": 7, "ratio": 1.25, "lo": 1.2, "hi": 1.3,
            "off_s": 10.5, "on_s": 8.4, "predicted": 1.3, "generation": 1, "spread": 0.01, **changed}


class Reader(HTMLParser):
    """A page that must be well formed. tags and attributes: what it is made of."""

    def __init__(self, data):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.attributes, self.raw, self.said = [], {}, {}, [], []
        self.ids, self.targets, self.policy = set(), set(), None
        self.feed(data.decode("ascii"))
        self.close()
        assert not self.open, self.open

    def handle_startendtag(self, tag, attributes):
        assert tag in VOID, tag
        self.handle_starttag(tag, attributes)

    def handle_starttag(self, tag, attributes):
        names = [name for name, _ in attributes]
        assert len(names) == len(set(names)), (tag, names)
        self.tags[tag] = self.tags.get(tag, 0) + 1
        for name, value in attributes:
            self.attributes.setdefault((tag, name), set()).add(value)
            if name == "id":
                assert value not in self.ids, value
                self.ids.add(value)
            if name in ("href", "aria-labelledby", "aria-describedby"):
                self.targets.add(value.removeprefix("#"))
        if ("http-equiv", "Content-Security-Policy") in attributes:
            self.policy = dict(attributes)["content"]
        if tag not in VOID:
            self.open.append(tag)
        if tag in ("script", "style"):
            self.raw.append([tag, dict(attributes).get("type"), ""])

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (tag, self.open)
        self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] in ("script", "style"):
            self.raw[-1][2] += data
        else:
            self.said.append(data)

    def handle_comment(self, data):
        raise AssertionError("a comment: " + data)

    def part(self, tag, kind=None):
        (found,) = [text for t, k, text in self.raw if (t, k) == (tag, kind)]
        return found

    def text(self):
        return re.sub(r"\s+", " ", " ".join(self.said))

    def data(self):
        return json.loads(self.part("script", "application/json"))


def shown(raw):
    """Bytes as the page spells them."""
    return "".join(chr(b) if 32 <= b < 127 else f"\\x{b:02x}" for b in raw)


class Paged(Case):
    def setUp(self):
        super().setUp()
        self.page = self.dir / "report.html"

    def many(self, count, texts=()):
        """Stages, publishes and records that many shapes; on tmpfs, where a store of thousands is made in a second."""
        where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        temp = tempfile.TemporaryDirectory(prefix="kfit-report-", dir=where)
        self.addCleanup(temp.cleanup)
        self.cache, self.traces = temp.name + "/cache", temp.name + "/traces"
        p = self.start(REPORT_FIXTURE, self.cache, self.traces, count, *map(os.fsdecode, texts))
        _, err = p.communicate(timeout=120)
        self.assertEqual(p.returncode, 0, err)
        self.c("approve", "--all")

    def says(self, page, *texts):
        for text in texts:
            self.assertTrue(text in page.text(), "not on the page: " + text)

    def report(self, *args):
        out, _ = self.c("report", "--html", self.page, *args, self.traces)
        return out.splitlines()[0], Reader(self.page.read_bytes())

    def json(self, *args):
        return json.loads(self.c("report", "--json", *args, self.traces)[0])


class File(Paged):
    """What the file itself shows."""

    def test_the_page_is_whole_and_closed(self):
        self.many(250)
        first, page = self.report()
        raw = self.page.read_bytes()
        self.assertTrue(raw.startswith(b"<!doctype html>\n<html lang=\"en\">"))
        # it loads nothing, sends nothing, and runs its own script only
        digests = {name: "'sha256-%s'" % base64.b64encode(hashlib.sha256(page.part(name).encode()).digest()).decode()
                   for name in ("script", "style")}
        self.assertEqual(page.policy, f"default-src 'none'; script-src {digests['script']}; style-src {digests['style']}; "
                                      "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'")
        names = {name for _, name in page.attributes}
        self.assertFalse({n for n in names if n.startswith("on") or n in ("src", "style", "action", "srcset", "data", "srcdoc")})
        self.assertTrue(all(v.startswith("#") for (_, n), values in page.attributes.items() if n in ("href", "xlink:href") for v in values))
        self.assertNotRegex(page.part("style"), r"url\(|@import")
        self.assertNotRegex(page.part("script"), r"innerHTML|outerHTML|insertAdjacent|document\.write|eval|fetch|Request|import\b")
        self.assertLessEqual(page.targets, page.ids)
        # what it shows
        self.assertTrue(first in page.text()[:600])
        for part in ("shapes", "latency", "misses", "near", "kept", "generations", "processes", "notes"):
            self.assertIn(part, page.ids)
        self.assertEqual(page.tags["tbody"] - raw.count(b"<tbody><tr><th scope=\"row\""), raw.count(b"<tbody>") - 201)
        self.assertEqual(raw.count(b"<tbody><tr><th scope=\"row\""), 201)  # 200 and the blank one
        self.assertEqual(raw.count(b"<circle class=\"before\""), 24)
        self.says(page, "The 200 shapes with the largest shares")

    def test_the_data_holds_every_key(self):
        self.many(250)
        _, page = self.report()
        data, report = page.data(), self.json()
        strings = data["strings"]
        self.assertEqual(len(data["rows"]), len(report["keys"]))
        for (pattern, numbers, *rest), k in zip(data["rows"], report["keys"]):
            left = iter(numbers)
            self.assertEqual((re.sub("#", lambda _: str(next(left)), strings[pattern]), *rest[:2]), (k["key"], k["calls"], k["hits"]))
            for figure, name in zip(rest[2:], ("share", "before_ns", "after_ns", "floor_ns", "ratio", "lo", "hi")):
                self.assertAlmostEqual(figure, k[name] or 0, delta=0.001 * figure, msg=name)
        # each in plain HTML as well, the largest first
        said = page.text()
        places = [said.find(k["key"] + " ") for k in report["keys"][:200]]
        self.assertNotIn(-1, places)
        self.assertEqual(len({k["key"] for k in report["keys"]}), 250)

    def test_receipts_are_shown(self):
        self.many(20)
        self.says(self.report()[1], "Origin seed:rowstream", "Candidate rowstream KB=8 MR=2 AL=1", "Proposed by kfit, seed", "Gates Gate Result",
                      "correct passed 4 0.", "Tuned with blas=Fixture 1;compiler=gcc 0;", "warm inner 30 1.100 [1.080, 1.130]",
                  "bitwise repeatable")
        # without the store, what the generation itself knows
        for path in pathlib.Path(self.cache, "store").iterdir():
            path.unlink()
        pathlib.Path(self.cache, "store").rmdir()
        page = self.report()[1]
        self.says(page, "Origin seed:rowstream", "Receipt not in this store")
        self.assertFalse("Worst Inputs At static" in page.text())

    def test_reasons_are_in_plain_words(self):
        self.many(250)
        said = self.report()[1].text()
        for words in (r"1 shape \([^)]+ of the time\): the candidate does not compile static:compile Which gemm/", r"no kernel for this key in the generation",
                      r"differs from a tuned key only in \w+: \d+, tuned \d+", r"Why the original the candidate does not compile \(static:compile\)"):
            self.assertTrue(re.search(words, said), words)

    def test_hostile_text_stays_text(self):
        self.many(40)
        _, plain = self.report()
        # the fields take the texts in turn, five of the trace's header first: so each text meets one of those
        for turn in range(0, len(HOSTILE), 4):
            texts = HOSTILE[turn:] + HOSTILE[:turn]
            with self.subTest(first=texts[0]):
                self.many(9, texts)
                _, page = self.report()
                self.assertRegex(self.page.read_bytes(), rb"^[\n -~]*$")
                self.assertLessEqual(set(page.tags), set(plain.tags))
                self.assertEqual([page.tags[t] for t in ("script", "style", "template", "title", "meta")], [2, 1, 2, 1, 5])
                self.assertLessEqual(set(page.attributes), set(plain.attributes))
                self.assertEqual(page.part("script"), plain.part("script"))
                self.assertNotRegex(page.part("script", "application/json"), "[<>&]")  # nothing that could end or open anything
                strings, said = page.data()["strings"], page.text()
                for text in texts:
                    self.assertTrue(shown(text)[:20].strip() in said, text)
                    self.assertTrue(any(shown(text)[:20] in s for s in strings), text)

    def test_ten_thousand_keys_fit(self):
        self.many(10000)
        _, page = self.report()
        self.assertEqual(len(page.data()["rows"]), 10000)
        self.assertLess(self.page.stat().st_size, 3_000_000)
        self.assertIn("left out to keep this page small", " ".join(page.data()["strings"]))

    def test_old_report_or_new_one(self):
        self.many(20)
        for path, why in [(self.dir, "Is a directory"), (self.dir / "none/report.html", "No such file or directory")]:
            out, err = self.c("report", "--html", path, self.traces, rc=1)
            self.assertIn(f"{path}", err)
            self.assertIn(why, err)
        rc, out, err = self.private(
            'T="$C.tmpfs"; mkdir "$T" && mount -t tmpfs -o size=8k,mode=700 kfit "$T" || exit 99; echo old >"$T/r.html"\n'
            '"$K" report --cache "$C" --html "$T/r.html" "$1" >&2 && exit 3; cat "$T/r.html"; ls -A "$T"', self.traces)
        self.assertEqual((rc, out), (0, "old\nr.html\n"), err)
        self.assertIn("No space left on device", err)


class Gain(Paged, Staged):
    """The first line, in text, JSON and page, and what it rests on."""

    def setUp(self):
        super().setUp()
        self.file = self.dir / "ab.json"

    def three(self, *args):
        """The first line, which all three must share, and the JSON."""
        first, page = self.report(*args)
        report = self.json(*args)
        self.assertEqual(report["headline"], first)
        self.says(page, first)
        return first, report, page

    def measured(self, **changed):
        self.file.write_text(json.dumps(ab(**changed)))
        return self.three("--ab", self.file)

    def test_estimated(self):
        self.trace((key(64), 600, 0), (key(128), 200, 0), (key(256), 200, 0))
        first, report, _ = self.three()
        self.assertEqual(first, "80 % of the recorded time in known ops is in calls kfit can replace; 0 % was replaced; "
                                "the program would gain at most 43 % [40, 45], estimated")
        # the formula of integrations/report/README.md, with the fixture's ratios of 2.5 and 1.5, each +- 0.125
        at, lo, hi = [0.6 * (1 - 1 / (2.5 + d)) + 0.2 * (1 - 1 / (1.5 + d)) for d in (0, -0.125, 0.125)]
        c, program = report["coverage"], report["program"]
        for got, wanted in [(c["gain"], at), (c["gain_lo"], lo), (c["gain_hi"], hi), (program["gain"], at), (program["lo"], lo), (program["hi"], hi)]:
            self.assertAlmostEqual(got, wanted, places=3)
        self.assertEqual((program["basis"], program["at_most"], program["realised"]), ("estimated", True, False))

    def test_what_ran_is_what_is_gained(self):
        self.c("approve", "--all")
        self.trace((key(64), 600, 300), (key(128), 200, 200), (key(256), 200, 0))
        first, report, page = self.three()
        at = 0.6 * (1 - 1 / 2.5) / 2 + 0.2 * (1 - 1 / 1.5)
        self.assertIn("80 % of the recorded time in known ops is in calls kfit can replace; 50 % was replaced; "
                      f"the program gains at most {100 * at:.0f} % [", first)
        self.assertAlmostEqual(report["program"]["gain"], at, places=3)
        self.says(page, "If every replaceable call were replaced, known ops would take 43 % [40, 45] less time")

    def test_no_gain(self):
        self.trace((key(256), 100, 0))
        first, report, page = self.three()
        self.assertTrue(first.endswith("; no gain"), first)
        self.assertIsNone(report["program"]["gain"])
        self.assertNotIn("measured", page.ids)

    def test_measured(self):
        self.c("approve", "--all")
        self.trace((key(64), 600, 600), (key(256), 200, 0))
        first, report, page = self.measured()
        self.assertTrue(first.endswith("; the program gains 20 % [17, 23], measured"), first)
        self.assertEqual((report["program"]["basis"], report["program"]["gain"]), ("measured", 0.2))
        self.assertEqual(report["ab"]["pairs"], 7)
        self.says(page, "Measured by kfit ab in 7 pairs of runs: without dispatch the program takes 1.250 [1.200, 1.300] times as long")
        self.says(page, "Command python3 serve.py")
        self.assertFalse("It ran generation" in page.text())
        self.assertTrue(self.measured(ratio=1.01, lo=0.99, hi=1.03)[0].endswith("; no gain: 1.0 % [-1.0, 2.9], measured"))
        self.assertTrue(self.measured(ratio=0.8, lo=0.75, hi=0.9)[0].endswith("; the program loses 25 % [11, 33], measured"))
        self.says(self.measured(generation=9)[2], "It ran generation 9, this report is about generation 1.")
        self.measured(off_s=None, on_s=None, predicted=None, generation=None, spread=None)
        self.says(self.measured(metrics=[{"regex": "tokens/s: ([0-9.]+)", "better": "higher"}, {"regex": "x"}])[2],
                  "with dispatch the program's own metric is 1.250 [1.200, 1.300] times as good", "Metric tokens/s: ([0-9.]+)")
        hostile = self.measured(metrics=[{"regex": "<b>"}], command=["</script><img src=x>", "\u2028\u0001"])[2]
        self.assertNotIn("img", hostile.tags)
        self.says(hostile, "Command </script><img src=x> \\xe2\\x80\\xa8\\x01")

    def test_a_bad_measurement_is_refused_by_name(self):
        self.trace((key(64), 600, 0))
        for text, words in [("", "no JSON object"), ("[1]", "no JSON object"), (json.dumps(ab(version=2)), "version 2; this kfit reads 1"),
                            (json.dumps(ab(mode="aa-runs")), "noise, not a gain"), (json.dumps(ab(pairs=5)), "5 pairs conclude nothing"),
                            (json.dumps(ab(pairs=0)), "pairs"), (json.dumps(ab(pairs=1.5)), "pairs"),
                            (json.dumps(ab(lo=1.3)), "lo <= ratio"), (json.dumps(ab(ratio=None)), "ratio"), (json.dumps(ab(lo=0)), "0 < lo"),
                            ('{"version":1,"mode":"runs","pairs":6,"ratio":1e999,"lo":1,"hi":1e999}', "ratio"),
                            (json.dumps(ab(command="serve.py")), "command"), (json.dumps(ab(command=[1])), "command"),
                            (json.dumps(ab())[:-9], "no JSON object"), (" " * (1 << 20) + json.dumps(ab()), "bytes")]:
            with self.subTest(words=words, text=text[-60:]):
                self.file.write_text(text)
                out, err = self.c("report", "--html", self.page, "--ab", self.file, self.traces, rc=1)
                self.assertEqual(out, "")
                self.assertIn("ab.json", err)
                self.assertIn(words, err)
                self.assertFalse(self.page.exists())
        self.assertIn("none.json", self.c("report", "--ab", self.dir / "none.json", self.traces, rc=1)[1])

    def test_generations_are_compared(self):
        self.trace((key(64), 600, 600), (key(256), 200, 0))
        self.c("approve", "--all")
        _, report, page = self.three()
        self.assertNotIn("changes", report)
        self.assertFalse("Against generation" in page.text())
        self.stage(64, 3.5)
        self.stage(512, 2.0)
        self.c("approve", "--all", "--note", "the second")
        out, _ = self.c("report", self.traces)
        self.assertIn("against generation 1: 1 added, 0 removed, 1 changed, 2 as before", out)
        _, report, page = self.three()
        self.assertEqual(report["changes"], {"previous": 1, "added": 1, "removed": 0, "changed": 1, "same": 2})
        self.says(page, "changed 2.50 [2.38, 2.62] 3.50 [3.38, 3.62] seed:fixture " + key(64), "the second",
                  "added - 2.00 [1.88, 2.12] seed:fixture " + key(512))
        self.c("rollback")
        self.assertEqual(self.json("--against", "2")["changes"], {"previous": 2, "added": 0, "removed": 1, "changed": 1, "same": 2})
        _, err = self.c("report", "--against", "7", self.traces, rc=1)
        self.assertIn("the generation to compare with", err)

    def test_results_without_a_trace(self):
        rc, out, err = self.private('mount -t tmpfs -o mode=1777 kfit /dev/shm || exit 99; exec "$K" report --cache "$C" --html "$1"', self.page)
        self.assertEqual(rc, 0, err)
        page = Reader(self.page.read_bytes())
        self.assertEqual(out.splitlines()[0], "no call of these keys was recorded: results of 3 keys, without shares")
        self.says(page, out.splitlines()[0])
        self.assertIn("latency", page.ids)
        self.assertNotIn("processes", page.ids)


@unittest.skipUnless(chromium.find(), "no chromium: install Debian's package, or name one with KFIT_CHROMIUM")
class InChromium(Paged):
    """What a reader meets."""

    @classmethod
    def setUpClass(cls):
        cls.browser = chromium.Browser()
        cls.addClassCleanup(cls.browser.close)

    def tab(self, **how):
        tab = self.browser.page(**how)
        self.addCleanup(tab.close)
        return tab

    def clean(self, tab):
        """Nothing was complained about, and nothing but the page was asked for."""
        self.assertEqual(tab.complaints(), [])
        self.assertEqual(tab.requests(), [self.page.resolve().as_uri()])
        self.assertEqual(tab.happened("Page.javascriptDialogOpening"), [])

    def shapes(self, tab):
        return tab.js("[...document.querySelectorAll('#table .f-key')].map(e => e.textContent)")

    def test_sorting_and_filtering_by_keyboard(self):
        self.many(250)
        self.report()
        keys = [k["key"] for k in self.json()["keys"]]
        calls = {k["key"]: k["calls"] for k in self.json()["keys"]}
        tab = self.tab()
        tab.open(self.page)
        self.assertEqual(self.shapes(tab), keys[:100])
        self.assertEqual(tab.js("document.getElementById('status').textContent"), "250 shapes")

        def walk_to(test):
            for _ in range(60):
                tab.press("Tab")
                if tab.js(f"(e => {test})(document.activeElement)"):
                    return
            self.fail(f"{test}: not reached with the Tab key")

        tab.press("Tab")
        self.assertEqual(tab.js("document.activeElement.textContent"), "Skip to the shapes")
        tab.press("Enter")
        walk_to("e.id === 'filter'")
        tab.type("N=64 K=4096")
        wanted = [k for k in keys if "n=64" in k and "k=4096" in k]
        self.assertGreater(len(wanted), 2)
        self.assertEqual(self.shapes(tab), wanted)
        self.assertEqual(tab.js("document.getElementById('status').textContent"), f"{len(wanted)} of 250 shapes")
        tab.js("document.getElementById('filter').select()")
        tab.type("zebra")
        self.assertEqual(self.shapes(tab), [])
        self.assertIn("nothing matches", tab.js("document.getElementById('status').textContent"))
        tab.js("document.getElementById('filter').select()")
        tab.type("m=1,")
        ones = [k for k in keys if "m=1," in k]
        self.assertEqual(self.shapes(tab), ones)
        # by calls, the largest first, then the smallest first
        walk_to("e.textContent === 'Calls'")
        tab.press("Enter")
        self.assertEqual([calls[k] for k in self.shapes(tab)], sorted((calls[k] for k in ones), reverse=True))
        self.assertEqual(tab.js("document.querySelector('[aria-sort]').getAttribute('aria-sort')"), "descending")
        tab.press("Space")
        self.assertEqual([calls[k] for k in self.shapes(tab)], sorted(calls[k] for k in ones))
        self.assertEqual(tab.js("[...document.querySelectorAll('[aria-sort]')].map(e => e.textContent + e.getAttribute('aria-sort'))"),
                         ["Callsascending"])
        self.assertEqual(tab.js("document.activeElement.textContent"), "Calls")
        # a shape opens into its receipt
        walk_to("e.tagName === 'SUMMARY'")
        tab.press("Enter")
        self.assertTrue(tab.js("document.activeElement.parentElement.open"))
        # numbers sort as numbers: m=2 before m=16
        tab.js("const f = document.getElementById('filter'); f.value = 'n=64,'; f.dispatchEvent(new Event('input'))")
        tab.js("document.querySelector('th[data-sort=key] button').click()")
        self.assertEqual([re.search(r"m=(\d+)", k)[1] for k in self.shapes(tab)], ["1", "2", "4", "8", "16"])
        self.clean(tab)

    def test_pages_and_verdicts(self):
        self.many(250)
        self.report()
        keys = self.json()["keys"]
        tab = self.tab()
        tab.open(self.page)
        tab.js("document.getElementById('next').click()")
        self.assertEqual(self.shapes(tab), [k["key"] for k in keys[100:200]])
        tab.js("document.getElementById('next').click()")
        self.assertEqual(self.shapes(tab), [k["key"] for k in keys[200:]])
        self.assertEqual(tab.js("document.getElementById('page').textContent"), "201 to 250, page 3 of 3")
        self.assertTrue(tab.js("document.getElementById('next').disabled"))
        for verdict in ("promoted", "kept", "untuned"):
            tab.js(f"{{ const v = document.getElementById('verdict'); v.value = '{verdict}'; v.dispatchEvent(new Event('change')) }}")
            wanted = [k["key"] for k in keys if (k["verdict"] or "untuned") == verdict]
            self.assertTrue(wanted)
            self.assertEqual(self.shapes(tab), wanted[:100])
        self.clean(tab)

    def test_the_script_shows_what_the_plain_page_shows(self):
        self.many(60)
        self.report()
        seen = []
        for script in (False, True):
            tab = self.tab(script=script)
            tab.open(self.page)
            root = tab.call("DOM.getDocument")["root"]["nodeId"]
            table = tab.call("DOM.querySelector", nodeId=root, selector="#table")["nodeId"]
            if script:  # details are filled when they are opened
                tab.js("document.querySelectorAll('#table details').forEach(e => { e.open = true })")
                tab.js("new Promise(done => setTimeout(done))")
            html = tab.call("DOM.getOuterHTML", nodeId=table)["outerHTML"]
            html = re.sub(r"</?button[^>]*>| open=\"\"| aria-sort=\"\w+\"|\n", "", html)
            seen.append(html.split("<tbody>"))
            self.clean(tab)
        for plain, scripted in zip(*seen, strict=True):
            self.assertEqual(plain, scripted)

    def test_without_javascript(self):
        self.many(250)
        self.report()
        tab = self.tab(script=False)
        tab.open(self.page)
        roles = tab.roles()
        self.assertIn(("StaticText", "The 200 shapes with the largest shares of the time. All of them, sorting and filtering need JavaScript."), roles)
        self.assertFalse({"searchbox", "button", "combobox"} & {role for role, _ in roles})
        self.assertEqual(sum(role == "rowheader" for role, _ in roles), 200)
        self.clean(tab)

    def test_hostile_text_stays_text(self):
        for turn in (0, 5, 9):
            self.many(30, HOSTILE[turn:] + HOSTILE[:turn])
            self.report()
            tab = self.tab()
            tab.open(self.page)
            tab.js("document.querySelectorAll('details').forEach(e => { e.open = true })")
            tab.js("new Promise(done => setTimeout(done))")
            self.assertEqual(tab.js("[document.scripts.length, document.images.length, document.querySelectorAll('[onload], [onerror]').length]"),
                             [2, 0, 0])
            self.assertTrue(tab.js("document.title").startswith("kfit report: "))
            said = tab.js("document.body.textContent")
            for text in HOSTILE:
                self.assertTrue(shown(text)[:20] in said, text)
            self.clean(tab)

    def test_a_screen_reader_is_told(self):
        self.many(30)
        first, _ = self.report()
        for width, height in ((1280, 800), (390, 844)):
            tab = self.tab(width=width, height=height)
            tab.open(self.page)
            roles = tab.roles()
            self.assertIn(("heading", first), roles)
            self.assertIn(("navigation", "Sections"), roles)
            self.assertIn(("searchbox", "Filter"), roles)
            self.assertIn(("combobox", "Verdict"), roles)
            self.assertIn(("status", ""), roles)
            self.assertEqual(sum(role == "rowheader" for role, _ in roles), 30, width)
            self.assertEqual(sum(role == "table" for role, _ in roles), 3 + 1, width)  # shapes, misses, near misses, generations
            nameless = [role for role, name in roles if role in ("link", "button", "searchbox", "combobox", "heading", "DisclosureTriangle") and not name]
            self.assertEqual(nameless, [])
            # nothing sticks out to the side
            self.assertEqual(tab.js("document.documentElement.scrollWidth"), width)
            self.clean(tab)

    def test_text_can_be_read(self):
        """Contrast of text against the page, as WCAG 2 AA wants it, in light and in dark."""
        self.many(30)
        self.report()
        contrast = """(() => {
            const light = c => { const v = c.match(/[\\d.]+/g).slice(0, 3).map(x => x / 255).map(x => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
                                 return 0.2126 * v[0] + 0.7152 * v[1] + 0.0722 * v[2]; };
            const paper = light(getComputedStyle(document.body).backgroundColor);
            return [...document.querySelectorAll('body *')].filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) && !['SCRIPT', 'NOSCRIPT', 'OPTION'].includes(e.tagName))
                .map(e => { const s = getComputedStyle(e), ink = light(e instanceof SVGElement ? s.fill : s.color);
                            return [(Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05), e.tagName + '.' + (e.getAttribute('class') || '')]; });
        })()"""
        for dark in (False, True):
            tab = self.tab(dark=dark)
            tab.open(self.page)
            found = tab.js(contrast)
            self.assertGreater(len(found), 200)
            self.assertEqual([what for ratio, what in found if ratio < 4.5], [], f"dark: {dark}")

    def test_pictures(self):
        """For people: KFIT_PICTURES names a directory to keep them in. Here only that they and the printed form can be made."""
        self.many(40)
        self.report()
        where = pathlib.Path(os.environ.get("KFIT_PICTURES", self.dir / "pictures"))
        where.mkdir(exist_ok=True)
        for name, how in [("laptop", {}), ("laptop-dark", {"dark": True}), ("phone", {"width": 390, "height": 844}),
                          ("phone-dark", {"width": 390, "height": 844, "dark": True})]:
            tab = self.tab(**how)
            tab.open(self.page)
            tab.js("document.querySelector('#table details').open = true")
            tab.js("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
            tab.picture(where / f"{name}.png")
            self.assertTrue((where / f"{name}.png").read_bytes().startswith(b"\x89PNG"))
        tab.paper(where / "printed.pdf")
        self.assertTrue((where / "printed.pdf").read_bytes().startswith(b"%PDF"))


if __name__ == "__main__":
    main()
