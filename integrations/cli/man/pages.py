"""Writes kfit's manual pages: pages.py KFIT DIR.

One page per command and group, and kfit.1 for all of them, into DIR, which is made afresh. What there is comes from the
tables of kfit itself (`kfit --describe`, `kfit COMMAND --describe`), what tables do not say from sections.py.
"""
import datetime
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import textwrap

import sections


def ask(kfit, *words):
    """Description of the command, or of everything."""
    env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    env["ASAN_OPTIONS"] = env.get("ASAN_OPTIONS", "") + ":detect_leaks=0"  # the program ends as it is
    p = subprocess.run([kfit, *words, "--describe"], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if p.returncode:
        sys.exit(f"pages.py: {' '.join([kfit, *words])} --describe: exit status {p.returncode}\n{p.stderr}")
    return json.loads(p.stdout)


# ---- roff ----

def literal(text):
    """Text to be read, or typed, as it is."""
    return text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga").replace("^", "\\(ha") \
        .replace("~", "\\(ti")


def inline(text):
    """Prose: `code` and `code' become bold, options literal; a long path or key may be broken after a slash."""
    parts = re.split(r"`([^`']+)[`']", text)
    for i in range(0, len(parts), 2):
        plain = parts[i].replace("\\", "\\e").replace("~", "\\(ti")
        parts[i] = re.sub(r"(?<![\w-])--?[a-z][\w-]*", lambda m: literal(m.group(0)), plain)
    for i in range(1, len(parts), 2):
        parts[i] = "\\fB" + literal(parts[i]) + "\\fR"
    return re.sub(r"\S{40,}", lambda m: m.group(0).replace("/", "/\\:"), "".join(parts))


def sentence(text):
    """A fragment of the tables as one."""
    return text[0].upper() + text[1:].rstrip(".") + "." if text[:1].isalpha() else text + "."


def lines(text):
    """A sentence begins a line, no line is long, and none begins like a request."""
    out = []
    for sentence in re.split(r"(?<=[a-z)R][.:]) (?=[A-Z])", inline(text)):
        out += textwrap.wrap(sentence, 78, break_long_words=False, break_on_hyphens=False)
    return "\n".join("\\&" + line if line[0] in ".'" else line for line in out)


def naming(name, command):
    return "\n".join(textwrap.wrap(f"{literal(name)} \\- {inline(command['help'])}", 78, break_on_hyphens=False))


def request(name, *words):
    return "." + name + "".join(' "' + w.replace('"', "\\(dq") + '"' for w in words)


def paragraphs(text):
    return "\n.PP\n".join(lines(p) for p in text.split("\n"))


def tagged(rows):
    return "\n".join(f".TP\n{tag}\n{lines(text)}" for tag, text in rows)


def examples(rows):
    def typed(command):
        return "\n".join("\\fB" + literal(c) + "\\fR" for c in command.split("\n"))

    return "\n.PP\n".join(f"{lines(what)}\n.PP\n.in +4n\n.nf\n{typed(command)}\n.fi\n.in" for what, command in rows)


def reference(name):
    return f".BR {literal(name)} (1)"


def references(names):
    return " ,\n".join(reference(n) for n in names)


def page(kfit, title, sections_of):
    head = request("TH", title.upper().replace(" ", "-"), "1", kfit["date"], "kfit " + kfit["version"], "kfit") + "\n.ad l"
    body = "\n".join(request("SH", name) + "\n" + text for name, text in sections_of if text)
    return head + "\n" + body + "\n"


# ---- the pages ----

def variables(kfit, wanted):
    return tagged((f"\\fB{literal(v['name'])}\\fR", v["help"]) for v in kfit["variables"] if wanted(v))


def tag(option):
    names = ["-" + option["letter"]] if option["letter"] else []
    names.append("--" + option["name"])
    text = ", ".join("\\fB" + literal(n) + "\\fR" for n in names)
    if option["arg"]:
        arg = "\\fI" + literal(option["arg"]) + "\\fR"
        text += f"[={arg}]" if option["kind"] == "optional" else "=" + arg
    return text


def command_page(kfit, command, usage):
    name = "kfit-" + command["name"].replace(" ", "-")
    again = {o["name"]: "; may be repeated" for o in usage["options"] if o["kind"] == "each" and "repeated" not in o["help"]}
    options = [(tag(o), sentence(o["help"] + again.get(o["name"], ""))) for o in usage["options"]]
    options += [("\\fB\\-?\\fR, \\fB\\-\\-help\\fR", "Says all this in short."),
                ("\\fB\\-\\-usage\\fR", "Says only how it is called.")]
    said = " ".join([usage["doc"]] + [o["help"] for o in usage["options"]])
    own = {v["name"] for v in kfit["variables"] if re.search(r"\b%s\b" % v["name"], said)}
    own |= set(sections.VARIABLES.get(command["name"], []))
    group = command["name"].split()[0]
    near = ["kfit"] + sorted({"kfit-" + c["name"].replace(" ", "-") for c in kfit["commands"]
                              if c["name"].split()[0] == group and c is not command} |
                             {"kfit-" + n.replace(" ", "-") for n in sections.SEE_ALSO.get(command["name"], [])})
    synopsis = f".B kfit {literal(command['name'])}\n[\\fIOPTION\\fR...]" + ("\n" + literal(usage["args"]) if usage["args"] else "")
    exit_status = sections.EXIT_STATUS.get(command["name"], sections.EXIT_STATUS_COMMON)
    return name, page(kfit, name, [
        ("NAME", naming(name, command)),
        ("SYNOPSIS", synopsis),
        ("DESCRIPTION", paragraphs(usage["doc"])),
        ("OPTIONS", tagged(options)),
        ("EXIT STATUS", tagged(("\\fB" + s + "\\fR", t) for s, t in exit_status)),
        ("ENVIRONMENT", variables(kfit, lambda v: v["name"] in own)),
        ("EXAMPLES", examples(sections.EXAMPLES.get(command["name"], []))),
        ("SEE ALSO", references(near)),
    ])


def group_page(kfit, command):
    name = "kfit-" + command["name"]
    subs = [c for c in kfit["commands"] if c["name"].startswith(command["name"] + " ")]
    return name, page(kfit, name, [
        ("NAME", naming(name, command)),
        ("SYNOPSIS", f".B kfit {literal(command['name'])}\n\\fICOMMAND\\fR [\\fIOPTION\\fR...]"),
        ("COMMANDS", tagged(("\\fB" + literal(c["name"]) + "\\fR", sentence(c["help"])) for c in subs)),
        ("SEE ALSO", references(["kfit"] + ["kfit-" + c["name"].replace(" ", "-") for c in subs])),
    ])


def overview(kfit):
    leaves = [c for c in kfit["commands"] if not c["group"]]
    return "kfit", page(kfit, "kfit", [
        ("NAME", "kfit \\- " + sections.NAME),
        ("SYNOPSIS", ".B kfit\n\\fICOMMAND\\fR [\\fIOPTION\\fR...] [\\fIARGUMENT\\fR...]\n.PP\n.B kfit \\-\\-help\n|\n.B kfit \\-\\-version"),
        ("DESCRIPTION", paragraphs(sections.DESCRIPTION)),
        ("COMMANDS", "Each has a page of its own.\n" +
         tagged(("\\fBkfit " + literal(c["name"]) + "\\fR", sentence(c["help"])) for c in leaves)),
        ("EXIT STATUS", tagged(("\\fB" + s + "\\fR", t) for s, t in sections.EXIT_STATUS_COMMON)),
        ("ENVIRONMENT", ".SS Read by programs under the shim or with libkfit\n" + variables(kfit, lambda v: v["program"]) +
         "\n.SS Read by kfit and what it starts\n" + variables(kfit, lambda v: v["kfit"])),
        ("FILES", tagged(("\\fI" + literal(f) + "\\fR", text) for f, text in sections.FILES)),
        ("EXAMPLES", examples(sections.EXAMPLES[""])),
        ("SEE ALSO", references(["kfit-" + c["name"].replace(" ", "-") for c in leaves])),
    ])


def main():
    program, out = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2])
    kfit = ask(program)
    when = int(os.environ.get("SOURCE_DATE_EPOCH", 0)) or None
    utc = datetime.timezone.utc
    kfit["date"] = (datetime.datetime.fromtimestamp(when, utc) if when else datetime.datetime.now(utc)).strftime("%Y-%m-%d")
    pages = [overview(kfit)]
    for command in kfit["commands"]:
        pages.append(group_page(kfit, command) if command["group"] else
                     command_page(kfit, command, ask(program, *command["name"].split())))
    fresh = out.with_name(out.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    for name, text in pages:
        (fresh / (name + ".1")).write_text(text)
    shutil.rmtree(out, ignore_errors=True)
    fresh.rename(out)
    unknown = {n for table in (sections.EXAMPLES, sections.EXIT_STATUS, sections.SEE_ALSO, sections.VARIABLES) for n in table} \
        - {c["name"] for c in kfit["commands"]} - {""}
    if unknown:
        sys.exit("pages.py: sections.py speaks of commands that are not there: " + ", ".join(sorted(unknown)))


if __name__ == "__main__":
    main()
