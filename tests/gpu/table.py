#!/usr/bin/env python3
"""The table of a campaign: table.py tests/gpu/results/tune_20mb.json ... prints Markdown, a row per weight shape: floor, then
for each M the incumbent's us, the winner's us and their ratio, all as bench_tune_cuda kept them; geometric means below."""
import json
import math
import re
import sys

ROUTERS = 2.2e6  # bytes of weights: below, they are routers and gates


def mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def main(paths):
    rows, by_m, groups = {}, set(), {}
    for path in paths:
        with open(path) as f:
            for k in json.load(f)["keys"]:
                m, n, kk = (int(re.search(rf"/?\b{name}=(\d+)", k["key"])[1]) for name in "mnk")
                if k["verdict"] != "promoted":
                    print(f"not promoted: {k['key']}: {k['verdict']}", file=sys.stderr)
                    continue
                us = [k[name] / 1000 for name in ("generic_ns", "candidate_ns", "floor_ns")]
                rows.setdefault((2 * n * kk, n, kk), {})[m] = us
                by_m.add(m)
                size = "up to 2 MB" if 2 * n * kk < ROUTERS else "to 20 MB" if 2 * n * kk < 20e6 else "above"
                groups.setdefault(size, []).append((m, us[0] / us[1], us[1] / us[2]))
    head = ["N x K", "MB", "floor"] + [f"M = {m}" for m in sorted(by_m)]
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for (size, n, kk), cells in sorted(rows.items()):
        line = [f"{n}x{kk}", f"{size * 1e-6:.1f}", f"{min(c[2] for c in cells.values()):.2f}"]
        line += ["{0:.2f} {1:.2f} **{3:.2f}**".format(*cells[m], cells[m][0] / cells[m][1]) if m in cells else ""
                 for m in sorted(by_m)]
        print("| " + " | ".join(line) + " |")
    print("\n| weights | " + " | ".join(head[3:]) + " | all |\n|" + "---|" * (len(by_m) + 2))
    for size, values in groups.items():
        cells = [[v for v in values if v[0] == m] for m in sorted(by_m)] + [values]
        print(f"| {size} | " + " | ".join(f"{mean([v[1] for v in c]):.2f}, {mean([v[2] for v in c]):.2f}" if c else ""
                                          for c in cells) + " |")


main(sys.argv[1:])
