"""The manual pages, against what the program says of itself, and the table of variables against what reads them.
Arguments: see cli_helpers.py."""
import json
import pathlib
import re
import shlex
import shutil
import subprocess

from cli_helpers import KFIT, Case, main

PAGES = pathlib.Path(KFIT).parent / "man1"
SOURCE = pathlib.Path(__file__).resolve().parent.parent
LAYERS = ["runtime", "kernel-cache", "dispatcher", "offline-search", "integrations"]


def section(page, name):
    """Its lines, without roff's escapes."""
    text = re.search(r'(?ms)^\.SH "%s"\n(.*?)(?=^\.SH |\Z)' % name, page).group(1)
    text = re.sub(r"\\f[BIR]|\\:", "", text)
    for escape, c in [("\\-", "-"), ("\\(aq", "'"), ("\\(ga", "`"), ("\\(ha", "^"), ("\\(ti", "~"), ("\\(dq", '"'), ("\\e", "\\")]:
        text = text.replace(escape, c)
    return text.splitlines()


class Pages(Case):
    """Commands and options are taken from --help, which argp prints; pages.py asks --describe."""

    def commands(self, *group):
        """Name and help of every command, as `kfit --help` lists them, groups included."""
        out = self.kfit(*group, "--help")[0]
        for name, text in re.findall(r"(?m)^  (\w+) +(\S.*)$", out):
            yield " ".join([*group, name]), text
            if self.kfit(*group, name, "--help")[0].startswith(f"Usage: kfit {' '.join([*group, name])} COMMAND"):
                yield from self.commands(*group, name)

    def page(self, command):
        return (PAGES / ("kfit-" + command.replace(" ", "-") + ".1")).read_text()

    def options(self, command):
        """(names, argument) of each, of --help; None for a group."""
        out = self.kfit(*command.split(), "--help")[0]
        if " COMMAND [OPTION...]\n" in out.splitlines(True)[0]:
            return None
        found = re.findall(r"(?m)^ {2,6}(?:(-\S)(?:, ))?(--[\w-]+)(\[?=\S+)?", out)
        return {(letter, name, arg) for letter, name, arg in found}

    def test_there_is_a_page_for_each_command_and_none_besides(self):
        commands = dict(self.commands())
        self.assertGreater(len(commands), 15)
        self.assertEqual({p.name for p in PAGES.iterdir()}, {"kfit.1"} | {f"kfit-{c.replace(' ', '-')}.1" for c in commands})
        overview = section((PAGES / "kfit.1").read_text(), "COMMANDS")
        for c in commands:
            self.assertEqual(self.options(c) is None, "kfit " + c not in overview, c)
        for c, text in commands.items():
            self.assertIn(text, " ".join(section(self.page(c), "NAME")))

    def test_each_page_has_the_commands_options_and_no_other(self):
        for command, _ in self.commands():
            wanted = self.options(command)
            if wanted is None:
                continue
            lines = section(self.page(command), "OPTIONS")
            tags = [lines[i + 1] for i, line in enumerate(lines) if line == ".TP"]
            found = {re.fullmatch(r"(?:(-\S), )?(--[\w-]+)(\[?=\S+)?", t).groups("") for t in tags}
            self.assertIn(("-?", "--help", ""), found)
            self.assertEqual(found, wanted, command)

    def test_pages_refer_to_pages(self):
        for path in PAGES.iterdir():
            refs = [line.split()[1] for line in section(path.read_text(), "SEE ALSO") if line.startswith(".BR")]
            self.assertTrue(refs, path)
            for ref in refs:
                self.assertTrue((PAGES / (ref + ".1")).exists(), f"{path.name}: {ref}")

    def test_every_command_has_examples_and_they_use_what_exists(self):
        known = {c: self.options(c) for c, _ in self.commands()}
        for c, options in known.items():
            self.assertEqual('"EXAMPLES"' in self.page(c), options is not None, f"{c}: its examples belong into man/sections.py")
        for path in PAGES.iterdir():
            if '"EXAMPLES"' not in path.read_text():
                continue
            for line in section(path.read_text(), "EXAMPLES"):
                line = re.sub(r"^([A-Z_]+=\S+ )+", "", line)
                if not line.startswith("kfit "):
                    continue
                words = shlex.split(line)
                command = " ".join(words[1:3]) if known.get(words[1], {}) is None else words[1]
                self.assertIn(command, known, line)
                words = words[:words.index("--")] if "--" in words else words
                words = words[:words.index("|")] if "|" in words else words
                for w in words:
                    if w.startswith("--"):
                        self.assertIn(w.split("=")[0], {name for _, name, _ in known[command]}, line)

    def test_the_pages_are_well_formed(self):
        """And say nothing in roff that a reader would see."""
        tool = next((t for t in ["mandoc", "groff"] if shutil.which(t)), None)
        if not tool:
            self.skipTest("neither mandoc nor groff is here")
        for path in sorted(PAGES.iterdir()):
            args = ["mandoc", "-T", "lint", "-W", "style"] if tool == "mandoc" else ["groff", "-man", "-Tutf8", "-ww", "-z"]
            p = subprocess.run([*args, path], stdin=subprocess.DEVNULL, capture_output=True, text=True)
            self.assertEqual((p.returncode, p.stdout + p.stderr), (0, ""))
            args = ["mandoc", "-T", "utf8"] if tool == "mandoc" else ["groff", "-man", "-Tutf8", "-P-c"]
            text = subprocess.run([*args, path], capture_output=True, check=True).stdout.decode()
            text = re.sub(".\b", "", text)
            self.assertIn("SEE ALSO", text)
            self.assertNotRegex(text, r"\\f[BIR]|\\[-e:]|\\\((?:aq|ga|ha|ti|dq)|\. \.$")


class Variables(Case):
    """integrations/cli/variables.c is written by hand; here is what keeps it true."""

    def table(self):
        return {v["name"]: v for v in json.loads(self.kfit("--describe")[0])["variables"]}

    def test_the_table_has_every_variable_that_is_read(self):
        table, read = self.table(), {}
        for layer in LAYERS:
            for path in (SOURCE / layer).rglob("*.c"):
                text = path.read_text()  # ours whatever they are read with, the others where they are asked for
                for name in re.findall(r'\b[a-z_]+\("(KFIT_[A-Z_]+)"|getenv\("([A-Z_]+)"', text):
                    read.setdefault("".join(name), []).append(str(path.relative_to(SOURCE)))
        self.assertIn("KFIT_MODE", read)
        for name, where in read.items():
            self.assertIn(name, table, f"{where} reads it; it belongs into integrations/cli/variables.c")
        self.assertEqual({n for n in table if n.startswith("KFIT_")} - set(read), set(), "nobody reads these")
        by_program = {n for n, where in read.items() if any(w.startswith(("integrations/preload", "integrations/libkfit")) for w in where)}
        self.assertLessEqual(by_program, {n for n, v in table.items() if v["program"]})

    def test_the_shims_readme_has_them_too(self):
        text = (SOURCE / "integrations/preload/README.md").read_text()
        rows = re.findall(r"(?m)^\| (`KFIT_.*?) \|", text)
        self.assertEqual({n for r in rows for n in re.findall(r"`(KFIT_\w+)`", r)},
                         {n for n, v in self.table().items() if v["program"] and n.startswith("KFIT_")})

    def test_the_manual_has_them(self):
        lines = section((PAGES / "kfit.1").read_text(), "ENVIRONMENT")
        tags = {lines[i + 1] for i, line in enumerate(lines) if line == ".TP"}
        self.assertEqual(tags, set(self.table()))


if __name__ == "__main__":
    main()
