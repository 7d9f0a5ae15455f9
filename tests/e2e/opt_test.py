#!/usr/bin/env python3
"""poprun-emu-opt runs a pass of the compiler alone on what `--dry-run -vv` prints."""
import re
import subprocess
import unittest

from emulated_job import BIN, DEADLINE_SECONDS, JobTest

MLP = """
[model]
name = mlp
layers = 4
hidden = 16
[data]
source = synthetic:images=1x8x8,classes=10,items=512
micro-batch-size = 2
[training]
steps = 10
gradient-accumulation = 4
evaluate = false
[pipeline]
recomputation = layer
[memory]
optimizer-state = off-chip
outlining = on
"""


class PassAlone(JobTest):
    def opt(self, *arguments, text=""):
        done = subprocess.run([BIN / "poprun-emu-opt", *arguments], input=text, capture_output=True, text=True,
                              timeout=DEADLINE_SECONDS)
        return done.returncode, done.stdout, done.stderr

    def test_gives_the_job_of_the_compilation(self):
        shown = self.run_job("--dry-run", "-vv", "--ipus-per-replica", "2", config=MLP).stdout
        states = dict(re.findall(r"^(# job after pass [^\n]+\n)(.*?)(?=^# )", shown, re.M | re.S))
        for name in ("forward", "differentiation", "update", "recomputation", "pipeline", "locations", "outlining"):
            heading = f"# job after pass {name}\n"
            self.assertEqual(self.opt("--pass", name, "-", text=shown), (0, heading + states[heading], ""), name)

    def test_says_in_one_line_what_is_wrong(self):
        code, out, err = self.opt("--pass", "outlining")
        self.assertEqual((code, out), (64, ""))
        self.assertEqual(err, "usage: poprun-emu-opt --pass NAME FILE, with the output of poprun-emu --dry-run -vv in "
                              "FILE\n")
        self.assertEqual(self.opt("--pass", "outlining", self.folder / "none"),
                         (65, "", f"{self.folder / 'none'}: cannot be read\n"))
        self.assertEqual(self.opt("--pass", "outlinig", "-"),
                         (64, "", "--pass outlinig: unknown pass; did you mean outlining?\n"))
        self.assertEqual(self.opt("--pass", "outlining", "-"),
                         (64, "", "the options, which begin with a line '# options', are missing\n"))


if __name__ == "__main__":
    unittest.main()
