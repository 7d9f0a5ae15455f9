#!/usr/bin/env python3
"""Writes canonical_tree_vectors.inc: sums and means with known bits, from the tree's definition alone.

    python3 tests/contract/canonical_tree_vectors.py > tests/contract/canonical_tree_vectors.inc

A Python float is a double, which is wide enough for the sum of two float32 to be rounded only once.
"""
import random
import struct


def f32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def f16(value):
    return struct.unpack("e", struct.pack("e", value))[0]


def tree_sum(values):
    if len(values) == 1:
        return values[0]
    left = 1
    while 2 * left < len(values):
        left *= 2
    return f32(tree_sum(values[:left]) + tree_sum(values[left:]))


def bits(kind, value):
    return {"kF32": lambda: struct.unpack("I", struct.pack("f", value))[0],
            "kF16": lambda: struct.unpack("H", struct.pack("e", value))[0]}[kind]()


generator = random.Random(42)
print("// Made by canonical_tree_vectors.py: {type, reduction, bits of each replica's element, bits of the result}.")
for count in (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 31):
    for kind, rounded, low, high in (("kF32", f32, -20, 20), ("kF16", f16, -14, 9)):
        for reduction in ("kSum", "kMean"):
            values = [rounded(generator.uniform(-1, 1) * 2.0 ** generator.randint(low, high)) for _ in range(count)]
            result = tree_sum(values)
            result = rounded(f32(result / count) if reduction == "kMean" else result)
            listed = ", ".join(f"{bits(kind, value):#x}" for value in values)
            print(f"{{ElementType::{kind}, Reduction::{reduction}, {{{listed}}}, {bits(kind, result):#x}}},")
