#!/usr/bin/env python3
"""ARCHITECTURE's laws, through the real command: bit-identical results for every placement, and real memory."""
import pathlib
import unittest

from emulated_job import JobTest

TRAIN = """
[model]
name = small-cnn
[data]
source = fashion-mnist
micro-batch-size = 16
[training]
steps = 8
learning-rate = 0.05
seed = 7
evaluate = false
"""

EVALUATED = ("--training.evaluate", "true")


def losses(job):
    return [(row["step"], row["split"], row["loss"], row["accuracy"]) for row in job.metrics()]


class Placement(JobTest):
    def test_never_changes_the_answer(self):
        reference = self.run_job("-n", 16, *EVALUATED, config=TRAIN)
        self.assertEqual(len(losses(reference)), 9, "8 steps and one evaluation")
        for instances in (16, 4, 1):
            with self.subTest(instances=instances):
                again = self.run_job("-n", 16, "--num-instances", instances, *EVALUATED, config=TRAIN)
                self.assertEqual(again.weights_hash(), reference.weights_hash())
                self.assertEqual(losses(again), losses(reference))

    def test_of_an_odd_number_of_replicas_never_changes_the_answer(self):
        apart = self.run_job("-n", 3, config=TRAIN)
        together = self.run_job("-n", 3, "--num-instances", 1, config=TRAIN)
        self.assertEqual(apart.weights_hash(), together.weights_hash())

    def test_never_changes_the_answer_in_half_precision(self):
        half = ("--model.precision", "half", "--model.partials", "half", "--training.stochastic-rounding", "true",
                "--training.gradient-accumulation", 2)
        apart = self.run_job("-n", 6, *half, config=TRAIN)
        together = self.run_job("-n", 6, "--num-instances", 2, *half, config=TRAIN)
        self.assertEqual(apart.weights_hash(), together.weights_hash())
        self.assertEqual(losses(apart), losses(together))

    def test_and_buckets_of_gradients_never_change_the_answer(self):
        behind = self.run_job("-n", 4, config=TRAIN)
        for bucket, instances in ((0.01, 4), (0.5, 4), (0.5, 2), (100, 1)):
            with self.subTest(bucket=bucket, instances=instances):
                during = self.run_job("-n", 4, "--num-instances", instances, "--training.gradient-bucket", bucket,
                                      "--memory.poison-dead", "true", config=TRAIN)
                self.assertEqual(during.weights_hash(), behind.weights_hash())
                self.assertEqual(losses(during), losses(behind))

    def test_never_changes_what_dropout_drops(self):
        gpt2 = ("--model.name", "gpt2", "--model.layers", 2, "--model.hidden", 32, "--model.heads", 2,
                "--model.vocabulary", 64, "--model.dropout", 0.1, "--data.source", "synthetic:tokens,vocabulary=64",
                "--data.sequence-length", 16)
        apart = self.run_job("-n", 4, *gpt2, config=TRAIN)
        together = self.run_job("-n", 4, "--num-instances", 1, *gpt2, config=TRAIN)
        self.assertEqual(apart.weights_hash(), together.weights_hash())
        none = self.run_job("-n", 4, *[word for word in gpt2 if word not in ("--model.dropout", 0.1)], config=TRAIN)
        self.assertNotEqual(apart.weights_hash(), none.weights_hash())

    def test_another_seed_gives_another_answer(self):
        a = self.run_job("-n", 2, config=TRAIN)
        b = self.run_job("-n", 2, "--training.seed", 8, config=TRAIN)
        self.assertNotEqual(a.weights_hash(), b.weights_hash())


class Environment(JobTest):
    def test_of_one_replica_never_changes_the_answer(self):
        reference = self.run_job("-n", 2, config=TRAIN)
        for variables in ("-x OMP_NUM_THREADS=2", "-x OMP_NUM_THREADS=2 -x OMP_DYNAMIC=true",
                          "-x ONEDNN_DEFAULT_FPMATH_MODE=ANY -x ONEDNN_CPU_ISA_HINTS=PREFER_YMM"):
            with self.subTest(variables=variables):
                job = self.run_job("-n", 2, "--instance-mpi-local-args", f"1:{variables}", config=TRAIN)
                self.assertEqual(job.weights_hash(), reference.weights_hash())
                for variable in variables.replace("-x ", "").split():
                    self.assertIn(f"W {variable} is ignored: it would change the results", job.stderr)


@unittest.skipUnless(" avx2 " in pathlib.Path("/proc/cpuinfo").read_text(), "needs more than one instruction set")
class MixedMachines(JobTest):
    """One machine, in which oneDNN or the C library of instance 1 may not use all features of the processor."""

    def test_are_refused_where_bits_would_depend_on_the_host(self):
        job = self.run_job("-n", 2, "--instance-mpi-local-args", "1:-x ONEDNN_MAX_CPU_ISA=AVX", config=TRAIN, code=69)
        self.assert_first_line(job, " computes with avx", "results would depend on where a replica runs",
                               "use --cpu-isa avx, or hosts with identical processors")
        job = self.run_job("-n", 2, "--instance-mpi-local-args", "1:-x GLIBC_TUNABLES=glibc.cpu.hwcaps=-FMA,-AVX2",
                           config=TRAIN, code=69)
        self.assert_first_line(job, "the C libraries of hosts ", "--cpu-isa avx")

    def test_give_one_answer_where_cpu_isa_fixes_a_common_set(self):
        held = self.run_job("-n", 2, "--cpu-isa", "avx", config=TRAIN)
        together = self.run_job("-n", 2, "--num-instances", 1, "--cpu-isa", "avx", config=TRAIN)
        self.assertEqual(held.weights_hash(), together.weights_hash())
        best = self.run_job("-n", 2, config=TRAIN)
        self.assertNotEqual(held.weights_hash(), best.weights_hash())

    def test_are_refused_without_the_chosen_set(self):
        job = self.run_job("-n", 2, "--cpu-isa", "avx2", "--instance-mpi-local-args", "1:-x ONEDNN_MAX_CPU_ISA=SSE41",
                           config=TRAIN, code=69)
        self.assert_first_line(job, "computes with sse41, not with --cpu-isa avx2")


class Memory(JobTest):
    def test_poison_in_dead_bytes_changes_nothing(self):
        plain = self.run_job("-n", 4, config=TRAIN)
        poisoned = self.run_job("-n", 4, "--memory.poison-dead", "true", config=TRAIN)
        self.assertEqual(poisoned.weights_hash(), plain.weights_hash())
        self.assertEqual(losses(poisoned), losses(plain))

    def test_shared_weights_change_nothing(self):
        for job in ((), ("--training.optimizer", "adam", "--training.clip-norm", 1), ("--model.precision", "half")):
            with self.subTest(job=job):
                own = self.run_job("-n", 4, "--memory.private", "true", *job, config=TRAIN)
                for way in (("--num-instances", 2), ("--memory.poison-dead", "true")):
                    shared = self.run_job("-n", 4, *way, *job, config=TRAIN)
                    self.assertEqual(shared.weights_hash(), own.weights_hash())
                    self.assertEqual(losses(shared), losses(own))

    def test_planned_peak_is_the_measured_high_water_mark(self):
        profile = self.run_job("-n", 2, *EVALUATED, config=TRAIN).profile()
        planned = profile["plannedMemory"][0]
        self.assertEqual(planned["imagesPeak"], profile["measuredPeakBytes"][0])
        self.assertEqual(planned["capacity"], 638_976 * 1_472)
        self.assertGreaterEqual(int(planned["peak"]), int(planned["lowerBound"]))

    def test_on_tiles_changes_nothing_and_is_used_as_planned(self):
        plain = self.run_job("-n", 2, config=TRAIN)
        exact = ("--memory.tiles", "exact", "--device.tiles", 24, "--device.bytes-per-tile", 1 << 20)
        for ways in ((), ("--model.precision", "half"), ("--ipus-per-replica", 2, "--training.gradient-accumulation", 3)):
            with self.subTest(ways=ways):
                reference = self.run_job("-n", 2, *ways, config=TRAIN) if ways else plain
                tiled = self.run_job("-n", 2, *exact, *ways, config=TRAIN)
                self.assertEqual(tiled.weights_hash(), reference.weights_hash())
                self.assertEqual(losses(tiled), losses(reference))
                profile = tiled.profile()
                self.assertEqual(profile["measuredPeakBytes"], [ipu["peak"] for ipu in profile["plannedMemory"]])

    def test_a_model_that_does_not_fit_ends_with_86_and_a_table(self):
        job = self.run_job("-n", 2, "--data.micro-batch-size", 4000, code=86)
        self.assert_first_line(job, "out of memory", " B more than the 638,976 B of a tile", "it fits with ")
        self.assertRegex(job.stderr, r"\n  always live +[\d,]+ B ")
        self.assertRegex(job.stderr, r"\n  not always live +[\d,]+ B ")
        self.assertRegex(job.stderr, r" data\.micro-batch-size \d+ and training\.gradient-accumulation \d+\n")


class Evaluation(JobTest):
    def test_counts_each_test_image_once_for_any_number_of_replicas(self):
        for replicas in (1, 3, 7):
            with self.subTest(replicas=replicas):
                profile = self.run_job("-n", replicas, "--training.steps", 1, *EVALUATED, config=TRAIN).profile()
                self.assertEqual(profile["outcome"]["testItems"], 10000)


class InitialWeights(JobTest):
    def test_go_on_where_a_run_ended(self):
        first = self.run_job("-n", 2, config=TRAIN)
        weights = first.output_dir / "weights.safetensors"
        nothing = self.run_job("-n", 2, "--model.initial-weights", weights,
                               "--training.learning-rate", "1e-30", config=TRAIN)
        self.assertEqual(nothing.weights_hash(), first.weights_hash())

    def test_of_another_model_are_refused_by_run_and_dry_run_alike(self):
        first = self.run_job("-n", 1, "--model.name", "mlp", "--model.hidden", 8, config=TRAIN)
        weights = first.output_dir / "weights.safetensors"
        refusals = []
        for more in ((), ("--dry-run",)):
            job = self.run_job("-n", 2, "--model.initial-weights", weights, *more, config=TRAIN,
                               code=65)
            self.assert_first_line(job, "the model needs 'conv1.bias' [32], but the file has no tensor")
            refusals += [line for line in job.stderr.splitlines() if "needs 'conv1" in line]
        self.assertEqual(refusals[0], refusals[1])
        for file in (weights.with_name("nothing"), weights.with_name("profile.json")):
            for more in ((), ("--dry-run",)):
                job = self.run_job("-n", 2, "--model.initial-weights", file, *more, config=TRAIN,
                                   code=65)
                self.assert_first_line(job, file.name)

    def test_that_are_no_safetensors_are_refused_before_anything_starts(self):
        bad = self.folder / "bad.safetensors"
        bad.write_bytes(b"not a header")
        job = self.run_job("-n", 2, "--model.initial-weights", bad, code=65)
        self.assert_first_line(job, "bad.safetensors")


if __name__ == "__main__":
    unittest.main()
