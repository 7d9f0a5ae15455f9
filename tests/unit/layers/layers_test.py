#!/usr/bin/env python3
"""Reads every #include of our sources and fails on an arrow that layers.txt lacks.

usage: layers_test.py REPOSITORY
"""
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
ROOMS = ("launcher", "replica", "collectives", "hostio")
COMMANDS = ("launcher", "replica")  # Their rows are for main.cc: every folder below has its own row.
INCLUDE = re.compile(r'^\s*#include\s+(?:"(?P<ours>[^"]+)"|(?P<theirs><[^>]+)>)', re.M)


def read_layers():
    ours, theirs = {}, {}
    for line in (pathlib.Path(__file__).parent / "layers.txt").read_text().splitlines():
        line = line.split("#")[0].strip()
        if line:
            name, allowed = line.rsplit(":", 1)
            (theirs if name.startswith("<") else ours)[name] = allowed.split()
    return ours, theirs


OURS, THEIRS = read_layers()


def below(path, folder):
    return path == folder or path.startswith(folder + "/")


def layer_of(path):
    """The longest listed folder that contains `path`, or None."""
    return max((f for f in OURS if below(path, f)), key=len, default=None)


def violations(path, text):
    """Complaints about the includes of the file `path`, one line each."""
    folder = str(pathlib.PurePosixPath(path).parent)
    layer = layer_of(folder)
    if layer is None or (layer in COMMANDS and layer != folder):
        yield f"{path}: {folder} is not in layers.txt"
        return
    for match in INCLUDE.finditer(text):
        if match["ours"]:
            # Families and generated headers are in the folder of the same name.
            target = str(pathlib.PurePosixPath(match["ours"]).parent)
            if not below(target, layer) and not any(below(target, f) for f in OURS[layer]):
                yield f'{path}: {layer} may not include "{match["ours"]}"'
        else:
            for prefix, allowed in THEIRS.items():
                if match["theirs"].startswith(prefix) and not any(below(path, f) for f in allowed):
                    yield f'{path}: {match["theirs"]}> is for {", ".join(allowed)} only'


def sources():
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*")):
            if path.suffix in (".h", ".cc"):
                yield path.relative_to(ROOT).as_posix(), path.read_text()


class Layers(unittest.TestCase):
    def test_every_include_follows_an_arrow(self):
        files = list(sources())
        self.assertGreater(len(files), 50)
        self.assertEqual([v for path, text in files for v in violations(path, text)], [])

    def test_no_folder_for_odds_and_ends(self):
        names = {part for path, _ in sources() for part in pathlib.PurePosixPath(path).parts}
        self.assertEqual(names & {"util", "utils", "common", "misc", "helpers"}, set())

    def test_planted_arrows_are_reported(self):
        planted = {
            "replica/engine/x.cc": '#include "replica/compiler/compile.h"',
            "replica/compiler/liveness/x.cc": '#include "replica/compiler/passes/passes.h"',
            "replica/compiler/differentiation/x.h": '#include "replica/compiler/job/job.h"',
            "replica/compiler/x.cc": '#include "replica/engine/engine.h"',
            "replica/graph/x.h": '#include "replica/ops/face/operator.h"',
            "launcher/x.cc": '#include "hostio/streams/client.h"',
            "replica/engine/y.cc": "#include <dnnl.hpp>",
            "hostio/x.cc": "#include <mpi.h>",
            "hostio/formats/x.cc": '#include "hostio/datasets/dataset.h"',
            "hostio/datasets/x.cc": '#include "hostio/streams/wire.h"',
            "replica/engine/z.cc": '#include "replica/tools/onnx_check/onnx_check.h"',
            "replica/instance/x.cc": '#include "hostio/streams/client.h"',
            "replica/ports/x.h": "#include <grpcpp/grpcpp.h>",
            "collectives/local/x.cc": "#include <asio.hpp>",
            "newroom/x.cc": "",
            "launcher/newroom/x.cc": "",
            "launcher/mpi/x.cc": '#include "launcher/process/child.h"',
            "launcher/outputs/x.cc": '#include "launcher/x.h"',
            "launcher/verdict/x.cc": "#include <asio/steady_timer.hpp>",
            "launcher/job/x.cc": "#include <boost/program_options.hpp>",
        }
        for path, text in planted.items():
            self.assertEqual(len(list(violations(path, text))), 1, path)


if __name__ == "__main__":
    unittest.main()
