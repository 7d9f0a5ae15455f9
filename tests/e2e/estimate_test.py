#!/usr/bin/env python3
"""poprun-emu estimate, as a user runs it: the memory and the number of IPUs that a job needs."""
import re
import unittest

from emulated_job import QUICK, ROOT, JobTest

TEXT = f"""
[model]
name = gpt2
layers = 2
hidden = 32
heads = 2
vocabulary = 257
sequence-length = 64
[data]
source = text:{ROOT}/ARCHITECTURE.md
sequence-length = 16
micro-batch-size = 2
[training]
steps = 2
optimizer = adamw
evaluate = false
"""


def number(text):
    return int(text.replace(",", ""))


class Estimate(JobTest):
    def row(self, text, name):
        """Returns the cells of the last row of that name."""
        rows = [line for line in text.splitlines() if line.startswith(name + "  ")]
        self.assertTrue(rows, text)
        return re.split("  +", rows[-1])[1:]

    def test_counts_by_the_guide_and_by_the_job(self):
        job = self.run_job("estimate", config=QUICK)
        # conv1 288, conv2 18,432, fc1 3,136 * 128, fc2 128 * 10 weights; 32 + 64 + 128 + 10 biases.
        self.assertEqual(self.row(job.stdout, "N_weights"), ["421,408", "421,408"])
        self.assertEqual(self.row(job.stdout, "N_biases"), ["234", "234"])
        self.assertEqual(self.row(job.stdout, "N_optimiser_states")[1], "421,642")
        self.assertEqual(self.row(job.stdout, "N_activations")[1], "85,722")
        self.assertEqual(self.row(job.stdout, "N_gradients")[1], "342,888")
        self.assertEqual(self.row(job.stdout, "N_backprop_vars")[1], "843,284")
        self.assertEqual(self.row(job.stdout, "IPUs suggested"), ["1", "1", "1"])
        self.assertLessEqual(max(map(len, job.stdout.splitlines())), 80)
        self.assertFalse(job.output_dir.exists(), "an estimate writes nothing")
        self.assert_gone(job)

    def test_compiled_is_what_a_dry_run_says(self):
        estimated = self.run_job("estimate", "--compile", config=QUICK)
        compiled = self.run_job("--dry-run", config=QUICK)
        peak = re.search(r"IPU 0 memory +(.*) peak of", compiled.stdout)[1]
        self.assertIn(f"IPU 0 memory   {peak} peak of 897.0 MiB", estimated.stdout)
        self.assertRegex(estimated.stdout, r"\n  vertices +\S+ MiB +\d+ %\n  control  ")

    def test_of_what_does_not_fit_is_no_failure(self):
        job = self.run_job("estimate", "--compile", "--data.micro-batch-size", 4096, config=QUICK)
        tile = re.search(r"\n  tiles +tile \d+ is the fullest, ([\d,]+) of 638,976 B, ([\d,]+) B over; ", job.stdout)
        self.assertEqual(number(tile[1]) - number(tile[2]), 638_976)
        self.assertIn(tile[0], self.run_job("--dry-run", "--data.micro-batch-size", 4096, config=QUICK, code=86).stdout)
        self.assertGreater(int(self.row(job.stdout, "IPUs suggested")[2]), 1)

    def test_by_layer_has_formulas_with_v(self):
        job = self.run_job("estimate", "--by-layer", "-v", config=QUICK)
        self.assertIn("dense layer: 3,136 x 128 + 128", job.stdout)

    def test_varies_sizes_and_data(self):
        job = self.run_job("estimate", "--compile", "--vary", "model.layers=1,3", config=TEXT)
        needs, shares = job.stdout.split("\n\n")
        # 12 H^2 + 13 H each; in addition, 257 H + 64 H + 2 H.
        self.assertEqual(self.row(needs, "1           ")[0], "23,040")
        self.assertEqual(self.row(needs, "3           ")[0], "48,448")
        self.assertEqual(self.row(needs, "per unit")[0], "12,704")
        self.assertEqual(self.row(shares, "model.layers"), ["vertices", "control", "exchange", "data"])
        for layers in ("1", "3"):
            percents = re.findall(r"(\d+) %", shares[shares.index(f"\n{layers}  "):])[:4]
            self.assertAlmostEqual(sum(map(int, percents)), 100, delta=2, msg=shares)
        _, control, _, data = (float(cell.split()[0]) for cell in self.row(shares, "per unit"))
        self.assertGreater(control, 0, "each layer has steps of its own")
        self.assertGreater(data, 0, "each layer has tensors of its own")
        self.assertLessEqual(max(map(len, job.stdout.splitlines())), 80)
        job = self.run_job("estimate", "--vary", "data.sequence-length=16,32", config=TEXT)
        self.assertEqual(self.row(job.stdout, "per unit")[0], "0")

    def test_refuses_bad_input_in_a_line(self):
        for arguments, *parts in (
                (["--vary", "model.layer=2,4"], "--vary model.layer: unknown key", "model.layers"),
                (["--vary", "model.heads=2,5"], "--vary model.heads = 5", "hidden = 32"),
                (["--vary", "model.layers=1", "--vary", "model.layers=2"], "--vary", "given more than once"),
                (["--vary", "model.layers=2", "--by-layer"], "--by-layer", "--vary"),
                (["--vary", "model.layers"], "--vary", "KEY=VALUE"),
                (["--data.source", "nothing:x"], "nothing")):
            job = self.run_job("estimate", *arguments, config=TEXT, code=64)
            self.assert_first_line(job, *parts)
            self.assertEqual(len(job.stderr.splitlines()), 1, job.stderr)
            self.assertEqual(job.stdout, "")


if __name__ == "__main__":
    unittest.main()
