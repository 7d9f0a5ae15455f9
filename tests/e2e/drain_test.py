#!/usr/bin/env python3
"""A signal ends a job early and keeps its training: the weights are those of the last complete step."""
import contextlib
import os
import signal
import unittest

from emulated_job import JobTest, QUICK
from failures_test import free_port, start_server

# Steps of many micro-batches, which change running statistics, and evaluations of 8,333 items: both take seconds.
DEEP = """
[model]
name = resnet18
[data]
source = synthetic:images=3x32x32,classes=10,items=50000
micro-batch-size = 4
[training]
gradient-accumulation = 32
steps = 1
evaluate = false
"""


class Drained(JobTest):
    def stop_after_a_step(self, *arguments):
        """Starts a job and asks it to end as soon as the metrics of a step exist."""
        job = self.start("-n", 2, *arguments, config=DEEP)
        job.wait_for_step(1)
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143, job.stderr)
        self.assertTrue(job.profile()["outcome"]["drained"])
        self.assertEqual([row["split"] for row in job.metrics()], ["train"])
        self.assert_gone(job)
        return job

    def test_in_a_step_or_an_evaluation_keeps_the_weights_of_the_last_whole_step(self):
        whole = self.run_job("-n", 2, config=DEEP).weights_hash()

        in_a_step = self.stop_after_a_step("--training.steps", 1000)
        self.assertIn("SIGTERM: stopping at the next micro-batch and saving the weights; send the", in_a_step.stderr)
        self.assertEqual(in_a_step.weights_hash(), whole)

        in_an_evaluation = self.stop_after_a_step("--training.evaluate", "true", "--num-instances", 1)
        self.assertIn("SIGTERM: training is done; saving the weights without waiting for the evaluation",
                      in_an_evaluation.stderr)
        self.assertEqual(in_an_evaluation.weights_hash(), whole)

    def test_without_its_data_server_keeps_the_weights_of_the_last_whole_step(self):
        port = free_port()
        server = start_server(self, port)
        job = self.start("-n", 2, "--hostio-address", f"127.0.0.1:{port}", "--training.steps", 1000, config=DEEP)
        job.wait_for_step(1)
        server.kill()
        job.wait_until(lambda: "waiting for the data server" in job.stderr, "note", 30)
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(20), 143, job.stderr)
        self.assertTrue(job.profile()["outcome"]["drained"])
        self.assertTrue(job.weights_hash())
        self.assert_gone(job)


class SentToAllProcesses(JobTest):
    """All processes are signalled, as scancel and systemd do; only the launcher obeys."""

    def assert_saved(self, job):
        self.assertTrue(job.profile()["outcome"]["drained"])
        stored = max(int(path.name[5:]) for path in job.output_dir.glob("checkpoints/step-*"))
        self.assertEqual(stored, int(job.profile()["outcome"]["steps"]))
        self.assertTrue(job.weights_hash())
        self.assertNotRegex(job.stderr, "killed by|the data server|died")
        self.assert_gone(job)

    def test_sigusr1_takes_a_checkpoint_and_sigterm_saves_the_training(self):
        job = self.start("-n", 3, "--restarts", 1, config=QUICK.replace("steps = 5", "steps = 100000"))
        job.wait_until(lambda: len(job.pids("poprun-emu-replica")) == 3, "replicas", 30)
        job.signal_all(signal.SIGUSR1)  # Before the first step.
        job.wait_for_step(3)
        job.signal_all(signal.SIGUSR1)
        job.wait_until(lambda: "checkpoint after step" in job.stderr, "checkpoint", 30)
        job.signal_all(signal.SIGTERM)
        self.assertEqual(job.wait(), 143, job.stderr)
        self.assert_saved(job)

    def test_repeated_and_in_any_order(self):
        for number in (signal.SIGHUP, signal.SIGUSR2, signal.SIGINT):
            job = self.start("-n", 2, config=QUICK.replace("steps = 5", "steps = 100000"))
            job.wait_for_step(3)
            for pid in [pid for pid in sorted(job.pids()) if pid != job.process.pid] * 3 + [job.process.pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            self.assertEqual(job.wait(), 128 + number, job.stderr)
            self.assert_saved(job)

    def test_by_a_parent_that_blocks_all_signals_of_its_children(self):
        job = self.start("-n", 2, config=QUICK.replace("steps = 5", "steps = 100000"),
                         wrapper=("env", "--block-signal"))
        job.wait_for_step(3)
        job.signal_all(signal.SIGTERM)
        self.assertEqual(job.wait(20), 143, job.stderr)
        self.assertNotIn("has not stopped within", job.stderr)
        self.assert_saved(job)


class Ignored(JobTest):
    """The wrapper does the same as a script with `nohup poprun-emu ... &`."""

    def assert_goes_on_in_spite_of_signals(self, job):
        for number in (signal.SIGHUP, signal.SIGINT):
            job.process.send_signal(number)
        job.wait_for_step(int(job.metrics()[-1]["step"]) + 20)

    def test_hangups_and_interrupts_do_nothing_to_a_job_that_was_started_to_ignore_them(self):
        job = self.start("-n", 2, "--restarts", 1, config=QUICK.replace("steps = 5", "steps = 100000"),
                         wrapper=("sh", "-c", 'trap "" INT; exec nohup "$@"', "sh"))
        job.wait_for_step(3)
        self.assert_goes_on_in_spite_of_signals(job)

        os.kill(job.replica_pid(0), signal.SIGKILL)
        job.wait_until(lambda: "restart 1 of 1" in job.stderr, "restart", 60)
        job.process.send_signal(signal.SIGHUP)  # During the pause.
        job.process.send_signal(signal.SIGINT)
        job.wait_until(lambda: job.stderr.count("replicas: ") == 2, "second attempt", 60)
        job.wait_until(lambda: 3 < len(job.metrics()) < 1000, "new metrics", 60)
        self.assert_goes_on_in_spite_of_signals(job)

        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143, job.stderr)
        self.assertTrue(job.profile()["outcome"]["drained"])
        self.assertNotRegex(job.stderr, "SIGHUP|SIGINT")


if __name__ == "__main__":
    unittest.main()
