#!/usr/bin/env python3
"""Every command line in the documents, examples and help texts is accepted by its program."""
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import unittest

from emulated_job import BIN, ROOT, JobTest

# The programs whose options are checked here; any other first word is a command of another project.
OURS = re.compile(r"(\w+=\S+ )*(poprun-emu(-hostio|-onnx-check)?|deploy/\w+(/build)?|tests/\S+\.py|ctest|build/release/\S+)( |$)")
PLACEHOLDER = re.compile(r"\.\.\.|\b[A-Z]{2,}\b|\bA B\b")
# Lets a script parse its arguments, and then ends it.
PARSE_ONLY = """
import argparse, runpy, sys
parse = argparse.ArgumentParser.parse_args
def parse_and_exit(*words, **keywords):
    parse(*words, **keywords)
    sys.exit(0)
argparse.ArgumentParser.parse_args = parse_and_exit
sys.argv = sys.argv[1:]
sys.path.insert(0, sys.argv[0].rsplit("/", 1)[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def joined(lines):
    """Joins lines that end in a backslash with the next ones."""
    whole = ""
    for line in lines:
        whole += line.rstrip("\\")
        if not line.endswith("\\"):
            yield whole
            whole = ""


def commands_in(path):
    """Returns the command lines of a document: lines of its code blocks, and quoted text."""
    text = path.read_text()
    if path.suffix == ".cfg":
        lines = re.findall(r"^#\s+(poprun-emu .*)", text, re.M) + re.findall(r"`([^`]+)`", text)
    else:
        blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S)
        quoted = re.findall(r"`([^`]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))
        lines = [line.removeprefix("$ ") for block in blocks for line in joined(block.splitlines())]
        lines += [re.sub(r"\s+", " ", words) for words in quoted]
    return lines


def words_of(line):
    """Returns the first command of a shell line, without variable assignments."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    words = []
    for word in lexer:
        if set(word) <= set("|&;<>"):
            break
        words.append(word)
    while words and re.match(r"\w+=", words[0]):
        words.pop(0)
    return words


class Documented(JobTest):
    def sources(self):
        for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("[a-z]*/**/*.md"), *ROOT.glob("**/*.cfg")]):
            place = path.relative_to(ROOT)
            if place.parts[0] != "build" and place.name not in ("CHANGELOG.md", "DECISIONS.md"):
                yield str(place), commands_in(path)
        helped = [BIN / "poprun-emu", BIN / "poprun-emu-hostio"]
        for program, *topic in ((helped[0], "all"), (helped[0], "check"), (helped[0], "estimate"), (helped[0], "profile"),
                                (helped[1],)):
            text = subprocess.run([program, "--help", *topic], check=True, capture_output=True, text=True).stdout
            yield f"{program.name} --help {' '.join(topic)}", re.findall(r"Example: (.*?):?$", text, re.M)

    def commands(self):
        """Yields the place and the words of each command."""
        for place, lines in self.sources():
            for line in lines:
                if OURS.match(line) and not re.match(r"\S+: ", line):
                    yield place, line, words_of(line)

    def run_here(self, *words):
        return subprocess.run([str(word) for word in words], cwd=self.folder / "here", capture_output=True, text=True,
                              timeout=120, env={**os.environ, "POPRUN_EMU_TOKEN": "token-of-the-test"})

    def check_poprun_emu(self, words):
        quick = words[-1] in ("train.cfg", "deploy/examples/mlp.cfg") and "-H" not in words
        if words[0] == "profile" and "--compare" in words or any(PLACEHOLDER.search(word) for word in words):
            words = [*words, "--version"]
        elif quick and words[0] not in ("check", "estimate", "profile"):
            words = [*words, "--dry-run"]
        elif not any(word in ("--help", "--version", "--list-models", "--print-topology") for word in words):
            words = [*words, "--version"]
        done = self.run_here(BIN / "poprun-emu", *words)
        self.assertIn(done.returncode, (0, 86) if "out of memory" in done.stderr else (0,), done.stderr)

    def check_script(self, words):
        script = ROOT / words[0]
        if len(words) == 1 and script.exists() and not script.read_bytes().startswith(b"#!"):
            return  # A file name, not a command.
        self.assertTrue(os.access(script, os.X_OK), f"{words[0]} cannot be run")
        if script.suffix == ".py" and not any(PLACEHOLDER.search(word) for word in words):
            done = self.run_here(sys.executable, "-B", "-c", PARSE_ONLY, script, *words[1:])
            self.assertEqual(done.returncode, 0, done.stderr)

    def check_tests(self, words):
        if any(PLACEHOLDER.search(word) for word in words) or not (ROOT / "CMakePresets.json").exists():
            return
        words = words if "--preset" in words else ["ctest", "--preset", "release", *words[1:]]
        found = subprocess.run([*words, "-N"], cwd=ROOT, capture_output=True, text=True)
        if "No such file or directory" not in found.stderr:
            self.assertRegex(found.stdout, r"Total Tests: [1-9]", found.stderr)

    def check(self, words):
        program = pathlib.Path(words[0]).name
        if program in ("poprun-emu", "run"):
            self.check_poprun_emu(words[1:])
        elif program == "poprun-emu-hostio":
            done = self.run_here(BIN / program, *[re.sub("^~", str(self.folder), word) for word in words[1:]], "--version")
            self.assertEqual(done.returncode, 0, done.stderr)
        elif program == "ctest":
            self.check_tests(words)
        elif words[0].startswith(("deploy/", "tests/")):
            self.check_script(words)

    def test_commands_are_taken_by_their_programs(self):
        here = self.folder / "here"
        here.mkdir()
        shutil.copy(ROOT / "train.cfg", here)
        (here / "deploy").symlink_to(ROOT / "deploy")
        (here / "hosts.txt").write_text("localhost\n")
        checked = set()
        for place, line, words in self.commands():
            if tuple(words) not in checked and len(words) > 1 or words[0].endswith(".py"):
                checked.add(tuple(words))
                with self.subTest(f"{place}: {line}"):
                    self.check(words)
        self.assertGreater(len(checked), 60)
        programs = {words[0] for words in checked}
        self.assertLessEqual({"poprun-emu", "poprun-emu-hostio", "deploy/run", "ctest", "tests/faults/campaign.py"}, programs)

    def test_scripts_can_be_run(self):
        for path in [*ROOT.glob("*"), *ROOT.glob("deploy/**/*"), *ROOT.glob("tests/**/*"), *ROOT.glob("launcher/**/*")]:
            if path.is_file():
                with open(path, "rb") as file, self.subTest(path):
                    self.assertEqual(file.read(2) == b"#!", os.access(path, os.X_OK))


if __name__ == "__main__":
    unittest.main()
