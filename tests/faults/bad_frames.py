#!/usr/bin/env python3
"""Sends bytes that no client of the job would send to listening ports: bad_frames.py SEED SECONDS ADDRESS:PORT...

A separate program, so that it can be started in a host's network namespace. Prints, as JSON, how many connections each
port accepted."""
import collections
import json
import random
import socket
import struct
import sys
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS = 0, 1, 4
END_STREAM, END_HEADERS = 1, 4
BYTES_MAX = 4 << 20


def frame(kind, flags, stream, payload, length=None):
    length = len(payload) if length is None else length
    return struct.pack(">I", length)[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def field(name, value):
    """Encodes a header without compression (RFC 7541, 6.2.2)."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def call(path, token, message):
    headers = b"".join(field(name, value) for name, value in (
        (b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"localhost"),
        (b"te", b"trailers"), (b"content-type", b"application/grpc"), (b"poprun-token", token)))
    return (PREFACE + frame(SETTINGS, 0, 0, b"") + frame(HEADERS, END_HEADERS, 1, headers) +
            frame(DATA, END_STREAM, 1, b"\0" + struct.pack(">I", len(message)) + message))


def random_bytes(rng):
    return rng.randbytes(rng.choice((1, 24, 1000, 100_000)))


def truncated(rng):
    whole = call(b"/poprun.proto.Coordinator/Join", b"0" * 32, b"")
    return whole[:rng.randrange(1, len(whole))]


def wrong_token(rng):
    path = rng.choice((b"/poprun.proto.Coordinator/Join", b"/poprun.proto.Coordinator/Heartbeat",
                       b"/poprun.proto.Coordinator/Report", b"/poprun.proto.Coordinator/Fail",
                       b"/poprun.proto.HostStreams/Describe", b"/poprun.proto.HostStreams/Pull"))
    return call(path, bytes(rng.choices(b"0123456789abcdef", k=32)), rng.randbytes(rng.randrange(100)))


def huge_frame(rng):
    """Returns a frame that claims to have 16 MiB, or a message that claims to have 4 GiB."""
    start = PREFACE + frame(SETTINGS, 0, 0, b"")
    if rng.random() < 0.5:
        return start + frame(DATA, 0, 1, bytes(BYTES_MAX), 0xFFFFFF)
    return call(b"/poprun.proto.Coordinator/Join", b"0" * 32, b"")[:-5] + b"\0\xff\xff\xff\xff" + bytes(1000)


def nothing(_):
    return b""


ATTACKS = (random_bytes, truncated, wrong_token, huge_frame, nothing)


def attack(rng, address, port):
    """Returns whether the port accepted the connection; how the port reacts afterwards does not matter."""
    connected = False
    try:
        with socket.create_connection((address, port), timeout=1) as connection:
            connected = True
            connection.sendall(rng.choice(ATTACKS)(rng))
            if rng.random() < 0.5:
                connection.settimeout(0.05)
                connection.recv(1000)
    except OSError:
        pass
    return connected


def main():
    rng = random.Random(sys.argv[1])
    until = time.monotonic() + float(sys.argv[2])
    ports = sys.argv[3:]
    tried, taken = 0, collections.Counter()
    while time.monotonic() < until or tried < len(ports):  # A port that reads nothing may take a second.
        name = ports[tried % len(ports)]
        address, port = name.rsplit(":", 1)
        taken[name] += attack(rng, address, int(port))
        tried += 1
        time.sleep(0.005)
    print(json.dumps(taken))


if __name__ == "__main__":
    main()
