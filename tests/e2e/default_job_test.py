#!/usr/bin/env python3
"""The README's promise: the default job reaches 90 % on Fashion-MNIST. Set POPRUN_EMU_LONG to test it; else the job has
only two of its eight epochs, and must reach 88 %."""
import os
import unittest

from emulated_job import ROOT, JobTest


class DefaultJob(JobTest):
    def test_reaches_its_accuracy(self):
        whole = "POPRUN_EMU_LONG" in os.environ
        epochs = [] if whole else ["--training.epochs", 2]
        job = self.start("-n", 16, *epochs, config=(ROOT / "train.cfg").read_text())
        self.assertEqual(job.wait(900), 0, job.stderr)
        outcome = job.profile()["outcome"]
        self.assertGreaterEqual(outcome["testAccuracy"], 0.90 if whole else 0.88)
        self.assertEqual(outcome["testItems"], 10000)
        self.assertEqual(job.profile()["parameterCount"], 421642)
        self.assertIn("test accuracy", job.stdout)


if __name__ == "__main__":
    unittest.main()
