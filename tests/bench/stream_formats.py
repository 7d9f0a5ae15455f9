#!/usr/bin/env python3
"""Serves 1 GB of each data format to 4 clients: GB/s compared with a plain gRPC stream, and the peak memory.

  tests/bench/stream_formats.py [--build build/release] [--gigabytes 1] [FORMAT ...]

For each format, a dataset of random samples is written to a temporary folder, and `streams_bench --memory SOURCE`
serves it. A damaged copy of each dataset must be refused with a message that names the file.
"""

import argparse
import array
import base64
import io
import json
import os
import random
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib

SIDE = 64
PIXELS = 3 * SIDE * SIDE
ITEMS = 16_384  # About 200 MB of images.
TOKENS = 128
ROWS = 200_000  # About 100 MB of tokens.
NOISE = random.Random(0)


def npy(kind, shape, data):
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data


def image_labels(kind="i"):
    return array.array(kind, (i % 10 for i in range(ITEMS))).tobytes()


def images():
    return NOISE.randbytes(ITEMS * PIXELS)


def png(side):
    rows = b"".join(b"\0" + NOISE.randbytes(3 * side) for _ in range(side))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b""))


def write(folder, name, data):
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)
    return path


def write_idx(folder):
    for part, items in (("train", 60_000), ("t10k", 10_000)):
        pixels = struct.pack(">IIII", 0x803, items, 28, 28) + NOISE.randbytes(items * 784)
        write(folder, f"{part}-images-idx3-ubyte", pixels)
        labels = struct.pack(">II", 0x801, items) + bytes(i % 10 for i in range(items))
        write(folder, f"{part}-labels-idx1-ubyte", labels)
    return f"idx:{folder}", f"{folder}/train-images-idx3-ubyte"


def write_npy(folder):
    file = write(folder, "images.npy", npy("|u1", (ITEMS, 3, SIDE, SIDE), images()))
    write(folder, "labels.npy", npy("<i4", (ITEMS,), image_labels()))
    return f"npy:{folder}", file


def write_npz(folder):
    path = os.path.join(folder, "data.npz")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("images.npy", npy("|u1", (ITEMS, 3, SIDE, SIDE), images()))
        archive.writestr("labels.npy", npy("<i4", (ITEMS,), image_labels()))
    return f"npz:{path}", path


def write_csv(folder):
    path = os.path.join(folder, "data.csv")
    values = [f"{NOISE.random():.4f}" for _ in range(1 << 16)]
    with open(path, "w") as file:
        file.write(",".join(f"f{i}" for i in range(256)) + ",label\n")
        for row in range(60_000):
            at = row * 131 % (len(values) - 256)
            file.write(",".join(values[at:at + 256]) + f",{row % 10}\n")
    return f"csv:{path}", path


def write_jsonl(folder):
    path = os.path.join(folder, "data.jsonl")
    with open(path, "w") as file:
        for _ in range(ROWS // 4):
            ids = [byte * 31 for byte in NOISE.randbytes(TOKENS)]
            file.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")
    return f"jsonl:{path}", path


def write_arrow(folder):
    """Writes lists of int64 tokens with record batches of 1,000 rows, as `datasets` does."""
    def table(fields):  # {id: scalar, or function(buffer) -> position}, as in tests/unit/hostio/arrow_bytes.h
        def put(out):
            out.extend(bytes(-len(out) % 8))
            slots = len(out)
            count = max(fields, default=-1) + 1
            out.extend(struct.pack("<HH", 4 + 2 * count, 8 + 8 * len(fields)) + bytes(2 * count))
            out.extend(bytes(-len(out) % 8))
            at = len(out)
            out.extend(struct.pack("<q", at - slots))
            for i, (key, value) in enumerate(fields.items()):
                struct.pack_into("<H", out, slots + 4 + 2 * key, 8 + 8 * i)
                out.extend(struct.pack("<q", 0 if callable(value) else value))
            for i, value in enumerate(fields.values()):
                if callable(value):
                    place = at + 8 + 8 * i
                    struct.pack_into("<I", out, place, value(out) - place)
            return at
        return put

    def vector(children):
        def put(out):
            out.extend(bytes(-len(out) % 8))
            at = len(out)
            out.extend(struct.pack("<I", len(children)) + bytes(4 * len(children)))
            for i, child in enumerate(children):
                place = at + 4 + 4 * i
                struct.pack_into("<I", out, place, child(out) - place)
            return at
        return put

    def structs(values, width):  # Vectors of structs of 64-bit numbers.
        def put(out):
            out.extend(bytes((-len(out) - 4) % 8))
            at = len(out)
            out.extend(struct.pack("<I", len(values) // width) + struct.pack(f"<{len(values)}q", *values))
            return at
        return put

    def text(value):
        def put(out):
            out.extend(bytes(-len(out) % 4))
            at = len(out)
            out.extend(struct.pack("<I", len(value)) + value.encode() + b"\0")
            return at
        return put

    def message(kind, header, body):
        out = bytearray(8)
        root = table({0: 4, 1: kind, 2: header, 3: len(body)})(out)
        struct.pack_into("<I", out, 0, root)
        out.extend(bytes(-len(out) % 8))
        return struct.pack("<II", 0xFFFFFFFF, len(out)) + bytes(out) + body

    def field(name, kind, details, children):
        return table({0: text(name), 2: kind, 3: table(details), 5: vector(children)})

    def column(name):
        return field(name, 12, {}, [field("item", 2, {0: 64, 1: 1}, [])])

    path = os.path.join(folder, "data-00000-of-00001.arrow")
    rows = 1000
    offsets = struct.pack(f"<{rows + 1}i", *range(0, (rows + 1) * TOKENS, TOKENS))
    offsets += bytes(-len(offsets) % 8)
    with open(path, "wb") as file:
        file.write(message(1, table({1: vector([column("input_ids"), column("labels")])}), b""))
        for _ in range(ROWS // rows):
            ids = array.array("q", (byte * 31 for byte in NOISE.randbytes(rows * TOKENS))).tobytes()
            body = b""
            buffers, nodes = [], []
            for _ in range(2):
                for data in (b"", offsets, b"", ids):
                    buffers += [len(body), len(data)]
                    body += data
                nodes += [rows, 0, rows * TOKENS, 0]
            file.write(message(3, table({0: rows, 1: structs(nodes, 2), 2: structs(buffers, 2)}), body))
        file.write(struct.pack("<II", 0xFFFFFFFF, 0))
    return f"arrow:{folder}", path


def write_images(folder):
    for i in range(ITEMS // 4):
        file = write(folder, f"train/c{i % 10}/{i}.png", png(SIDE))
    for i in range(10):
        write(folder, f"test/c{i}/{i}.png", png(SIDE))
    return f"images:{folder}", file


def write_webdataset(folder):
    path = os.path.join(folder, "data.tar")
    with tarfile.open(path, "w") as archive:
        for i in range(ITEMS // 4):
            for name, data in ((f"{i:06}.png", png(SIDE)), (f"{i:06}.cls", str(i % 10).encode())):
                member = tarfile.TarInfo(name)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    return f"webdataset:{path}", path


def write_tokens(folder):
    path = write(folder, "book.u16", b"".join(NOISE.randbytes(1 << 24) for _ in range(16)))
    return f"tokens:{path}?sequence-length=1024", path


def write_text(folder):
    path = write(folder, "book.txt", base64.b64encode(NOISE.randbytes(144 << 20)))
    return f"text:{path}?sequence-length=1024", None  # Every file is text.


def no_files(source):
    return lambda folder: (source, None)


FORMATS = {
    "idx": write_idx, "npy": write_npy, "npz": write_npz, "csv": write_csv, "jsonl": write_jsonl, "arrow": write_arrow,
    "images": write_images, "webdataset": write_webdataset, "tokens": write_tokens, "text": write_text,
    "synthetic images": no_files(f"synthetic:images=3x{SIDE}x{SIDE},items={ITEMS}"),
    "synthetic tokens": no_files("synthetic:tokens,vocabulary=8192,items=100000?sequence-length=1024"),
}


def serve(bench, source, gigabytes):
    return subprocess.run([bench, "--memory", source, str(gigabytes)], capture_output=True, text=True, check=False)


def refused(bench, source, file):
    """Cuts the file off in the middle, and returns whether the source is then refused with the file's name."""
    os.truncate(file, os.path.getsize(file) // 2 - 1)
    result = serve(bench, source, 0.2)  # More than all encoded images: each is read when a batch needs it.
    if result.returncode != 0 and os.path.basename(file) in result.stderr:
        return "yes"
    return f"NO: exit code {result.returncode}, {(result.stderr or result.stdout).strip()[:100]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--gigabytes", type=float, default=1)
    parser.add_argument("formats", nargs="*", metavar="FORMAT", help=", ".join(FORMATS))
    options = parser.parse_args()
    bench = os.path.join(options.build, "tests", "bench", "streams_bench")
    print(f"{'format':<17} {'samples MiB':>11} {'described MiB':>13} {'peak MiB':>8} {'GB':>5} "
          f"{'GB/s':>6} {'plain':>6}  damage is named")
    failed = False
    for name in options.formats or FORMATS:
        with tempfile.TemporaryDirectory(prefix="poprun-emu-") as folder:
            source, file = FORMATS[name](folder)
            result = serve(bench, source, options.gigabytes)
            if result.returncode != 0:
                print(f"{name:<17} {result.stderr.strip()}")
                failed = True
                continue
            row = json.loads(result.stdout)
            damage = "-" if file is None else refused(bench, source, file)
            failed |= damage.startswith("NO")
            print(f"{name:<17} {row['samples']:>11.0f} {row['described']:>13.0f} {row['peak']:>8.0f} "
                  f"{row['gigabytes']:>5.2f} {row['rate']:>6.2f} {row['plain']:>6.2f}  {damage}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
