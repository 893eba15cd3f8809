"""Adds up the cases of meson's test logs and prints "N passed, N failed, N skipped" as the last line.

Usage: summary.py testlog.json...   A test that prints no cases of its own counts as one.
"""
import json
import re
import sys

count = {"passed": 0, "failed": 0, "skipped": 0}
notes = []
for path in sys.argv[1:]:
    with open(path) as log:
        for line in log:
            test = json.loads(line)
            name, result = test["name"], test["result"]
            cases = re.findall(r"^(ok # SKIP|ok|not ok) (\S+)$", test.get("stdout") or "", re.M)
            words = {"ok": "passed", "not ok": "failed", "ok # SKIP": "skipped"}
            for word, case in cases:
                count[words[word]] += 1
                if word != "ok":
                    notes.append(f"{words[word]}: {name}: {case}")
            reported_failure = any(word == "not ok" for word, _ in cases)
            if result in ("FAIL", "TIMEOUT", "ERROR", "INTERRUPT", "UNEXPECTEDPASS") and not reported_failure:
                count["failed"] += 1
                notes.append(f"failed: {name}: {result.lower()}")
            elif not cases:
                kind = "skipped" if result == "SKIP" else "passed"
                count[kind] += 1
                if kind == "skipped":
                    notes.append(f"skipped: {name}")
for note in sorted(set(notes)):
    print(note)
print("{passed} passed, {failed} failed, {skipped} skipped".format(**count))
sys.exit(1 if count["failed"] or not count["passed"] else 0)
