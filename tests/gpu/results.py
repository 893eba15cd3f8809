"""What collect.py commits, made of what the programs here wrote. Each takes `head` (device, versions, commit, command) and returns
the object, or raises Missing with what was not there; `headline` is a line of the table."""
import re


class Missing(Exception):
    pass


def steps_of(story):
    return {s["step"]: s for s in story["steps"]}


def results_of(story, step):
    s = steps_of(story).get(step)
    if not s or not s.get("results"):
        raise Missing(f"{step}: {s.get('why', s.get('skipped', 'no results')) if s else 'not run'}")
    return s["results"]


def winners(story):
    return {r["key"]: r for r in results_of(story, "tune") if r["kind"] == "winner"}


def predicted_saved_us(keys, steps, won, batch):
    """By the judge's cold times: of a step's calls at this batch, those that have a winner."""
    ns = sum(calls / steps * (won[k]["ns_incumbent"] - won[k]["ns_candidate"]) for k, calls in keys.items() if k in won and f"/m={batch}," in k)
    return round(ns / 1000, 2)


def step_time(b):
    names = dict(us="us", lo="lo", hi="hi", gemm_kernels_us="gemm_us", all_kernels_us="all_us", gemm_share_of_kernel_time="gemm_share", gemm_ops="ops",
                 rms_error_to_float64="rms_error")
    return {mine: b[theirs] for mine, theirs in names.items() if theirs in b}


def decode(story, head):
    """A model whose runs failed is left out; the story's steps say why."""
    won, models, keys = winners(story), {}, results_of(story, "seen")["keys"]
    plain, record, dispatch = (results_of(story, n) for n in ("plain", "record", "dispatch"))
    ab = steps_of(story).get("ab", {}).get("results", {})
    for m in story["models"]:
        if not all(m in of for of in (plain, record, dispatch, keys)):
            continue
        batches = []
        for i, b in enumerate(plain[m]["batches"]):
            recorded, dispatched = record[m]["batches"][i], dispatch[m]["batches"][i]
            batches.append(dict(batch=b["batch"], original=step_time(b), dispatched=step_time(dispatched),
                                predicted_saved_us=predicted_saved_us(keys[m], recorded["steps"], won, b["batch"])))
            if i < len(ab.get(m, {}).get("metrics", [])):
                a = ab[m]["metrics"][i]
                batches[-1]["ab"] = dict(off_us=a["off"], on_us=a["on"], ratio=a["ratio"], lo=a["lo"], hi=a["hi"], pairs=ab[m]["pairs"])
        models[m] = dict({n: plain[m][n] for n in ("layers", "length", "tp", "fused")}, batches=batches,
                         dispatched_run=dict(calls=dispatch[m]["calls"], by_kfit=dispatch[m]["hits"]))
    if not models:
        raise Missing("no model went all the way")
    of_trace = ("keys", "calls", "launches", "share_known_ops", "kernels", "graphs")
    return dict(what="Graphed decode steps of transformers models with random bf16 weights; original, dispatched, and both in turn in one process (kfit ab "
                     "--phases, graphs captured anew in each phase). predicted_saved_us: the judge's cold times of the step's calls.",
                **head, steps=[{k: s[k] for k in ("step", "ok", "seconds", "why") if k in s} for s in story["steps"]], models=models,
                recorded=[{n: t[n] for n in of_trace if n in t} for m in models for t in results_of(story, "seen")["ls"][m]],
                steps_recorded={m: [dict(batch=b["batch"], steps=b["steps"]) for b in record[m]["batches"]] for m in models},
                tuned=results_of(story, "tune"))


def soak(story, head):
    r = results_of(story, "soak")
    return dict(what="Dispatched calls in CUDA graphs on data drawn anew in each launch, each compared with cuBLAS on the same rows; outside: beyond 2 ulp and "
                     "what sums in float32 may lose; different: elements that are not the same bits",
                **head, **{n: r[n] for n in ("shape", "calls", "elements", "outside", "different", "different_share", "seconds")},
                trace=dict(calls=r["recorded"], by_kfit=r["hits"], replays=r["replays"]))


def ranks(story, head):
    return dict(what="Two tensor-parallel ranks on two GPUs, graphed decode steps with a replicated router and all-reduce (NCCL): recorded; with a generation that "
                     "changes in between (the ranks keep theirs); pinned to the second one, started one after the other",
                **head, runs=results_of(story, "ranks"))


GOALS_NS = dict(gemm_ex=60, lt_matmul=120, launch=30, launch_ex=30, graph_launch=20)


def shim(found, head):
    """Of the rows in which the shim only counts, which are within the goals."""
    rows = [dict(r, goal_ns=GOALS_NS[r["call"]], within=r["added_ns"] <= GOALS_NS[r["call"]]) if r["way"].split("-")[-1] in ("record", "miss") else r
            for r in found["rows"]]
    return dict(what="What the shim adds to a call, in ns on the host, compared within one process (tests/gpu/bench_shim.c); none: the same without the shim; hit: our "
                     "launch instead of cuBLAS's; warm: in a hot loop around a library and a driver whose calls do nothing", **head, shape=found["shape"], rows=rows)


def start(found, head):
    return dict(what="Seconds from start to end of a PyTorch process that makes one call: without kfit, with the shim preloaded and off, under kfit run (recording). "
                     "added_ms: by the sum of the phases' minima over rounds; lo, hi: over rounds drawn again (tests/gpu/bench_start.py)",
                **head, **found, within=found["ways"]["record"]["added_ms"] < found["goal_ms"])


def control(found):
    """Why the way of graph_switch that must work did not, by size, in one line; each way is an object, and of it each kind of switch."""
    said = []
    for w in found.get("runs", []):
        if w["way"] != "original":
            continue
        right, bad = w.get("all", {}).get("right"), [f"exit status {w['ended']}"] if w["ended"] else []
        if right != w["nodes"]:
            bad.append(f"all at once: {right} of {w['nodes']} right" if right is not None else "all at once was not reached")
            bad += [f"{kind}: {of['error'] or of['replay'] or '{right} of {of}'.format(**of)}" if of["right"] != of["of"] else f"{kind} does not come back"
                    for kind, of in w.items() if isinstance(of, dict) and "back" in of and not (of["right"] == of["of"] and of["back"])]
        if bad:
            said.append(f"{w['nodes']} nodes: {', '.join(bad)}")
    return "the control failed: " + ("; ".join(said) or "the results do not say where")


def suite(before, seen, head):
    """The cases as last seen: those of now, then the others, in their order."""
    now = {(r["test"], r["case"]): dict(r, commit=head["commit"]) for r in seen if r["result"] != "skipped"}
    kept = [now.pop((r["test"], r["case"]), r) for r in before["cases"]]
    return dict(what=before["what"], **head, cases=kept + list(now.values()))


def unseen(before, cases):
    """Of (test, case), those that were not seen to pass."""
    passed = {(r["test"], r["case"]) for r in before["cases"] if r["result"] in ("passed", "double only")}
    return [c for c in cases if c not in passed]


def outcomes(test, text, rc, asked):
    """What a test's program said of each case that was asked for ("" stands for a program that has none)."""
    rows, notes = {}, []
    for line in text.splitlines():
        line = re.sub(r"^[.FEsxu]+(?=ok |not ok |  )", "", line)  # unittest's progress has no line of its own
        said = re.fullmatch(r"(ok # SKIP|ok|not ok) ([\w.]+)", line)
        if said:
            rows[said[2]] = dict(result={"ok": "passed", "not ok": "failed"}.get(said[1], "skipped"), note="; ".join(notes)[-600:])
            notes = []
        elif line.startswith("  "):
            notes.append(line.strip().removeprefix("skipped: "))
    for block in re.split(r"(?m)^={70}$", text):  # unittest says why at the end
        name = re.match(r"\s*(?:FAIL|ERROR): (\w+) ", block)
        why = re.findall(r"(?m)^\w[\w.]*(?:Error|Exception|Expired)\b.*", block)
        for case, r in rows.items():
            if name and why and case.split(".")[-1] == name[1] and r["result"] == "failed":
                r["note"] = why[-1][:600]
    end = "out of time" if rc == 124 else f"exit status {rc}"
    found = []
    for case in asked:
        r = rows.get(case)
        if not case:
            last = text.strip().splitlines()[-1:] or [end]
            r = dict(result={0: "passed", 77: "skipped"}.get(rc, "failed"), note="" if rc == 0 else f"{end}: {last[0][-300:]}")
        elif not r:
            r = dict(result="skipped" if rc == 77 else "failed", note=text.strip()[-300:] if rc == 77 else f"{end}, and nothing was said of it")
        if r["result"] == "passed":
            r.pop("note")
        found.append(dict(test=test, case=case, **r))
    return found


def headline(name, r):
    if name == "decode":
        return ", ".join(f"{m.split('-')[0]} {b['batch']}: {b['ab']['ratio']:.3f}" for m, of in r["models"].items() for b in of["batches"] if "ab" in b)
    if name == "soak":
        return f"{r['calls']} calls, {r['outside']} outside"
    if name == "ranks":
        return ", ".join(f"{n} {'alike' if of['ok'] else 'DIFFER'}" for n, of in r["runs"].items())
    if name == "shim":
        warm = {w["call"]: w["added_ns"] for w in r["rows"] if w["way"] == "warm-record"}
        return "in place, warm, goal in ns: " + ", ".join("{call} {added_ns:+.0f} {0:+.0f} {goal_ns}".format(warm.get(w["call"], float("nan")), **w)
                                                          for w in r["rows"] if w["way"] == "record")
    if name == "start":
        return "{added_ms:+.0f} ms [{lo:+.0f}, {hi:+.0f}]".format(**r["ways"]["record"]) + f" (goal {r['goal_ms']})"
    if name == "graph_switch":
        works = {w["way"]: w.get("same", {}).get("right", 0) == w.get("same", {}).get("of") for w in r["runs"]}
        return "works: " + (", ".join(w for w, ok in works.items() if ok) or "nothing")
    if name == "suite":
        count = [sum(c["result"] == what for c in r["cases"]) for what in ("passed", "failed")]
        return "{} cases passed, {} failed".format(*count)
    return f"{len(r['keys'])} keys, {r['geometric_mean']:.2f}" if "geometric_mean" in r else ""
