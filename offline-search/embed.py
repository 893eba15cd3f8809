"""Turns text files into one C file of arrays, on stdout.

embed.py header FILE      kfit_host_header, kfit_cuda_header: what kernels include
embed.py text FILE        kfit_judge_cu (judge.cu): a source that is compiled at run time
embed.py seeds FILE ...   kfit_seeds of kfit/candidate.h: name from the file, device from its folder
"""
import pathlib
import sys


def array(declaration, path):
    data = path.read_bytes()
    if not data.isascii():
        sys.exit(f"embed.py: {path} is not plain ASCII")
    rows = [", ".join(map(str, data[i:i + 24])) for i in range(0, len(data), 24)]
    print(f"{declaration}[] = {{\n    " + ",\n    ".join(rows + ["0"]) + "};\n")


kind, paths = sys.argv[1], [pathlib.Path(a) for a in sys.argv[2:]]
if kind in ("header", "text"):
    name = f"{paths[0].stem}_header" if kind == "header" else "kfit_" + paths[0].name.replace(".", "_")
    print(f"#include <stddef.h>\n\nextern const char {name}[];\nextern const size_t {name}_bytes;")
    array(f"const char {name}", paths[0])
    print(f"const size_t {name}_bytes = sizeof {name} - 1;")
else:
    print('#include "kfit/candidate.h"\n')
    for i, path in enumerate(paths):
        array(f"static const char seed{i}", path)
    print("const struct kfit_seed kfit_seeds[] = {")
    for i, path in enumerate(paths):
        print(f'    {{"{path.stem}", "{path.parent.name}", seed{i}, sizeof seed{i} - 1}},')
    print("    {0},\n};")
    print(f"const unsigned kfit_seed_count = {len(paths)};")
