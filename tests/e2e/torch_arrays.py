"""PyTorch for tests that compare with it, and .safetensors files as PyTorch tensors.

Importing this restarts the test in the system's Python if only that one has PyTorch, and skips the test (exit code 77)
if none has it.
"""
import importlib.util
import os
import sys

SYSTEM_PYTHON = "/usr/bin/python3"  # The one that may have Debian's python3-torch.
if importlib.util.find_spec("torch") is None:
    if os.path.realpath(sys.executable) != os.path.realpath(SYSTEM_PYTHON) and \
            os.path.exists(SYSTEM_PYTHON):
        os.execv(SYSTEM_PYTHON, [SYSTEM_PYTHON, "-B", *sys.argv])
    print("skipped: needs PyTorch; on Debian: apt install python3-torch")
    sys.exit(77)

import numpy  # noqa: E402
import torch  # noqa: E402
import safetensors_file  # noqa: E402

KINDS = {"F32": numpy.float32, "F16": numpy.float16, "I32": numpy.int32}


def read(path):
    return {name: torch.tensor(numpy.frombuffer(data, KINDS[dtype]).reshape(shape))
            for name, (dtype, shape, data) in safetensors_file.read(path).items()}


def write(path, tensors):
    """Writes float32 tensors or arrays."""
    arrays = {name: numpy.asarray(tensor, dtype=numpy.float32) for name, tensor in tensors.items()}
    safetensors_file.write(path, {name: ("F32", list(array.shape), array.tobytes())
                                  for name, array in arrays.items()})
