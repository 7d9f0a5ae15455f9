#!/usr/bin/env python3
"""Plans of jobs: their output about stages, memory and settings, and the choices that the user leaves open."""
import re
import shlex
import subprocess
import unittest

from emulated_job import BIN, DEADLINE_SECONDS, JobTest

BERT = """
[model]
name = bert-base
layers = {layers}
hidden = 32
heads = 2
vocabulary = 96
sequence-length = 12
[data]
source = synthetic:tokens,vocabulary=96,items=512
task = masked-lm
sequence-length = 12
micro-batch-size = 2
[training]
steps = 10
gradient-accumulation = 8
evaluate = false
[pipeline]
recomputation = layer
"""

RESNEXT = """
[model]
name = resnext50-32x4d
mode = inference
[data]
source = synthetic:images=3x224x224,classes=1000,items=4096
micro-batch-size = 20
"""

# As published for 16 IPUs, two replicas of eight.
GPT2_MEDIUM = """
[model]
name = gpt2-medium
precision = half
partials = half
embedding-serialisation-factor = 4
[data]
source = synthetic:tokens,vocabulary=50257,items=100000
task = next-token
sequence-length = 1024
micro-batch-size = 1
[training]
optimizer = adamw
learning-rate = 0.00015
schedule = cosine
gradient-accumulation = 4096
steps = 10
evaluate = false
[pipeline]
layers-per-ipu = 0 3 3 3 3 4 4 4 0
device-mapping = 0 1 2 3 4 5 6 7 0
schedule = grouped
recomputation = layer
[memory]
available-memory-proportion = 0.30 0.15 0.15 0.15 0.15 0.15 0.15 0.15
optimizer-state = off-chip
replicated-tensor-sharding = optimizer-state
"""


class PlansTest(JobTest):
    def plan(self, *arguments, config=BERT.format(layers=4), code=0):
        """Returns all output of a dry run, including notes."""
        job = self.run_job("--dry-run", *arguments, config=config, code=code)
        return job.stdout + job.stderr

    def profile(self, *arguments, config=BERT.format(layers=4), code=0):
        return self.run_job("profile", "--no-run", *arguments, config=config, code=code)


class Stages(PlansTest):
    """Equal stages share the code of their forward parts, which still count as parts of stages."""

    def cycles(self, *arguments):
        stages = self.profile(*arguments).profile()["device"]["stages"]
        return [(stage["forwardCycles"], stage["backwardCycles"]) for stage in stages]

    def picture(self, *arguments):
        return re.findall(r"^IPU (\d) \|(.*)$", self.plan("-v", *arguments), re.M)

    def assert_only_copies_are_added(self, *arguments):
        apart = self.cycles(*arguments, "--memory.outlining", "off")
        shared = self.cycles(*arguments, "--memory.outlining", "on")
        self.assertEqual(len(shared), len(apart))
        for part, alone in zip(sum(shared, ()), sum(apart, ()), strict=True):
            self.assertGreater(alone, 0)
            self.assertGreaterEqual(part, 0.99 * alone)
            self.assertLess(part, 1.1 * alone)

    def test_of_a_pipeline_keep_their_times_and_their_rows_when_they_are_outlined(self):
        pipeline = ("--ipus-per-replica", 4)
        self.assert_only_copies_are_added(*pipeline)
        for outlining in ("on", "auto"):
            rows = self.picture(*pipeline, "--memory.outlining", outlining)
            self.assertEqual([ipu for ipu, _ in rows], ["0", "1", "2", "3"])
            self.assertEqual([row.split("A1")[0] for _, row in rows], [" ", " " * 4, " " * 7, " " * 10])

    def test_of_phases_keep_their_times_and_their_rows_when_they_are_outlined(self):
        self.assert_only_copies_are_added("--memory.phases", 4)
        two = ("--model.layers", 6, "--memory.phases", 6, "--ipus-per-replica", 2, "--memory.phase-ipus", 2)
        self.assert_only_copies_are_added(*two)
        rows = self.picture("--memory.outlining", "on", *two, "--training.gradient-accumulation", 1)
        self.assertEqual([re.sub(r"\s+", " ", row).strip() for _, row in rows],
                         [re.sub(r"\s+", " ", row).strip() for _, row in
                          self.picture("--memory.outlining", "off", *two, "--training.gradient-accumulation", 1)])
        self.assertEqual(sum(row.count("A1") for _, row in rows), 6)


class Memory(PlansTest):
    SMALL = ("--device.tiles", 24, "--device.bytes-per-tile")

    def figures(self, said):
        return re.findall(r"tiles +tile .* is the fullest, ([\d,]+) of|^device step +(\S+ \S+),", said, re.M)

    def test_of_weights_that_may_be_off_the_chip_is_the_plan_on_the_chip_if_that_fits(self):
        """It fits into the first memory unchanged, into the others only with outlining."""
        config = BERT.format(layers=8)
        for bytes_per_tile, outlined in ((325_000, False), (215_000, True), (195_000, True)):
            with self.subTest(bytes_per_tile):
                device = (*self.SMALL, bytes_per_tile)
                on_chip = self.plan(*device, config=config)
                auto = self.plan(*device, "--memory.weights", "auto", config=config)
                self.assertIn("note           memory.weights = auto means on-chip\n", auto)
                self.assertEqual("memory.outlining = auto means on:" in auto, outlined)
                self.assertEqual(self.figures(auto), self.figures(on_chip))
        auto = self.plan(*self.SMALL, 300_000, "--memory.weights", "auto", "--model.hidden", 64, config=config)
        self.assertIn("memory.weights = auto means off-chip: the job does not fit with fewer", auto)

    def test_of_a_model_that_lacks_far_more_than_its_code_is_outlined(self):
        config = BERT.format(layers=8)
        device = (*self.SMALL, 20_000)
        auto = self.run_job("estimate", "--compile", *device, config=config).stdout
        on = self.run_job("estimate", "--compile", *device, "--memory.outlining", "on", config=config).stdout
        self.assertIn("memory.outlining = auto means on: the job does not fit with less outlining\n", auto)
        self.assertRegex(on, r"outlining on IPU 0: \d+ runs with [\d,]+ operations share")
        self.assertEqual(self.figures(auto), self.figures(on))

    def test_of_outlining_that_would_only_copy_says_so(self):
        config = """
[model]
name = mlp
layers = 4
hidden = 3072
precision = half
[data]
source = synthetic:images=1x28x28,classes=10,items=4096
[training]
steps = 2
optimizer = adam
master-weights = true
clip-norm = 1
"""
        self.assertRegex(self.plan("--memory.outlining", "on", config=config),
                         r"memory.outlining = on has no effect: in each of \d+ repeated sequences, copies of inputs "
                         "and outputs would take more than half as long as the operations themselves")

    def test_of_products_that_meet_no_target_is_warned_of_on_every_screen(self):
        config = RESNEXT.replace("resnext50-32x4d", "resnet18").replace("224x224", "64x64").replace("size = 20", "size = 4")
        few = ("--memory.available-memory-proportion", 0.005)
        warning = r"PL:POPLIN \[W\] Warning: convolution planner unable to meet memory target. Optimising for " \
                  r"minimum memory. \((\d+) products\)"
        screens = [self.plan(*few, config=config), self.profile(*few, config=config).stdout,
                   self.run_job("estimate", "--compile", *few, config=config).stdout]
        counts = [re.findall(warning, re.sub(r"\s+", " ", screen)) for screen in screens]
        self.assertEqual([len(count) for count in counts], [1, 1, 1], screens)
        self.assertEqual(counts[1:], counts[:1] * 2)

    def test_of_plans_that_need_least_is_spread_over_the_tiles(self):
        """The gradient of a vocabulary's embedding is the product that would overload the first tiles."""
        config = (GPT2_MEDIUM.replace("embedding-serialisation-factor = 4\n", "")
                  .replace("0 3 3 3 3 4 4 4 0", "3 7 7 7 0").replace("0 1 2 3 4 5 6 7 0", "0 1 2 3 0")
                  .replace("0.30 0.15 0.15 0.15 0.15 0.15 0.15 0.15", "0.15").replace("4096", "16"))
        said = self.run_job("estimate", "--compile", "-n", 4, "--ipus-per-replica", 4, config=config).stdout
        peaks = re.findall(r"^IPU \d memory +([\d,.]+) MiB peak of .*\n  tiles +tile \d+ is the fullest, ([\d,]+) of", said, re.M)
        self.assertEqual(len(peaks), 4, said)
        for all_tiles, fullest in peaks:
            mean = float(all_tiles.replace(",", "")) * 2**20 / 1472
            self.assertLess(int(fullest.replace(",", "")), 1.5 * mean)

    def test_that_is_always_live_hardly_falls_with_the_proportion(self):
        """Loops have their own code, which offsets most of the exchange code that smaller steps save."""
        always_live = []
        for proportion in (0.75, 0.05):
            job = self.profile("--memory.available-memory-proportion", proportion, config=RESNEXT, code=86)
            always_live.append(job.profile()["plannedMemory"][0]["alwaysLive"])
        self.assertGreater(always_live[1], 0.85 * always_live[0])


class Remedies(PlansTest):
    def test_of_gpt2_medium_as_published_are_a_proportion_that_can_be_copied(self):
        job = self.start("-n", 2, "--ipus-per-replica", 8, "--dry-run", config=GPT2_MEDIUM)
        self.assertEqual(job.wait(2 * DEADLINE_SECONDS), 86, job.stderr)
        remedy = re.search(r"^ +[\d,]+ B +fits +(\S+ \S+) +\+0 %  memory.available-memory-proportion (ipu0=0.2 .*)$",
                           job.stderr, re.M)
        self.assertTrue(remedy, job.stderr)
        self.assertIn(f"device step    {remedy[1]},", job.stdout)
        copied = re.search(r"\nthe first as a command:\n  poprun-emu (.*)\n", job.stderr)[1]
        self.assertIn(f"--memory.available-memory-proportion '{remedy[2]}'", copied)
        done = subprocess.run([BIN / "poprun-emu", *shlex.split(copied)], capture_output=True, text=True, cwd=job.folder,
                              env=job.environment, timeout=DEADLINE_SECONDS)
        self.assertEqual(done.returncode, 0, done.stderr)


class Notes(PlansTest):
    def test_say_that_a_schedule_is_longer_than_the_run(self):
        rate = ("--training.learning-rate", 0.01)
        self.assertIn("note           training.warmup-steps = 1000 exceeds the 10 steps of the run: the learning rate "
                      "ends at 0.0001, below training.learning-rate = 0.01\n",
                      self.plan("--training.warmup-steps", 1000, *rate))
        self.assertNotIn("warmup-steps = 10 is longer", self.plan("--training.warmup-steps", 10, *rate))
        falls = ("--training.schedule", "step", "--training.warmup-steps", 2, "--training.schedule-steps")
        self.assertIn("training.schedule-steps = 8 is not less than the 8 steps after the warm-up, so the learning rate "
                      "never falls\n", self.plan(*falls, 8))
        self.assertNotIn("never falls", self.plan(*falls, 7))

    def test_say_that_nothing_is_dropped_in_inference(self):
        note = "note: model.dropout = 0.1 has no effect with model.mode = inference: nothing is dropped\n"
        self.assertIn(note, self.plan("--model.dropout", 0.1, "--model.mode", "inference"))
        self.assertNotIn(note, self.plan("--model.dropout", 0.1))


if __name__ == "__main__":
    unittest.main()
