"""Turns text files into one C file of arrays.

embed.py header NAME FILE > out.c      const char NAME[] and NAME_bytes
embed.py seeds DEVICE=FILE ... > out.c kfit_seeds[] of kfit/candidate.h, named after the files
"""
import pathlib
import sys


def array(name, data, static):
    rows = [", ".join(map(str, data[i:i + 24])) for i in range(0, len(data), 24)]
    body = ",\n    ".join(rows + ["0"])
    return f"{'static ' if static else ''}const char {name}[] = {{\n    {body}}};\n"


def main(kind, *args):
    if kind == "header":
        name, path = args
        data = pathlib.Path(path).read_bytes()
        print('#include "gate0.h"\n')
        print(array(name, data, False))
        print(f"const size_t {name}_bytes = sizeof {name} - 1;")
        return
    print('#include "kfit/candidate.h"\n')
    rows = []
    for i, (device, path) in enumerate(a.split("=", 1) for a in args):
        path = pathlib.Path(path)
        print(array(f"seed{i}", path.read_bytes(), True))
        rows.append(f'    {{"{path.stem}", "{device}", seed{i}, sizeof seed{i} - 1}},\n')
    print("const struct kfit_seed kfit_seeds[] = {\n" + "".join(rows) + "    {0},\n};")
    print(f"const unsigned kfit_seed_count = {len(rows)};")


if not all(ord(c) < 128 for a in sys.argv[3:] for c in pathlib.Path(a.split("=", 1)[-1]).read_text("latin-1")):
    sys.exit("embed.py: a file is not plain ASCII")
main(*sys.argv[1:])
