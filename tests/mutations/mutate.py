#!/usr/bin/env python3
"""Changes the sources of a few rooms, one place at a time, and shows which changes no test notices.

    tests/mutations/mutate.py --seed 1 --count 100           # about 15 s per mutant on two cores
    tests/mutations/mutate.py --room launcher/outputs --all
    tests/mutations/mutate.py --again LOG                    # only those that survived in an earlier run

Each mutant negates a condition, swaps && and ||, or removes a call whose result is not used (fsync, close, lock, erase
...) or a POPRUN_TRY. One of the room's unit tests, or one of its tests of the real command (with the replica
of build/release), must then fail. Survivors are printed with file, line and change. The exit code is 1 if fewer than
--score of the mutants are found. A survivor for which survivors.txt gives a reason (one line each, `FILE: the line's
text # reason`) does not count. Only a copy of the tree is changed."""
import argparse
import dataclasses
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
REASONS = pathlib.Path(__file__).resolve().parent / "survivors.txt"
# Room: the test programs, and the tests of each that concern the room.
ROOMS = {
    "launcher/outputs": (
        ("launcher_test", "CheckpointFiles*:ResultFiles*:JobResults*:CheckResults*:Npy*:Safetensors*:Sha256*"),
        ("launcher_simulation_test", "*")),
    "launcher/process": (("launcher_test", "Child*:Supervisor*:Guard*:ProcessHandle*:Parent*"),),
    "launcher/wire": (("launcher_wire_test", "*"), ("launcher_job_test", "*")),
    "replica/base/grpc": (("replica_base_test", "*"),),
}
# Room: tests of the real command, in tests/e2e.
E2E = {
    "launcher/outputs": ("checkpoint", "weights", "full_disk"),
    "launcher/process": ("leftovers", "launcher"),
    "launcher/wire": ("weights", "data_server", "checkpoint"),
    "replica/base/grpc": ("data_server",),
}
# The programs of the mutated tree with which these tests run; all others are those of build/release.
PROGRAMS = ("poprun-emu", "poprun-emu-hostio", "fake_replica")
TEST_SECONDS_MAX = 90
E2E_SECONDS_MAX = 600


@dataclasses.dataclass
class Mutant:
    file: pathlib.Path  # Relative to the root.
    line: int           # From 1.
    what: str
    before: str
    after: str

    def __str__(self):
        return f"{self.file}:{self.line}: {self.what}: {self.before.strip()}"


def mutants_of(file):
    """Returns the changes of one source."""
    found = []
    lines = (ROOT / file).read_text().split("\n")
    for i, line in enumerate(lines):
        def add(what, after, number=i, before=line):
            found.append(Mutant(file, number + 1, what, before, after))

        if re.match(r"\s*(//|#|\})", line):
            continue
        if (condition := re.match(r"(\s*(?:\} else )?if \()(?!const|auto|Status|Result|std::)(.*)(\) \{)$", line)):
            add("negates", f"{condition[1]}!({condition[2]}){condition[3]}")
        if (condition := re.match(r"(\s*while \()(.*)(\) \{)$", line)) and "true" not in condition[2]:
            add("never loops", f"{condition[1]}false && ({condition[2]}){condition[3]}")
        for one, other in ((" && ", " || "), (" || ", " && ")):
            if one in line and not line.rstrip().endswith(one.strip()):
                add(f"swaps{one}", line.replace(one, other, 1))
        is_statement = i == 0 or re.search(r"([;{}]|^\s*//.*|^)$", lines[i - 1]) and line.count("(") == line.count(")")
        if is_statement and re.match(r"\s*(POPRUN_TRY\(.*\)|static_cast<void>\(.*\)|[a-z_:>.\-]+\(.*\));$", line) and "return" not in line:
            add("removes", re.match(r"\s*", line)[0] + ";")
        if (bound := re.search(r" (<|>|<=|>=) ", line)) and "template" not in line and "<<" not in line:
            swapped = {"<": "<=", ">": ">=", "<=": "<", ">=": ">"}[bound[1]]
            add("moves a bound", line[:bound.start()] + f" {swapped} " + line[bound.end():])
    return found


class Tree:
    """A copy of the sources, with a build of its own that compiles each source alone and quickly."""

    def __init__(self, folder):
        self.root = folder / "tree"
        self.build = folder / "build"
        shutil.copytree(ROOT, self.root, ignore=shutil.ignore_patterns("build", ".git"), symlinks=True, dirs_exist_ok=True)
        subprocess.run(["cmake", "-G", "Ninja", "-S", self.root, "-B", self.build, "-DCMAKE_BUILD_TYPE=Debug",
                        "-DCMAKE_CXX_FLAGS=-O0 -g0 -Wno-error"], check=True, stdout=subprocess.DEVNULL)

        for folder in ("bin", "lib"):
            if (ROOT / "build/release" / folder).exists():
                shutil.copytree(ROOT / "build/release" / folder, self.build / folder, dirs_exist_ok=True)

    def make(self, *targets):
        return subprocess.run(["cmake", "--build", self.build, "--target", *targets], capture_output=True, text=True,
                              check=False).returncode == 0

    def passes(self, target, tests):
        try:
            return subprocess.run([self.build / "tests/unit" / target, f"--gtest_filter={tests}", "--gtest_brief=1"],
                                  capture_output=True, timeout=TEST_SECONDS_MAX, check=False).returncode == 0
        except subprocess.TimeoutExpired:
            return False

    def passes_e2e(self, name):
        environment = {**os.environ, "POPRUN_EMU_BIN": str(self.build / "bin"), "POPRUN_EMU_ROOT": str(self.root),
                       "POPRUN_EMU_FAKE_REPLICA": str(self.build / "tests/e2e/fake_replica")}
        try:
            return subprocess.run([sys.executable, "-B", "-m", "unittest", "-f", f"{name}_test"], env=environment,
                                  cwd=self.root / "tests/e2e", capture_output=True, timeout=E2E_SECONDS_MAX,
                                  check=False).returncode in (0, 77)
        except subprocess.TimeoutExpired:
            return False

    def outcome(self, mutant, room):
        """Returns "found", "survives", or "does not compile"."""
        path = self.root / mutant.file
        source = path.read_text()
        lines = source.split("\n")
        lines[mutant.line - 1] = mutant.after
        try:
            path.write_text("\n".join(lines))
            for target, tests in ROOMS[room]:
                if not self.make(target):
                    return "does not compile"
                if not self.passes(target, tests):
                    return "found"
            if self.make(*PROGRAMS) and not all(map(self.passes_e2e, E2E[room])):
                return "found"
            return "survives"
        finally:
            path.write_text(source)


def reasons():
    """Returns the lines that may survive, by file."""
    found = {}
    for line in REASONS.read_text().splitlines() if REASONS.exists() else ():
        if line and not line.startswith("#"):
            file, _, rest = line.partition(": ")
            found.setdefault(file, set()).add(rest.rpartition(" # ")[0].strip())
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--all", action="store_true", help="every mutant")
    parser.add_argument("--again", type=pathlib.Path, help="only mutants that survived in this log")
    parser.add_argument("--room", choices=ROOMS, help="only this room")
    parser.add_argument("--score", type=float, default=0.9, help="fraction of the mutants that must be found")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build/mutants", help="for the copy and its build")
    options = parser.parse_args()
    mutants = [(room, mutant) for room in ROOMS if options.room in (None, room)
               for file in sorted((ROOT / room).glob("*.cc")) for mutant in mutants_of(file.relative_to(ROOT))]
    if options.again:
        # Lines may have moved meanwhile.
        survived = set(re.findall(r"^SURVIVES (.*?):\d+(: .*)$", options.again.read_text(), re.MULTILINE))
        mutants = [(room, mutant) for room, mutant in mutants
                   if (str(mutant.file), f": {mutant.what}: {mutant.before.strip()}") in survived]
    elif not options.all:
        mutants = random.Random(options.seed).sample(mutants, min(options.count, len(mutants)))
    tree = Tree(options.folder)
    for room in sorted({room for room, _ in mutants}):
        for target, tests in ROOMS[room]:
            if not tree.make(target) or not tree.passes(target, tests):
                sys.exit(f"{target} fails without a mutant")
        for name in E2E[room]:
            if not tree.make(*PROGRAMS) or not tree.passes_e2e(name):
                sys.exit(f"e2e_{name} fails without a mutant")
    allowed = reasons()
    table = {room: dict.fromkeys(("found", "survives", "allowed", "does not compile"), 0) for room in ROOMS}
    for number, (room, mutant) in enumerate(mutants, start=1):
        outcome = tree.outcome(mutant, room)
        if outcome == "survives" and mutant.before.strip() in allowed.get(str(mutant.file), ()):
            outcome = "allowed"
        table[room][outcome] += 1
        print(f"{number} of {len(mutants)}: {outcome}", file=sys.stderr, flush=True)
        if outcome == "survives":
            print(f"SURVIVES {mutant}", flush=True)
    print(f"\n{'room':20} {'found':>8} {'survive':>8} {'allowed':>8} {'invalid':>8}")
    for room, count in table.items():
        print(f"{room:20} {count['found']:8} {count['survives']:8} {count['allowed']:8} {count['does not compile']:8}")
    found = sum(count["found"] for count in table.values())
    judged = found + sum(count["survives"] for count in table.values())
    score = found / judged if judged else 1.0
    print(f"score {score:.1%}: {found} of {judged} found; at least {options.score:.0%} are required")
    sys.exit(0 if score >= options.score else 1)


if __name__ == "__main__":
    main()
