#!/usr/bin/env python3
"""Every job in deploy/examples takes its first steps."""
import re
import unittest

from emulated_job import ROOT, JobTest

EXAMPLES = sorted((ROOT / "deploy/examples").glob("*.cfg"))


class Examples(JobTest):
    def test_there_are_some(self):
        self.assertGreaterEqual(len(EXAMPLES), 6)

    def test_take_their_first_steps(self):
        for path in EXAMPLES:
            with self.subTest(path.name):
                job = self.run_job("-n", 2, "--training.steps", 2, "--training.evaluate", "false",
                                   config=path.read_text())
                self.assertEqual(job.profile()["outcome"]["steps"], 2)

    def test_say_how_they_are_started(self):
        for path in EXAMPLES:
            command = rf"#   poprun-emu -n \d+ deploy/examples/{re.escape(path.name)}\n"
            self.assertRegex(path.read_text(), command)


if __name__ == "__main__":
    unittest.main()
