"""libkfit.so as others use it: installed into a folder, found by pkg-config, linked by a plain compiler call.

  test_libkfit.py BUILD_DIR SOURCE_DIR EXAMPLE CC...

EXAMPLE is the program as built here; both it and the one built against the installed tree must serve and record.
"""
import glob
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

from cases import case, end

build, source, example, *cc = sys.argv[1:]


def run(argv, **env):
    got = subprocess.run(argv, capture_output=True, text=True, timeout=60,
                         env={**{k: v for k, v in os.environ.items() if not k.startswith("KFIT_")}, **env})
    return got.returncode, got.stdout + got.stderr


def serves(name, argv, trace, **env):
    status, said = run(argv, **env)
    case(f"{name}_serves_without_kfit", status == 0 and "answers right" in said and "\noff" in said, said)
    os.makedirs(trace, mode=0o700)
    status, said = run(argv, KFIT_TRACE=trace, **env)
    files = glob.glob(trace + "/*.kft")
    keys = struct.unpack_from("<I", open(files[0], "rb").read(36), 32)[0] if files else 0
    case(f"{name}_records_its_shapes", status == 0 and len(files) == 1 and keys == 16, f"{keys} keys, {said}")


if not shutil.which("pkg-config"):
    print("skipped: no pkg-config")
    sys.exit(77)
options = json.loads(subprocess.run(["meson", "introspect", build, "--buildoptions"], capture_output=True,
                                    check=True).stdout)
option = {o["name"]: o["value"] for o in options}
with tempfile.TemporaryDirectory() as root:
    serves("built", [example], root + "/t1")
    if option.get("b_sanitize", "none") != "none":
        print("skipped: the installed library, which a program without the sanitizer cannot load")
        end()
    done = subprocess.run(["meson", "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", root + "/stage"],
                          capture_output=True, text=True)
    case("installs", done.returncode == 0, done.stdout + done.stderr)
    libdir = root + "/stage" + os.path.join(option["prefix"], option["libdir"])
    config = {"PKG_CONFIG_PATH": libdir + "/pkgconfig", "PKG_CONFIG_SYSROOT_DIR": root + "/stage",
              "PKG_CONFIG_ALLOW_SYSTEM_CFLAGS": "1", "PKG_CONFIG_ALLOW_SYSTEM_LIBS": "1"}
    status, flags = run(["pkg-config", "--cflags", "--libs", "kfit"], **config)
    case("is_found_by_pkg_config", status == 0 and "-lkfit" in flags, flags)
    status, blas = run(["pkg-config", "--cflags", "--libs", "openblas"])
    program = root + "/server"
    status, said = run([*cc, "-o", program, source + "/example.c", *flags.split(), *blas.split(), "-lpthread", "-lm"])
    case("links_by_a_plain_compiler_call", status == 0, said)
    if status == 0:
        serves("installed", [program], root + "/t2", LD_LIBRARY_PATH=libdir)
end()
