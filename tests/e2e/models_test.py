#!/usr/bin/env python3
"""Models and data sources other than the default job's: each trains through the real command."""
import io
import math
import re
import struct
import unittest
import zipfile

import npy_file
from emulated_job import ROOT, JobTest

# A tiny model, trained on a text that always exists.
GPT2 = f"""
[model]
name = gpt2
layers = 2
hidden = 64
heads = 4
vocabulary = 257
sequence-length = 32
[data]
source = text:{ROOT}/ARCHITECTURE.md
sequence-length = 32
micro-batch-size = 4
[training]
steps = 40
optimizer = adam
learning-rate = 0.003
"""

BERT = GPT2.replace("name = gpt2", "name = bert-base").replace(
    "micro-batch-size = 4", "micro-batch-size = 4\ntask = masked-lm\nmasks = 5").replace(
    "optimizer = adam", "optimizer = adamw\nclip-norm = 1.0\nwarmup-steps = 5\nschedule = cosine")

SQUAD = GPT2.replace("name = gpt2", "name = bert-base-squad").replace(
    "micro-batch-size = 4", "micro-batch-size = 16\ntask = question-answering").replace("steps = 40", "steps = 120")

MLP = """
[model]
name = mlp
layers = 1
hidden = 32
[data]
source = synthetic:images=1x8x8,classes=4,items=1000
micro-batch-size = 8
[training]
steps = 40
optimizer = lamb
learning-rate = 0.02
"""


def losses(job):
    return [float(row["loss"]) for row in job.metrics() if row["split"] == "train"]


class Training(JobTest):
    def assert_learns(self, config, share):
        seen = losses(self.run_job("-n", 4, config=config))
        first, last = sum(seen[:3]) / 3, sum(seen[-3:]) / 3
        self.assertLess(last, share * first, seen)

    def test_gpt2_learns_a_text_file(self):
        self.assert_learns(GPT2, 0.75)

    def test_bert_learns_masked_tokens(self):
        self.assert_learns(BERT, 0.75)

    def test_bert_learns_to_answer_questions(self):
        self.assert_learns(SQUAD, 0.75)

    def test_mlp_learns_synthetic_images(self):
        self.assert_learns(MLP, 0.75)

    def test_resnet_takes_a_step_and_saves_its_running_statistics(self):
        job = self.run_job("-n", 2, "--model.name", "resnet50", "--training.steps", 1,
                           "--data.micro-batch-size", 4, "--training.learning-rate", 0.001)
        self.assertEqual(job.profile()["outcome"]["steps"], 1)
        header = (job.output_dir / "weights.safetensors").read_bytes()[:100_000]
        self.assertIn(b"layer4.2.bn3.running_var", header)


class Arrays(JobTest):
    def archive(self, one=1.0):
        """Writes 64 items in two classes: vectors of eight floats, zero except at the index of the class."""
        labels = [i % 2 for i in range(64)]
        rows = [[0.0] * y + [one] + [0.0] * (7 - y) for y in labels]
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("x.npy", npy_file.floats((64, 8), sum(rows, [])))
            file.writestr("y.npy", npy_file.content("<i8", (64,), struct.pack("<64q", *labels)))
        path = self.folder / "data.npz"
        path.write_bytes(buffer.getvalue())
        return path

    def test_of_features_train_without_normalisation_and_without_a_test_part(self):
        config = MLP.replace("synthetic:images=1x8x8,classes=4,items=1000", f"npz:{self.archive()}")
        job = self.run_job("-n", 2, config=config)
        self.assertLess(losses(job)[-1], 0.1)
        self.assertIn("the data has no test part, so nothing is evaluated", job.stderr)
        self.assertNotIn("test", {row["split"] for row in job.metrics()})

    def test_that_are_not_numbers_are_blamed_and_not_the_learning_rate(self):
        config = MLP.replace("synthetic:images=1x8x8,classes=4,items=1000", f"npz:{self.archive(math.nan)}")
        job = self.run_job("-n", 2, config=config, code=65)
        self.assert_first_line(job, "NaN in element ", "'images'", "the value comes from the data; fix data.source")
        self.assertNotIn("learning rate", job.stderr)


class Placement(JobTest):
    def test_of_gpt2_never_changes_the_answer(self):
        apart = self.run_job("-n", 4, config=GPT2)
        together = self.run_job("-n", 4, "--num-instances", 1, "--memory.poison-dead", "true",
                                config=GPT2)
        self.assertEqual(apart.weights_hash(), together.weights_hash())
        self.assertEqual(losses(apart), losses(together))


class Sizes(JobTest):
    def test_that_a_model_does_not_have_are_refused_by_name(self):
        job = self.run_job("-n", 2, "--model.heads", 4, code=64)
        self.assert_first_line(job, "model.heads", "small-cnn")


class DryRun(JobTest):
    def test_compiles_as_the_run_would(self):
        plan = self.run_job("-n", 4, "--dry-run", config=GPT2)
        self.assertFalse(plan.output_dir.exists())
        self.assert_gone(plan)
        profile = self.run_job("-n", 4, "--training.steps", 1, config=GPT2).profile()
        self.assertIn(f"parameters     {int(profile['parameterCount']):,}\n", plan.stdout)
        self.assertIn(f"operators      {int(profile['operatorCount']):,}\n", plan.stdout)
        peak = int(profile["plannedMemory"][0]["peak"]) / 2**20
        self.assertIn(f"IPU 0 memory   {peak:.1f} MiB peak of ", plan.stdout)
        self.assertEqual(profile["device"]["ipus"],
                         [{"busySeconds": profile["device"]["stepSeconds"], "idleSeconds": 0.0}])

    def test_tells_what_each_ipu_does(self):
        plan = self.run_job("-n", 2, "--ipus-per-replica", 2, "--dry-run", "-v", config=GPT2)
        self.assertRegex(plan.stdout, r"\nutilisation    \d+\.\d % of 2 IPUs\n"
                                      r"IPU 0 time     .+ busy, .+ idle\n"
                                      r"IPU 1 time     .+ busy, .+ idle\n")
        self.assertRegex(plan.stdout, r"\n# schedule by cycle: .+\nIPU 0 \| A1")

    def test_draws_the_schedule_as_wide_as_the_page(self):
        for columns, wide in (("", 80), ("nonsense", 80), ("60", 60), ("1000", 1000)):
            plan = self.run_job("--ipus-per-replica", 2, "--training.gradient-accumulation", 30, "--dry-run", "-v",
                                config=GPT2, environment={"COLUMNS": columns})
            rows = [line for line in plan.stdout.splitlines() if re.match(r"IPU \d+ \|", line)]
            self.assertEqual(len(rows), 2, plan.stdout)
            self.assertLessEqual(max(map(len, rows)), wide)
            self.assertGreater(max(map(len, rows)), min(wide, 300) / 2)
            self.assertEqual("left out; a wider terminal shows more\n" in plan.stdout, wide < 1000)

    def test_counts_the_parameters_of_gpt2_xl_as_published(self):
        # A tile's memory is large enough that no remedies are searched for.
        job = self.run_job("-n", 2, "--dry-run", "--model.name", "gpt2-xl", "--model.layers", 48, "--model.hidden", 1600,
                           "--model.heads", 25, "--model.vocabulary", 50257, "--model.sequence-length", 1024,
                           "--device.bytes-per-tile", 1 << 24, "--ipus-per-replica", 2, config=GPT2)
        self.assertIn("parameters     1,557,611,200\n", job.stdout)

    def test_refuses_data_as_the_run_would(self):
        missing = self.run_job("--dry-run", "--data.source", "text:/nowhere", config=GPT2, code=65)
        self.assert_first_line(missing, "/nowhere")
        images = self.run_job("--dry-run", "--model.name", "resnet50", "--data.source",
                              "synthetic:tokens,vocabulary=257",
                              config="[training]\nsteps = 1\n", code=64)
        self.assert_first_line(images, "data.source: the model needs images")


if __name__ == "__main__":
    unittest.main()
