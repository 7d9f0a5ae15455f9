#!/usr/bin/env python3
"""The command line from the point of view of a new user: help, mistakes, variables, colour, and what to try next."""
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios
import threading
import unittest

from emulated_job import BIN, DEADLINE_SECONDS, QUICK, ROOT, JobTest

WRONG = """[device]
ipu = mk3
[training]
stepss = 4
"""


class CommandLine(JobTest):
    def on_a_terminal(self, *arguments, config=QUICK, columns=100, **variables):
        """Returns what the command writes to a terminal with this many columns."""
        (self.folder / "job.cfg").write_text(config)
        environment = {**os.environ, "TERM": "xterm", **variables}
        environment.pop("COLUMNS", None)
        master, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        output = []

        def read():
            while True:
                try:
                    data = os.read(master, 65536)
                except OSError:  # The terminal was closed.
                    return
                output.append(data)

        process = subprocess.Popen([BIN / "poprun-emu", *map(str, arguments), "job.cfg"], stdin=subprocess.DEVNULL,
                                   stdout=terminal, stderr=terminal, cwd=self.folder, env=environment)
        os.close(terminal)
        reader = threading.Thread(target=read)
        reader.start()
        process.wait(DEADLINE_SECONDS)
        reader.join(DEADLINE_SECONDS)
        os.close(master)
        return b"".join(output).decode()

    def test_reports_all_mistakes_of_a_file(self):
        job = self.run_job("--training.epochs", "x", config=WRONG, code=64)
        file = re.search(r"(\S+):2: ", job.stderr)[1]
        self.assertEqual(job.stderr,
                         "poprun-emu: --training.epochs = x is not allowed; allowed: an integer from 1 to 1000000\n"
                         f"{file}:2: ipu = mk3 is not allowed; allowed: bow, mk1, mk2; did you mean mk2?\n"
                         "  2 | ipu = mk3\n"
                         "    |       ^^^\n"
                         f"{file}:4: unknown key stepss in [training]; did you mean steps?\n"
                         "  4 | stepss = 4\n"
                         "    | ^^^^^^\n")

    def test_answers_words(self):
        helped = self.run_job("help", config=None).stdout
        self.assertRegex(helped, r"\nSubcommands .*:\n  check     Run ")
        self.assertEqual(helped, self.run_job("--help", config=None).stdout)
        self.assertEqual(self.run_job("help", "estimate", config=None).stdout,
                         self.run_job("--help", "estimate", config=None).stdout)
        self.assertIn("resnet50", self.run_job("models", config=None).stdout)
        self.assertTrue(json.loads(self.run_job("models", "--format", "json", config=None).stdout)["models"])
        self.assertIn("no file and no subcommand called 'estimat'; did you mean estimate?",
                      self.run_job("estimat", config=None, code=64).stderr)

    def test_shows_all_versions(self):
        short = self.run_job("--version", config=None).stdout
        self.assertRegex(short, r"^poprun-emu \d+\.\d+\.\d+\n$")
        lines = self.run_job("--version", "-v", config=None).stdout
        self.assertTrue(lines.startswith(short))
        for line in (r"commit \S+", r"compiler \S+ .+", r"chips bow mk1 mk2", r"schema of --format json 1", r"gRPC [\d.]+",
                     r"Protobuf [\d.]+", r"oneDNN [\d.]+", r"MPI Open MPI v[\d.]+"):
            self.assertRegex(lines, rf"(?m)^{line}$")

    def test_takes_options_from_the_environment(self):
        variables = {"POPRUN_EMU_TRAINING_STEPS": "2", "POPRUN_EMU_OUTPUT_DRI": "x"}
        job = self.run_job("--dry-run", environment=variables)
        self.assertRegex(job.stdout, r"\nsteps = 2 +# environment\n")
        self.assertIn("POPRUN_EMU_OUTPUT_DRI sets no option; did you mean POPRUN_EMU_OUTPUT_DIR?", job.stderr)
        job = self.run_job("--dry-run", "--training.steps", 3, environment=variables)
        self.assertRegex(job.stdout, r"\nsteps = 3 +# command line\n")

    def test_knows_every_variable_of_other_programs(self):
        options = set(re.findall(r"--([a-z][a-z0-9.-]+)", self.run_job("help", "all", config=None).stdout))
        settable = {"POPRUN_EMU_" + re.sub("[.-]", "_", option).upper() for option in options}
        used = set()
        for folder in ("collectives", "deploy", "hostio", "launcher", "replica", "tests"):
            for file in (ROOT / folder).rglob("*"):
                if file.is_file() and file.suffix in ("", ".cc", ".h", ".py", ".sh", ".txt", ".yaml") and (
                        file.stem not in ("command_line_test", "environment", "environment_test", "mistakes_test")):
                    used |= set(re.findall(r"\bPOPRUN_EMU_[A-Z_]*[A-Z]\b", file.read_text(errors="replace")))
        others = used - settable - {"POPRUN_EMU_TOKEN"}  # A token must be long.
        self.assertGreater(len(others), 15)
        job = self.run_job("--print-topology", config=None, environment=dict.fromkeys(others, "x"))
        self.assertNotIn("sets no option", job.stderr)

    def test_suggests_what_to_try_next(self):
        for arguments, command in ((["estimate"], "poprun-emu --dry-run "), (["--dry-run"], "poprun-emu "),
                                   (["profile", "--no-run"], "poprun-emu "), ([], "poprun-emu profile ")):
            job = self.run_job(*arguments)
            self.assertRegex(job.stderr.splitlines()[-1], rf"^next: {command}(--output-dir \S+ )?\S*job\.cfg$")
            self.assertNotIn("next: ", job.stdout)
        job = self.run_job("--dry-run", "--format", "json")
        self.assertEqual(json.loads(job.stdout)["schema"], 1)
        self.assertNotIn("next: ", job.stderr)

    def test_colours_a_terminal_only(self):
        self.assertIn("\x1b[1;32mfits\x1b[0m: ", self.on_a_terminal("--dry-run"))
        self.assertIn("\x1b[1;31mpoprun-emu:\x1b[0m job.cfg:2: ", self.on_a_terminal(config=WRONG))
        self.assertNotIn("\x1b[1", self.on_a_terminal("--dry-run", NO_COLOR="1"))
        self.assertNotIn("\x1b[1", self.on_a_terminal("--dry-run", "--color", "never"))
        job = self.run_job("--dry-run")
        self.assertNotIn("\x1b", job.stdout + job.stderr)
        self.assertIn("\x1b[1m# compiled\x1b[0m\n", self.run_job("--dry-run", "--color", "always").stdout)
        self.assertNotIn("\x1b", self.run_job("--dry-run", "--color", "always", "--format", "json").stdout)

    def test_shows_no_time_left_after_the_last_step(self):
        shown = self.on_a_terminal("--training.steps", 400, NO_COLOR="1")
        self.assertNotRegex(shown, r"step 400/400[^\r\n]*ETA")
        self.assertIn("next: poprun-emu profile --training.steps 400 job.cfg", shown)


if __name__ == "__main__":
    unittest.main()
