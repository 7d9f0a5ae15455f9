#!/usr/bin/env python3
"""--replay-every and --flip-bit, as a user runs them: silent data corruption is found, named, and undone."""
import unittest

from emulated_job import GPT2_HALF, QUICK, JobTest

class Replay(JobTest):
    def test_replays_change_neither_weights_nor_device_time(self):
        for words, config in ((("-n", 4, "--num-instances", 2), QUICK),
                              (("-n", 3, "--training.gradient-accumulation", 2), QUICK),
                              (("-n", 2, "--ipus-per-replica", 2, "--training.gradient-accumulation", 4),
                               GPT2_HALF),
                              (("-n", 4, "--memory.replicated-tensor-sharding", "weights,optimizer-state"),
                               GPT2_HALF)):
            jobs = [self.run_job("--training.steps", 4, "--overwrite", *words, *more, config=config)
                    for more in ((), ("--replay-every", 2))]
            self.assertEqual(jobs[0].weights_hash(), jobs[1].weights_hash(), words)
            clocks = [[row["device_seconds"] for row in job.metrics()] for job in jobs]
            self.assertEqual(*clocks)
            self.assertIn("in 2 steps, other replicas computed every micro-batch again", jobs[1].stderr)

    def test_a_flipped_bit_ends_the_job_and_a_restart_gives_the_right_weights(self):
        words = ("-n", 4, "--training.steps", 20, "--overwrite")
        right = self.run_job(*words, config=QUICK).weights_hash()
        job = self.run_job(*words, "--replay-every", 5, "--checkpoint-every", 5, "--flip-bit", "2:fc1@15",
                           "--restarts", 1, config=QUICK)
        self.assertRegex(job.stderr, r"replica 2 \(.*\).*: silent data corruption in step 15: replica 2 computed a "
                                     r"wrong 'fc1' of \S+ in micro-batch 1, .* \(replicas 0 and 3 agree on another "
                                     r"value\)")
        self.assertIn("resuming from", job.stderr)
        self.assertEqual(job.weights_hash(), right)

    def test_a_wrong_copy_of_a_weight_never_reaches_a_checkpoint(self):
        job = self.run_job("-n", 3, "--memory.private", "true", "--training.steps", 20, "--replay-every", 20,
                           "--checkpoint-every", 4, "--flip-bit", "1:fc2.bias@6", "--overwrite", config=QUICK,
                           code=75)
        self.assertIn("silent data corruption before step 9: 'fc2.bias' is wrong on replica 1 (2 other copies agree)",
                      job.stderr)
        self.assertEqual([path.name for path in (job.output_dir / "checkpoints").glob("step-*")], ["step-4"])

    def test_mistakes_are_refused(self):
        for words, message in (
                (("-n", 1, "--replay-every", 2), "--replay-every = 2 needs at least 2 replicas"),
                (("-n", 2, "--replay-every", 9), "the job has only 6 steps"),
                (("profile", "-n", 2, "--replay-every", 2), "--replay-every applies only to training jobs"),
                (("-n", 2, "--flip-bit", "2:fc1@1"), "--flip-bit = 2:fc1@1: the job has replicas 0 to 1"),
                (("-n", 2, "--flip-bit", "fc1@1"), "allowed: REPLICA:TENSOR@STEP"),
                (("-n", 2, "--flip-bit", "1:fc9@1"), "no training step has a tensor of this name"),
                (("-n", 2, "--flip-bit", "1:fc1@7"), "the job has steps 1 to 6")):
            job = self.run_job(*words, "--training.steps", 6, "--overwrite", config=QUICK, code=64)
            self.assertIn(message, job.stderr)


if __name__ == "__main__":
    unittest.main()
