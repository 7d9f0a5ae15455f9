"""The .safetensors format: {name: (dtype, shape, bytes)}, dtype "F32", "F16", "I32" or "U8"."""
import json
import struct


def read(path):
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    data = memoryview(raw)[8 + length:]
    return {name: (entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])])
            for name, entry in json.loads(raw[8:8 + length]).items() if name != "__metadata__"}


def without_metadata(raw):
    """Returns the bytes of a file as they would be without metadata, which says nothing about the tensors."""
    (length,) = struct.unpack("<Q", raw[:8])
    header = raw[8:8 + length].rstrip(b" ").replace(b'"__metadata__":{"format":"pt"},', b"", 1)
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + raw[8 + length:]


def write(path, tensors):
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text +
                     b"".join(data for _, _, data in tensors.values()))
