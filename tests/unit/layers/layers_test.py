#!/usr/bin/env python3
"""Reads all our sources and checks their structure: every #include follows an arrow of layers.txt, no arrow is unused,
there are no include cycles, and no two files define the same type.

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
    """Returns the longest listed folder that contains `path`, or None."""
    return max((f for f in OURS if below(path, f)), key=len, default=None)


def violations(path, text):
    """Returns complaints about the includes of the file `path`, one line each."""
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


def arrows(files, node):
    """Returns {node: nodes that it includes}; `node` maps a path to its node."""
    result = {}
    for path, text in files:
        mine = result.setdefault(node(path), set())
        mine |= {node(m["ours"]) for m in INCLUDE.finditer(text) if m["ours"]} - {node(path)}
    return result


def circles(graph):
    """Returns the sets of nodes that reach each other, sorted (Tarjan's strongly connected components)."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in index:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            at = stack.index(node)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return sorted(found)


def folder(path):
    return str(pathlib.PurePosixPath(path).parent)


def pair(path):
    """Maps a header and its source to one node."""
    return path.rsplit(".", 1)[0]


def unused_arrows(files):
    used = {(layer_of(folder(path)), layer_of(folder(m["ours"])), folder(m["ours"]))
            for path, text in files for m in INCLUDE.finditer(text) if m["ours"]}
    for layer, allowed in OURS.items():
        for other in allowed:
            if not any(mine == layer and below(target, other) for mine, _, target in used):
                yield f"{layer} may include {other} and does not"


TOKEN = re.compile(
    r'//[^\n]*|R"(?P<raw>\w*)\(.*?\)(?P=raw)"'
    r"|/\*.*?\*/|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])'|^\s*#[^\n]*"
    r"|namespace(?:\s+(?P<space>[\w:]+))?\s*\{"
    r"|(?P<type>struct|class|union|enum(?:\s+class)?)\s+(?P<name>[\w:]+)(?:\s+final)?(?:\s*:[^;{}()]*)?\s*\{|[{}]",
    re.M | re.S)


def types(text):
    """Returns the full names of the types that `text` defines globally, not in functions or unnamed namespaces."""
    scopes = []  # A name for each open namespace, None for any other open brace.
    for match in TOKEN.finditer(text):
        token = match[0]
        if token.startswith("namespace"):
            scopes.append(match["space"])
        elif match["type"]:
            if None not in scopes:
                yield "::".join([*scopes, match["name"]])
            scopes.append(None)
        elif token == "{":
            scopes.append(None)
        elif token == "}":
            scopes.pop()


def types_defined_twice(files):
    where = {}
    for path, text in files:
        for name in types(text):
            where.setdefault(name, []).append(path)
    return [f"{name}: {', '.join(paths)}" for name, paths in sorted(where.items()) if len(paths) > 1]


class Layers(unittest.TestCase):
    maxDiff = None

    def test_every_include_follows_an_arrow(self):
        files = list(sources())
        self.assertGreater(len(files), 50)
        self.assertEqual([v for path, text in files for v in violations(path, text)], [])

    def test_every_arrow_is_used(self):
        self.assertEqual(list(unused_arrows(list(sources()))), [])

    def test_no_folders_include_each_other_in_a_circle(self):
        self.assertEqual(circles(arrows(sources(), folder)), [])

    def test_no_files_include_each_other_in_a_circle(self):
        self.assertEqual(circles(arrows(sources(), pair)), [])

    def test_no_type_is_defined_twice(self):
        """Two definitions of a type in one program are undefined behaviour, which no tool is required to report."""
        self.assertEqual(types_defined_twice(sources()), [])

    def test_every_field_of_run_config_is_read(self):
        """A setting that no code reads would silently have no effect."""
        fields = re.findall(r"^  (?:optional |repeated )?[\w.]+ (\w+) = \d+;", (ROOT / "proto/run_config.proto").read_text(), re.M)
        self.assertGreater(len(fields), 80)
        text = "".join(text for path, text in sources() if not below(path, "launcher/options"))
        self.assertEqual([name for name in fields if not re.search(rf"\b{name}\(", text)], [])

    def test_planted_circles_and_types_are_reported(self):
        files = [("replica/a/x.h", '#include "replica/b/y.h"\nnamespace n { struct T { int i; }; }'),
                 ("replica/b/y.cc", '#include "replica/a/z.h"\nnamespace n { namespace { struct T {}; } }'),
                 ("replica/a/z.h", "namespace n { enum class T : int { k }; void f() { struct U {}; } }"),
                 ("replica/b/y.h", '#include "replica/a/x.h"\nnamespace n { class U; // struct T {\n }')]
        self.assertEqual(circles(arrows(files, folder)), [["replica/a", "replica/b"]])
        self.assertEqual(circles(arrows(files, pair)), [["replica/a/x", "replica/b/y"]])
        self.assertEqual(types_defined_twice(files), ["n::T: replica/a/x.h, replica/a/z.h"])

    def test_no_folder_for_odds_and_ends(self):
        names = {part for path, _ in sources() for part in pathlib.PurePosixPath(path).parts}
        self.assertEqual(names & {"util", "utils", "common", "misc", "helpers"}, set())

    def test_planted_arrows_are_reported(self):
        planted = {
            "replica/engine/x.cc": '#include "replica/compiler/compile.h"',
            "replica/compiler/lives/x.cc": '#include "replica/compiler/passes.h"',
            "replica/compiler/planner/x.h": '#include "replica/compiler/job/pass.h"',
            "replica/compiler/x.cc": '#include "replica/engine/engine.h"',
            "replica/graph/x.h": '#include "replica/ops/face/operator.h"',
            "launcher/x.cc": '#include "hostio/streams/client.h"',
            "replica/engine/y.cc": "#include <dnnl.hpp>",
            "hostio/x.cc": "#include <mpi.h>",
            "hostio/formats/x.cc": '#include "hostio/datasets/dataset.h"',
            "hostio/datasets/x.cc": '#include "hostio/streams/wire.h"',
            "replica/engine/z.cc": '#include "replica/tools/onnx_check/onnx_check.h"',
            "replica/loops/x.cc": '#include "hostio/streams/client.h"',
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
