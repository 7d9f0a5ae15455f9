"""NumPy's .npy format 1.0, by its description in numpy/lib/format.py."""
import struct


def content(type_, shape, elements):
    """`type_` as NumPy's dtype.str, "<f4"; `shape` a tuple; `elements` their bytes, in row-major order."""
    header = f"{{'descr': '{type_}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + elements


def floats(shape, values):
    return content("<f4", shape, struct.pack(f"<{len(values)}f", *values))
