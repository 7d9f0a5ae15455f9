#!/usr/bin/env python3
"""The README's promise: the default job reaches 90 % on Fashion-MNIST."""
import unittest

from emulated_job import ROOT, JobTest


class DefaultJob(JobTest):
    def test_reaches_ninety_percent(self):
        job = self.start("-n", 16, config=(ROOT / "train.cfg").read_text())
        self.assertEqual(job.wait(900), 0, job.stderr)
        outcome = job.profile()["outcome"]
        self.assertGreaterEqual(outcome["testAccuracy"], 0.90)
        self.assertEqual(outcome["testItems"], 10000)
        self.assertEqual(job.profile()["parameterCount"], 421642)
        self.assertIn("test accuracy", job.stdout)


if __name__ == "__main__":
    unittest.main()
