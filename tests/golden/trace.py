"""Writes trace-1.kft, byte by byte as runtime/include/kfit/trace.h describes version 1, without kfit's code.

    python3 trace.py > trace-1.kft
    python3 trace.py loaded > trace-1-loaded.kft     with the fields taken from the reserved bytes later
    python3 trace.py cuda > trace-1-cuda.kft         with kernels and graphs as well

Hashes are XXH3-64 of the key's used bytes, of the environment texts and of the kernels' names with the image's
hash as seed, computed once and kept here.
"""
import struct
import sys

SLOTS, HEADER, SLOT, REASONS, KEY = 8, 4096, 320, 20, 128
FLAGS, NO_RECORD, ENV = 5, 2, 14
KERNEL, GRAPH, ITEM = 256, 64, 8
KERNELS, GRAPHS, ITEMS = 8, 4, 8
OTHER, IN_OP, IS_KERNEL, READY, GONE, NEGATIVE = 0, 1, 1 << 31, 2, 3, 3
IMAGE = 0x1122334455667788
# place: hash, image, launches, name
CENSUS = {
    1: (15194882520671009265, IMAGE, [0, 1000], "gemm_kernel"),
    2: (17698402093938990778, IMAGE, [0, 500], "reduce_kernel"),
    6: (13393190372206752158, 0, [7, 0], "norm_kernel"),
}
# what, decision, times; slots 1, 2 and 3 hold the keys of m = 1, 2 and 4
POOL = [(1, 0, 2), (IS_KERNEL | 6, OTHER, 1), (2, 2, 1), (IS_KERNEL | 1, IN_OP, 3), (3, NEGATIVE, 1)]
# state, first, count, lost, ours, device, launches: the second shares the items of the first
CAPTURED = [(GONE, 0, 3, 0, 2, 0, 10), (READY, 0, 3, 0, 2, 0, 5), (READY, 3, 2, 7, 0, 0, 100)]
KEYS = {1: 872954895352371585, 2: 14561959477699017369, 4: 4379555714714380635}


def text(s, size):
    return s.encode().ljust(size, b"\0")


cuda = sys.argv[1:] == ["cuda"]
slots_end = HEADER + SLOTS * SLOT
file_bytes = slots_end + (KERNELS * KERNEL + GRAPHS * GRAPH + ITEMS * ITEM if cuda else 0)
unkeyed = [0] * REASONS
unkeyed[FLAGS] = 9
header = b"".join([
    text("kfittrc", 8), struct.pack("<4IQ", 1, HEADER, SLOT, SLOTS, file_bytes),
    struct.pack("<IIiI", len(KEYS), 1, 4242, 1000),
    struct.pack("<Qqq", 123456, 1700000000 * 10**9, 1700000060 * 10**9),
    struct.pack("<iIII", 3, 3, 0, ENV),
    struct.pack("<Q", 17), bytes(range(32)), struct.pack("<20Q", *unkeyed),
    text("01234567-89ab-cdef-0123-456789abcdef", 40), text("golden", 64), text("python3 serve.py", 128),
    text("for tests", 256),
    text("device=host;isa=x86-64-v3;", 256), text("blas=OpenBLAS 0.3.21;", 256),
    struct.pack("<QQ", 17739928367556809987, 2403423914043681810),
    struct.pack("<II", 1, 0),
    text("/usr/lib/libblas.so.3", 256), text("cblas_%s", 32), text("reference", 128), struct.pack("<iI", 1, 32),
    bytes(3 * 424),
    struct.pack("<Q", 4026531836),
])
if sys.argv[1:] in (["loaded"], ["cuda"]):
    header += struct.pack("<q6I", 1700000001 * 10**9, 12, 2, 3, 1, 4, 5) + text("/var/cache/kfit", 256) + text("job/29500", 96)
if cuda:
    kernels_end = slots_end + KERNELS * KERNEL
    header += struct.pack("<3Q8I", slots_end, kernels_end, kernels_end + GRAPHS * GRAPH, KERNELS, GRAPHS, ITEMS,
                          len(CENSUS), len(CAPTURED), len(POOL), 0, 0) + text("cuda0", 16)
table = [bytes(SLOT)] * SLOTS
for m, digest in KEYS.items():
    count = [0] * REASONS
    count[0], count[NO_RECORD] = 1000 * m, m
    key = bytes([40, 1, 0, 1, 1, 1, 1, 1, 1, 0, 16, 0, 0, 0, 0, 0]) + struct.pack("<6i", m, 768, 512, 512, 512, 768)
    at = digest % SLOTS
    while any(table[at]):
        at = (at + 1) % SLOTS
    table[at] = struct.pack("<IIQIIQ20Q", 2, 0, digest, 1700000000 + m, 0, 0, *count) + key.ljust(KEY, b"\0")
live = b""
if cuda:
    for i in range(KERNELS):
        if i in CENSUS:
            digest, image, launches, name = CENSUS[i]
            live += struct.pack("<IIQQ2Q", 2, 0, digest, image, *launches) + text(name, 216)
        else:
            live += bytes(KERNEL)
    for i, (*words, launches) in enumerate(CAPTURED):
        live += struct.pack("<6IQq2I2Q", *words, launches, (1700000010 + i) * 10**9, i, 0, 0, 0)
    live += bytes(GRAPH) * (GRAPHS - len(CAPTURED)) + b"".join(struct.pack("<IHH", *item) for item in POOL)
    live += bytes(ITEM) * (ITEMS - len(POOL))
sys.stdout.buffer.write(header.ljust(HEADER, b"\0") + b"".join(table) + live)
