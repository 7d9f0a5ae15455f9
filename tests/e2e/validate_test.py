#!/usr/bin/env python3
"""poprun-emu validate and the micro rows of estimate, as a user runs them: the device clock and published results."""
import collections
import json
import math
import re
import shutil
import unittest

from emulated_job import ROOT, JobTest
from proto_schema import check_message

ROWS = ROOT / "deploy/validate"
SMALL = """
[published]
value = 1e6
options = -n 2
family = mine
reference = a made-up number

[data]
micro-batch-size = 16
"""

RESNET = """
[model]
name = resnet50
precision = half
[data]
source = synthetic:images=3x224x224,classes=1000,items=10000
micro-batch-size = 1
"""


class Validate(JobTest):
    def validate(self, *arguments, code=0):
        return self.run_job("validate", *arguments, config=None, code=code)

    def test_states_the_errors_that_published_results_show(self):
        job = self.validate("--rows", ROWS, "--format", "json")
        answer = json.loads(job.stdout)
        check_message(answer, "ValidationAnswer")
        page = (ROOT / "launcher/validation/README.md").read_text()
        worst = collections.defaultdict(float)
        stated = {}
        for row in answer["rows"]:
            self.assertTrue(row["fits"], row)
            error = abs(row["ratio"] - 1)
            self.assertLessEqual(error, 0.10, row)
            self.assertRegex(page, rf"\n{row['name']} .* {row['ratio']:.3f}  yes\n", "the page shows another state")
            if row["stated_error"]:
                worst[row["family"]] = max(worst[row["family"]], error)
                stated[row["family"]] = row["stated_error"]
        self.assertEqual(set(stated), {"bert-base", "bert-large", "products", "resnet50", "vit"})
        self.assertEqual(stated, {family: math.ceil(100 * error) / 100 for family, error in worst.items()})
        everything = answer["families"][-1]
        self.assertEqual(everything["family"], "all")
        self.assertLessEqual(everything["mean_error"], 0.05)
        self.assertLessEqual(abs(everything["bias"]), 0.04)
        pairs = [series for series in answer["series"] if "published_parts" in series]
        self.assertEqual(len(pairs), 2)
        for series in answer["series"]:
            self.assertAlmostEqual(series["device_clock"] / series["published"], 1, delta=0.05, msg=series)
        for pair in pairs:
            ratio = pair["device_clock_parts"]["cycle_seconds"] / pair["published_parts"]["cycle_seconds"]
            self.assertAlmostEqual(ratio, 1, delta=0.05, msg=pair)
        self.assertLessEqual(len(answer["fitted"]), 6)
        largest = max(row.get("ipus", 0) for row in answer["rows"])
        scaled = self.run_job("scale", "--replicas", f"16,{largest + 1}", config=RESNET)
        self.assertRegex(scaled.stdout, rf"within \d+ % of chips, but only up to {largest} IPUs\n")

    def test_compares_the_rows_of_a_users_folder(self):
        folder = self.folder / "rows"
        folder.mkdir()
        (folder / "mine.cfg").write_text(SMALL)
        shutil.copy(ROWS / "matmul-3584-mk2.cfg", folder)
        job = self.validate("--rows", folder)
        self.assertEqual(job.stderr.splitlines(),
                         ["poprun-emu: 1 of 2: matmul-3584-mk2", "poprun-emu: 2 of 2: mine"])
        speed = re.search(r"\nmine +1,000,000 samples/s +([\d,]+) samples/s +([\d.]+)  yes\n", job.stdout)
        self.assertTrue(speed, job.stdout)
        compiled = self.run_job("--dry-run", "-n", 2, config=SMALL).stdout
        self.assertIn(f", {speed[1]} samples/s (device clock, mk2, never compared)", compiled)
        self.assertIn("\nmine                               1", job.stdout)
        self.assertFalse(job.output_dir.exists())

    def test_says_which_row_is_wrong_and_compares_the_others(self):
        folder = self.folder / "rows"
        folder.mkdir()
        (folder / "a.cfg").write_text(SMALL.replace("value = 1e6", ""))
        (folder / "b.cfg").write_text(SMALL.replace("16", "0"))
        (folder / "c.cfg").write_text(SMALL)
        (folder / "d.cfg").write_text(SMALL.replace("value", "unit = TFLOP/s\nvalue"))
        job = self.validate("--rows", folder, code=64)
        self.assertRegex(job.stderr, r"a\.cfg: published\.value is missing; see --help published\n")
        self.assertRegex(job.stderr, r"b\.cfg:9: micro-batch-size = 0 is not allowed")
        self.assertRegex(job.stderr, r"d\.cfg: published\.unit = TFLOP/s does not fit what is compared; use samples/s or s")
        self.assertRegex(job.stdout, r"\nb +0 +cannot be compared\nc +1,000,000 samples/s ")

    def test_refuses_bad_input_in_a_line(self):
        empty = self.folder / "empty"
        empty.mkdir()
        for arguments, *parts in ((["--rows", empty], str(empty), "contains no result", "NAME.cfg"),
                                  (["--rows", self.folder / "none"], "none", "No such file"),
                                  (["--format", "xml"], "--format = xml", "text, json, csv"),
                                  (["train.cfg"], "validate", "train.cfg")):
            job = self.validate(*arguments, code=64)
            self.assert_first_line(job, *map(str, parts))
            self.assertEqual(job.stdout, "")


class Micro(JobTest):
    def estimate(self, *arguments, code=0):
        return self.run_job("estimate", *arguments, config=None, code=code)

    def test_plans_a_product_without_a_train_cfg(self):
        job = self.estimate("--matmul", "1024x512x256")
        self.assertTrue(job.stdout.startswith("matmul forward f32: batch 1024, 512 -> 256 channels\n"), job.stdout)
        time = re.search(r"\ndevice time +([\d.]+) us, ([\d.]+) TFLOP/s \(device clock, mk2, within 3 % of chips\)\n",
                         job.stdout)
        self.assertTrue(time, job.stdout)
        self.assertAlmostEqual(2 * 1024 * 512 * 256 / float(time[1]) / 1e6 / float(time[2]), 1, delta=0.02)

    def test_plans_a_convolution_with_the_keys_of_a_job(self):
        sizes = "4x32x14x14,64x3x3,stride=2,padding=1,groups=4"
        job = self.estimate("--convolution", sizes, "--model.precision", "half", "--device.ipu", "bow")
        self.assertTrue(job.stdout.startswith("conv forward f16 sums f32: "), job.stdout)
        self.assertIn("14x14 * 3x3 / 2", job.stdout)
        self.assertIn("(device clock, bow, never compared)", job.stdout)

    def test_all_reduces_more_slowly_over_more_replicas(self):
        seconds = []  # Milliseconds.
        for replicas in (2, 16, 64, 128):
            job = self.estimate("--all-reduce", 51_000_000, "-n", replicas)
            time = re.search(r"device time +([\d.]+) (us|ms), ", job.stdout)
            seconds.append(float(time[1]) / (1000 if time[2] == "us" else 1))
        self.assertEqual(seconds, sorted(seconds))
        self.assertAlmostEqual(seconds[3] - seconds[2], 2.04, delta=0.3)  # As MLPerf's steps on 64 and 128 IPUs.

    def test_refuses_bad_input_in_a_line(self):
        for arguments, *parts in ((["--matmul", "3x4"], "--matmul = 3x4", "ROWSxINNERxCOLUMNS"),
                                  (["--matmul", "3x0x4"], "--matmul", "ROWSxINNERxCOLUMNS"),
                                  (["--convolution", "1x3x8x8,4x3x3,groups=2"], "--convolution", "groups divide"),
                                  (["--convolution", "1x3x8x8,4x3x3,dilation=2"], "--convolution", "stride=N"),
                                  (["--convolution", "1x3x2x2,4x3x3"], "--convolution", "a kernel of 3 rows"),
                                  (["--all-reduce", "1000"], "--all-reduce", "at least 2 replicas", "-n"),
                                  (["--matmul", "3x4x5", "--compile"], "--matmul", "--compile")):
            job = self.estimate(*arguments, code=64)
            self.assert_first_line(job, *parts)
            self.assertEqual(job.stdout, "")


if __name__ == "__main__":
    unittest.main()
