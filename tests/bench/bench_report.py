"""The page of a report of many shapes: its size, the time to write it, and the time until Chromium shows it.

  bench_report.py KFIT REPORT_FIXTURE [SHAPES]

The page is opened in a fresh tab, ten times: to its first text (first contentful paint), to its load event, which comes after
the script has built the table, and a filter and a sort of all shapes. Chromium's own clocks. Prints one JSON object.
"""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import chromium  # noqa: E402

KFIT, FIXTURE = map(os.path.abspath, sys.argv[1:3])
SHAPES = int(sys.argv[3]) if len(sys.argv) > 3 else 10000
OPEN = """(() => { const n = performance.getEntriesByType('navigation')[0];
                   return [performance.getEntriesByName('first-contentful-paint')[0].startTime, n.loadEventEnd]; })()"""
FILTER = """(() => { const f = document.getElementById('filter'), from = performance.now();
                     f.value = 'n=64'; f.dispatchEvent(new Event('input')); document.body.offsetHeight; return performance.now() - from; })()"""
SORT = """(() => { const from = performance.now(); document.getElementById('filter').value = '';
                   document.querySelector('th[data-sort=key] button').click(); document.body.offsetHeight; return performance.now() - from; })()"""

if not chromium.find():
    print("skipped: no chromium; install Debian's package, or name one with KFIT_CHROMIUM")
    sys.exit(77)
with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as temp:
    cache, traces, page = temp + "/cache", temp + "/traces", temp + "/report.html"
    subprocess.run([FIXTURE, cache, traces, str(SHAPES)], check=True)
    subprocess.run([KFIT, "approve", "--all", "--cache", cache], check=True, capture_output=True)
    start = time.perf_counter()
    subprocess.run([KFIT, "report", "--cache", cache, "--html", page, traces], check=True, capture_output=True)
    result = {"shapes": SHAPES, "bytes": os.stat(page).st_size, "write_ms": 1000 * (time.perf_counter() - start)}
    seen = {"first_paint_ms": [], "load_ms": [], "filter_ms": [], "sort_ms": []}
    with chromium.Browser() as browser:
        result["browser"] = browser.call("Browser.getVersion")["product"]
        for _ in range(10):
            tab = browser.page()
            tab.open(page)
            tab.js("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
            for name, value in zip(seen, [*tab.js(OPEN), tab.js(FILTER), tab.js(SORT)]):
                seen[name].append(value)
            tab.close()
    result.update({name: round(statistics.median(values), 1) for name, values in seen.items()})
    result["load_ms_worst"] = round(max(seen["load_ms"]), 1)
    result["write_ms"] = round(result["write_ms"], 1)
    print(json.dumps(result))
