#!/usr/bin/env python3
"""--report.dump-tensors. torch_step_test.py shows that a dump suffices to recompute a step elsewhere."""
import io
import math
import signal
import struct
import unittest
import zipfile

import npy_file
import safetensors_file
from emulated_job import JobTest

RATE = 0.05
CNN = f"""
[model]
name = small-cnn
[data]
source = synthetic:images=1x28x28,classes=10,items=1000
micro-batch-size = 4
[training]
steps = 3
optimizer = sgd
learning-rate = {RATE}
evaluate = false
"""


def read(path):
    """Returns {name: (dtype, shape, values)}."""
    letters = {"F32": "f", "I32": "i", "U8": "B"}
    return {name: (dtype, shape, memoryview(data).cast("B").cast(letters[dtype]).tolist())
            for name, (dtype, shape, data) in safetensors_file.read(path).items()}


class Dump(JobTest):
    def dump(self, job, step):
        return read(job.output_dir / f"dump-step-{step}.safetensors")

    def test_holds_what_was_asked_for_and_changes_nothing(self):
        plain = self.run_job("-n", 2, config=CNN)
        self.assertEqual(list(plain.output_dir.glob("dump-*")), [])
        job = self.run_job("-n", 2, "--report.dump-tensors", "^fc2@1,2", "--report.dump-tensors",
                           "^labels$@2", config=CNN)
        self.assertEqual(plain.weights_hash(), job.weights_hash())
        first, second = self.dump(job, 1), self.dump(job, 2)
        for name in ("fc2", "fc2.weight", "fc2.weight.updated", "fc2.weight.gradient",
                     "fc2.weight.gradient.exchanged"):
            self.assertIn(name, first)
        self.assertNotIn("labels", first)
        self.assertEqual(second["labels"][:2], ("I32", [4]))
        self.assertEqual(first["fc2.weight.updated"], second["fc2.weight"])
        self.assertNotEqual(first["fc2.weight.gradient"], first["fc2.weight.gradient.exchanged"])
        for weight, gradient, updated in zip(*(first[f"fc2.weight{suffix}"][2] for suffix in (
                "", ".gradient.exchanged", ".updated"))):
            self.assertAlmostEqual(weight - RATE * gradient, updated, delta=1e-6)
        # A sample's gradients of the logits add up to zero: softmax minus one-hot.
        shape, values = first["fc2.gradient"][1:]
        self.assertEqual(shape, [4, 10])
        for row in range(4):
            self.assertAlmostEqual(sum(values[10 * row:10 * row + 10]), 0, delta=1e-6)

    def test_is_the_same_with_poison_in_dead_bytes_and_for_every_placement(self):
        def dumped(*arguments):
            job = self.run_job("-n", 2, "--report.dump-tensors", ".@2", *arguments, config=CNN)
            return (job.output_dir / "dump-step-2.safetensors").read_bytes()

        reference = dumped()
        self.assertEqual(reference, dumped("--memory.poison-dead", "true"))
        self.assertEqual(reference, dumped("--ipus-per-replica", 2))
        self.assertEqual(reference, dumped("--num-instances", 1))
        self.assertEqual(reference, dumped("--training.gradient-bucket", 0.01))

    def test_of_what_is_not_there_names_what_is_near(self):
        job = self.run_job("--report.dump-tensors", "fc2.wieght@1", config=CNN, code=64)
        self.assert_first_line(job, "no tensor of a training step of small-cnn matches "
                               "'fc2.wieght'; did you mean fc2")
        late = self.run_job("--report.dump-tensors", "fc2@4", config=CNN, code=64)
        self.assert_first_line(late, "step 4 of 'fc2' is not one of the job's steps, 1 to 3")
        dry = self.run_job("--dry-run", "--report.dump-tensors", "fc3@1", config=CNN, code=64)
        self.assert_first_line(dry, "'fc3'; did you mean ")
        wrong = self.run_job("--report.dump-tensors", "fc2(@1", config=CNN, code=64)
        self.assert_first_line(wrong, "--report.dump-tensors = fc2(@1 is not allowed", "REGEX@STEP")
        both = self.run_job("--report.dump-tensors", "fc2@1", "--model.mode", "inference",
                            config=CNN, code=64)
        self.assert_first_line(both, "report.dump-tensors needs training steps")

    def test_of_a_step_that_a_number_ends_has_what_was_made(self):
        for replicas, instances in ((1, 1), (2, 2), (4, 2)):
            with self.subTest(replicas=replicas):
                job = self.run_job("-n", replicas, "--num-instances", instances,
                                   "--training.learning-rate", 1_000_000, "--training.steps", 4,
                                   "--report.dump-tensors", ".@3,4", config=CNN, code=65)
                self.assert_first_line(job, "in step 3 on replica")
                self.assertRegex(job.stderr, "dump-step-3.safetensors contains only what step 3 "
                                 "computed before the job ended: [0-9]+ tensors?\n")
                self.assertIn("the job ended after step 2, so there is no dump of step 4\n",
                              job.stderr)
                culprit = job.stderr.split(" of '")[1].split("'")[0]
                tensors = self.dump(job, 3)
                self.assertIn("conv1.weight", tensors)
                self.assertTrue(any(not math.isfinite(x) for x in tensors[culprit][2]))

    def bad_item(self, number):
        """Writes 32 vectors of eight ones; one item has a NaN."""
        values = [1.0] * 32 * 8
        values[number * 8] = math.nan
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as file:
            file.writestr("x.npy", npy_file.floats((32, 8), values))
            file.writestr("y.npy", npy_file.content("<i8", (32,), struct.pack("<32q", *[0, 1] * 16)))
        path = self.folder / "data.npz"
        path.write_bytes(buffer.getvalue())
        return path

    def test_of_a_step_that_a_number_of_another_replica_ends_has_what_replica_0_made(self):
        """Replica 0 has no such number, and waits for the other replica in the exchange."""
        config = (CNN.replace("small-cnn", "mlp")
                  .replace("synthetic:images=1x28x28,classes=10,items=1000", f"npz:{self.bad_item(13)}\norder = sequential"))
        for instances in (2, 1):
            with self.subTest(instances=instances):
                job = self.run_job("-n", 2, "--num-instances", instances, "--report.dump-tensors", ".@2", config=config,
                                   code=65)
                self.assert_first_line(job, "NaN in element ", "in step 2 on replica 1: the value comes from the data")
                self.assertIn("  replica 0 did not send all of its dump\n", job.stderr)
                tensors = self.dump(job, 2)
                self.assertIn("fc1.weight.gradient", tensors)
                self.assertNotIn("fc1.weight.gradient.exchanged", tensors)

    def test_of_a_step_that_a_drained_job_never_reached_is_missed(self):
        job = self.start("-n", 2, "--training.steps", 100000, "--report.dump-tensors",
                         "fc2@3,99999,100000", config=CNN)
        job.wait_for_step(5)
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143, job.stderr)
        self.assertIn("fc2", self.dump(job, 3))
        self.assertRegex(job.stderr, "report.dump-tensors: the job ended after step [0-9]+, so "
                         "there is no dump of step 99999, 100000\n")


if __name__ == "__main__":
    unittest.main()
