#!/usr/bin/env python3
"""What --dry-run prints, and answers for scripts (--format json and csv)."""
import csv
import io
import json
import unittest

from emulated_job import QUICK, ROOT, JobTest
from proto_schema import check_message

VERDICT = {"schema", "fits", "peak_bytes", "capacity_bytes", "fullest_tile_bytes", "tile_bytes", "device_step_seconds",
           "samples_per_second", "compared_error", "notes", "remedies", "caveats"}


class DryRun(JobTest):
    def test_begins_with_the_verdict_and_shows_what_differs_from_the_defaults(self):
        job = self.run_job("--dry-run", "-n", 2)
        self.assertRegex(job.stdout, r"\Afits: [\d.]+ MiB of 897\.0 MiB, [\d.]+ us a step\n")
        self.assertIn("steps = 5                                # file\n", job.stdout)
        for part in ("# default", "mpirun", "POPRUN_EMU_TOKEN"):
            self.assertNotIn(part, job.stdout)
        self.assertIn("# default", self.run_job("--dry-run", "-v").stdout)
        job = self.run_job("--dry-run", "--device.bytes-per-tile", 65536, code=86)
        self.assertRegex(job.stdout, r"\Adoes not fit: the fullest tile needs [\d,]+ of 65,536 B, [\d.]+ us a step\n")


class Json(JobTest):
    def answer(self, *arguments, code=0, config=QUICK, message="JobAnswer"):
        job = self.run_job(*arguments, "--format", "json", config=config, code=code)
        answer = json.loads(job.stdout)
        check_message(answer, message)
        return answer, job

    def test_of_a_dry_run_begins_with_the_verdict(self):
        answer, _ = self.answer("--dry-run", "-n", 2, "--ipus-per-replica", 2)
        self.assertEqual(set(answer), VERDICT | {"job"})
        self.assertTrue(answer["fits"])
        memory = answer["job"]["memory"]
        self.assertEqual(len(memory), 2)
        self.assertEqual(answer["peak_bytes"], max(ipu["peak"] for ipu in memory))
        self.assertEqual(answer["fullest_tile_bytes"], max(ipu["fullest_tile_peak"] for ipu in memory))
        self.assertEqual(answer["job"]["parameter_count"], 421642)
        self.assertEqual(answer["job"]["batch_sizes"]["global_batch_size"], 8)
        self.assertTrue(all(set(note) == {"code", "text", "facts"} and note["code"] for note in answer["notes"]))
        self.assertTrue(answer["notes"])
        text = self.run_job("--dry-run", "-n", 2, "--ipus-per-replica", 2).stdout
        self.assertIn(f", {round(answer['samples_per_second']):,} samples/s (device clock", text)
        self.assertIn(f"{answer['fullest_tile_bytes']:,} of {answer['tile_bytes']:,} B", text)

    def test_says_that_a_job_does_not_fit(self):
        for extra, code in (((), 86), (("--allow-out-of-memory",), 0)):
            answer, job = self.answer("--dry-run", "--device.bytes-per-tile", 65536, *extra, code=code)
            self.assertFalse(answer["fits"])
            self.assertGreater(answer["fullest_tile_bytes"], answer["tile_bytes"])
            self.assertEqual(answer["tile_bytes"], 65536)
            self.assertEqual("out of memory" in job.stderr, code != 0)

    def test_says_that_streaming_memory_is_too_small(self):
        options = ("--dry-run", "--memory.weights", "off-chip", "--device.streaming-bytes", 65536)
        answer, _ = self.answer(*options, code=86)
        self.assertFalse(answer["fits"])
        self.assertLess(answer["fullest_tile_bytes"], answer["tile_bytes"])
        job = self.run_job(*options, config=QUICK, code=86)
        self.assertRegex(job.stdout, r"\Adoes not fit: an IPU needs more than its Streaming Memory")

    def test_of_an_estimate_holds_its_numbers(self):
        answer, _ = self.answer("estimate", message="EstimateAnswer")
        self.assertEqual(answer["jobs"][0]["parameters"], 421642)
        needs = answer["jobs"][0]["training"]
        self.assertEqual(needs["total"], sum(value for name, value in needs.items() if name not in ("total", "ipus")))
        product, _ = self.answer("estimate", "--matmul", "3584x3584x3584", config=None, message="MicroAnswer")
        self.assertAlmostEqual(2 * 3584 ** 3 / product["seconds"] / 1e12, 45.4, delta=0.5)

    def test_of_the_models_holds_exact_counts(self):
        answer, _ = self.answer("--list-models", config=None, message="ModelList")
        counts = {model["name"]: model["parameters"] for model in answer["models"]}
        self.assertEqual(counts["gpt2"], 124439808)
        self.assertEqual(counts["resnet50"], 25557032)

    def test_of_a_run_and_of_a_profile_is_the_only_output(self):
        answer, _ = self.answer("-n", 2)
        self.assertEqual(set(answer), VERDICT | {"profile"})
        self.assertEqual(answer["profile"]["outcome"]["steps"], 5)
        self.assertTrue(any("never compared" in caveat for caveat in answer["caveats"]))
        answer, job = self.answer("profile", "--no-run")
        self.assertEqual(set(answer), VERDICT | {"profile"})
        dry, _ = self.answer("--dry-run")
        self.assertEqual(answer["peak_bytes"], dry["peak_bytes"])
        self.assertEqual(answer["device_step_seconds"], dry["device_step_seconds"])
        self.assertTrue((job.output_dir / "profile.pb").exists())

    def test_of_a_check_holds_its_runs(self):
        answer, _ = self.answer("check", message="CheckReport")
        self.assertEqual(answer["runs"][0]["verdict"], "REFERENCE")
        self.assertGreater(len(answer["runs"]), 1)

    def test_holds_remedies_as_options(self):
        answer, _ = self.answer("--dry-run", "--device.bytes-per-tile", 65536, code=86)
        best = answer["remedies"][0]
        self.assertTrue(best["fits"])
        self.assertTrue(best["options"])
        words = [word for option in best["options"] for word in ("--" + option.lstrip("-")).split(" ", 1)]
        relieved, _ = self.answer("--dry-run", "--device.bytes-per-tile", 65536, *words)
        self.assertEqual(relieved["fullest_tile_bytes"], best["fullest_tile_bytes"])
        self.assertTrue(any("does not fit" in caveat for caveat in answer["caveats"]))

    def test_is_refused_where_only_people_are_answered(self):
        job = self.run_job("profile", "--compare", "a", "b", "--format", "json", config=None, code=64)
        self.assert_first_line(job, "--format json: the answer of profile --compare is only text")


class Csv(JobTest):
    def rows(self, *arguments, code=0, config=QUICK):
        job = self.run_job(*arguments, "--format", "csv", config=config, code=code)
        return list(csv.DictReader(io.StringIO(job.stdout), strict=True))

    def test_of_a_job_is_one_row_that_begins_with_the_verdict(self):
        answer = json.loads(self.run_job("--dry-run", "--format", "json").stdout)
        row, = self.rows("--dry-run")
        self.assertEqual(list(row)[:3], ["schema", "fits", "peak_bytes"])
        self.assertEqual(row["fits"], "true")
        self.assertEqual(int(row["fullest_tile_bytes"]), answer["fullest_tile_bytes"])
        self.assertEqual(float(row["device_step_seconds"]), answer["device_step_seconds"])
        self.assertEqual(int(row["job.batch_sizes.global_batch_size"]), 4)
        self.assertEqual(row["caveats"], ";".join(answer["caveats"]))
        row, = self.rows("--dry-run", "--device.bytes-per-tile", 65536, code=86)
        self.assertEqual(row["fits"], "false")
        row, = self.rows("-n", 2)
        self.assertEqual(row["profile.outcome.steps"], "5")

    def test_of_a_list_has_a_row_for_each_element(self):
        answer = json.loads(self.run_job("--list-models", "--format", "json", config=None).stdout)
        rows = self.rows("--list-models", config=None)
        self.assertEqual([row["name"] for row in rows], [model["name"] for model in answer["models"]])
        self.assertEqual([int(row["parameters"]) for row in rows], [m["parameters"] for m in answer["models"]])
        layers = self.rows("estimate", "--vary", "model.classes=10,20")
        self.assertEqual(len(layers), 2)
        self.assertLess(int(layers[0]["parameters"]), int(layers[1]["parameters"]))
        runs = self.rows("check")
        self.assertEqual(runs[0]["verdict"], "REFERENCE")


if __name__ == "__main__":
    unittest.main()
