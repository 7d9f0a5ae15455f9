"""ONNX files in protobuf's wire format (field numbers: onnx.proto), without any ONNX package."""
import struct

FLOAT = 1  # TensorProto.DataType


def varint(value):
    out, value = b"", value % 2**64  # Negative numbers in two's complement.
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def tensor(name, dims, values):
    raw = struct.pack(f"<{len(values)}f", *values)
    return b"".join(field(1, d) for d in dims) + field(2, FLOAT) + field(8, name) + field(9, raw)


def external(name, dims, location, offset, length):
    """Returns a tensor whose values are in another file."""
    entries = {"location": location, "offset": str(offset), "length": str(length)}
    return (b"".join(field(1, d) for d in dims) + field(2, FLOAT) + field(8, name)
            + b"".join(field(13, field(1, key) + field(2, value)) for key, value in entries.items()) + field(14, 1))


def value_info(name, dims, type_=FLOAT):
    shape = b"".join(field(1, field(2, d) if isinstance(d, str) else field(1, d)) for d in dims)
    return field(1, name) + field(2, field(1, field(1, type_) + field(2, shape)))


def node(op, inputs, *outputs, name="", domain="", attributes=()):
    return (b"".join(field(1, i) for i in inputs) + b"".join(field(2, o) for o in outputs)
            + field(3, name) + field(4, op) + b"".join(field(5, a) for a in attributes)
            + field(7, domain))


def integer(name, value):
    return field(1, name) + field(3, value) + field(20, 2)  # AttributeProto.INT


def real(name, value):
    return field(1, name) + varint(2 << 3 | 5) + struct.pack("<f", value) + field(20, 1)  # FLOAT


def attribute(name, value):
    """Returns the AttributeProto of an int, a float, a list of ints or a TensorProto."""
    if isinstance(value, bytes):
        return field(1, name) + field(5, value) + field(20, 4)
    if isinstance(value, list):
        return field(1, name) + b"".join(field(8, v) for v in value) + field(20, 7)
    return (real if isinstance(value, float) else integer)(name, value)


def int64s(name, dims, values):
    raw = struct.pack(f"<{len(values)}q", *values)
    return b"".join(field(1, d) for d in dims) + field(2, 7) + field(8, name) + field(9, raw)


def truth(name, value):
    return field(2, 9) + field(8, name) + field(9, bytes([value]))  # TensorProto.BOOL
