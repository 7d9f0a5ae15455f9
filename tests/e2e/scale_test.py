#!/usr/bin/env python3
"""poprun-emu scale, as a user runs it: the device time of a step on many numbers of replicas."""
import csv
import io
import json
import unittest

from emulated_job import QUICK, JobTest


class Scale(JobTest):
    def answer(self, *words, config=QUICK):
        return json.loads(self.run_job("scale", "--format", "json", *words, config=config).stdout)["jobs"]

    def test_agrees_with_dry_runs(self):
        for job in self.answer("--replicas", "1,4", "--training.gradient-accumulation", 4):
            strong = job["scaling"] == "strong"
            self.assertEqual(job["batch_sizes"]["global_batch_size"], 16 if strong else 16 * int(job["replicas"]))
            dry = self.run_job("--dry-run", "--format", "json", "-n", job["replicas"], "--training.gradient-accumulation",
                               4 // int(job["replicas"]) if strong else 4, config=QUICK)
            planned = json.loads(dry.stdout)
            self.assertEqual(job["step_seconds"], planned["device_step_seconds"])
            self.assertEqual(job["samples_per_second"], planned["samples_per_second"])
            self.assertEqual(job["peak_bytes"], planned["peak_bytes"])

    def test_reaches_the_largest_number(self):
        first, last = (job for job in self.answer("--replicas", "16,65536") if job["scaling"] == "weak")
        self.assertEqual(last["efficiency"],
                         last["samples_per_second"] / 65536 / (first["samples_per_second"] / 16))
        self.assertLess(last["efficiency"], 1)

    def test_prints_time_energy_and_cost_of_the_whole_job(self):
        rates = ("--device.watts", 300, "--device.price", 2, "--ipus-per-replica", 1)
        for job in self.answer("--replicas", "1,4", "--training.steps", 50, *rates):
            self.assertEqual(job["steps"], 50)
            self.assertAlmostEqual(job["run_seconds"], 50 * job["step_seconds"], places=12)
            hours = job["run_seconds"] / 3600 * int(job["ipus"])
            self.assertAlmostEqual(job["run_kilowatt_hours"], hours * 0.3, places=12)
            self.assertAlmostEqual(job["run_cost"], hours * 2, places=12)

    def test_divides_micro_batches_where_there_are_too_few(self):
        jobs = {job["replicas"]: job for job in self.answer("--replicas", "1,2,3") if job["scaling"] == "strong"}
        self.assertEqual(jobs[2]["batch_sizes"]["micro_batch_size"], 2)
        self.assertEqual(jobs[3]["refusal"], "4 samples cannot be divided among 3 replicas")

    def test_prints_tables_or_csv_and_writes_nothing(self):
        job = self.run_job("scale", "--replicas", "1,2", config=QUICK)
        self.assertIn("# weak scaling", job.stdout)
        self.assertIn("# strong scaling", job.stdout)
        self.assertLessEqual(max(map(len, job.stdout.splitlines())), 80)
        self.assertFalse(job.output_dir.exists(), "a plan writes nothing")
        rows = list(csv.DictReader(io.StringIO(
            self.run_job("scale", "--replicas", "1,2", "--format", "csv", config=QUICK).stdout)))
        self.assertEqual([(row["scaling"], row["replicas"]) for row in rows],
                         [("weak", "1"), ("weak", "2"), ("strong", "1"), ("strong", "2")])

    def test_of_a_job_that_cannot_be_compiled_says_why(self):
        job = self.start("scale", "--replicas", "1,2", "--model.name", "bert-base", config=QUICK)
        self.assertEqual(job.wait(), 64, job.stderr)
        self.assertIn("the model needs tokens, but the dataset has images", job.stderr)
        self.assertEqual(job.stdout, "")

    def test_of_inference_is_only_weak(self):
        jobs = self.answer("--replicas", "1,2", "--model.mode", "inference")
        self.assertEqual([job["scaling"] for job in jobs], ["weak", "weak"])
        self.assertEqual(jobs[0]["all_reduce_seconds"], 0)


if __name__ == "__main__":
    unittest.main()
