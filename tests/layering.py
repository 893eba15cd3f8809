"""The house rules that a compiler does not check on its own.

  layering.py SOURCE_ROOT CC [CXX]

1. No source includes through "../", and no layer includes a public header of a layer it may not see.
2. The build enforces rule 1 by its include paths: for each pair (layer, forbidden header) a file that includes the
   header is compiled with exactly the layer's include paths and must fail; with an allowed header it must compile.
3. Each public header compiles alone, as C and (with CXX) as C++, without warnings.

Prints one line per case like kfit_test.h; exit status 1 if any failed.
"""
import glob
import os
import re
import subprocess
import sys

from cases import case, end

LAYERS = ["runtime", "kernel-cache", "dispatcher", "offline-search"]
MAY_SEE = {
    "runtime": [],
    "kernel-cache": ["runtime"],
    "dispatcher": ["runtime", "kernel-cache"],
    "offline-search": ["runtime", "kernel-cache"],
    "integrations": LAYERS,
    "tests": LAYERS,
}

root, cc = sys.argv[1], sys.argv[2].split()
cxx = sys.argv[3].split() if len(sys.argv) > 3 else None
headers = {layer: sorted(os.path.basename(h) for h in glob.glob(f"{root}/{layer}/include/kfit/*.h")) for layer in LAYERS}
owner = {h: layer for layer, hs in headers.items() for h in hs}


def compiles(command, text, layer, suffix):
    paths = [f"-I{root}/{seen}/include" for seen in [layer, *MAY_SEE[layer]]]
    got = subprocess.run(
        [*command, "-x", suffix, "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-fsyntax-only", *paths, "-"],
        input=text, capture_output=True, text=True)
    return got.returncode == 0, got.stderr[:400]


for layer, allowed in MAY_SEE.items():
    bad = []
    for path in glob.glob(f"{root}/{layer}/**/*.[ch]", recursive=True):
        with open(path, errors="replace") as f:
            for number, line in enumerate(f, 1):
                found = re.match(r'\s*#\s*include\s*[<"]([^>"]*)', line)
                if not found:
                    continue
                name = found.group(1)
                at = f"{os.path.relpath(path, root)}:{number}: {line.strip()}"
                if "../" in name:
                    bad.append(at)
                elif name.startswith("kfit/") and name[5:] in owner and owner[name[5:]] not in [layer, *allowed]:
                    bad.append(at)
    case(f"includes_of_{layer}", not bad, "; ".join(bad[:4]))

for layer in LAYERS:
    for other in LAYERS:
        if other == layer or not headers[other]:
            continue
        header = headers[other][0]
        ok, message = compiles(cc, f"#include <kfit/{header}>\n", layer, "c")
        if other in MAY_SEE[layer]:
            case(f"{layer}_sees_{other}", ok, message)
        else:
            case(f"{layer}_cannot_see_{other}", not ok, f"kfit/{header} compiled")

for layer in LAYERS:
    for header in headers[layer]:
        name = header.replace(".", "_")
        ok, message = compiles(cc, f"#include <kfit/{header}>\n", layer, "c")
        case(f"{name}_alone_in_c", ok, message)
        if cxx:
            ok, message = compiles(cxx, f"#include <kfit/{header}>\n", layer, "c++")
            case(f"{name}_alone_in_cxx", ok, message)

end()
