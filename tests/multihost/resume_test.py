#!/usr/bin/env python3
"""A job that loses a host resumes from its last checkpoint on the remaining hosts, with bit-identical results."""
import os
import signal
import unittest

import cluster
from cluster_test import ClusterTest
from checkpoint_test import HALF_WITH_DROPOUT, MOMENTUM, checkpoints, rows_without_wall

ADAM_IN_SHARDS = MOMENTUM.replace("momentum", "adam").replace("0.02", "0.001")
SHARDS = ("--memory.replicated-tensor-sharding", "weights,optimizer-state")


class LostHost(ClusterTest):
    def assert_same_end(self, job, reference):
        self.assertEqual(job.weights_hash(), reference.weights_hash())
        self.assertEqual(rows_without_wall(job), rows_without_wall(reference))

    def test_is_done_without_by_a_restart(self):
        hosts = self.cluster(4)
        for config, arguments in ((MOMENTUM, ()), (HALF_WITH_DROPOUT, ()), (ADAM_IN_SHARDS, SHARDS)):
            with self.subTest(config=config):
                reference = self.run_job("-n", 8, *arguments, config=config)
                job = self.start_on(hosts, "-n", 8, "-H", "node[0-3]", "--checkpoint-every", 10, "--restarts", 1,
                                    "--hosts-min", 3, "--heartbeat-timeout", 5, *arguments, config=config)
                job.wait_until(lambda: len(checkpoints(job)) > 1, "second checkpoint", 90)
                name = hosts.names[-1]
                hosts.kill_host(name)
                job.wait_until(lambda: "restart 1 of 1" in job.stderr, "restart", 60)
                self.assertIn(f"without {name}", job.stderr)
                self.assertEqual(job.wait(), 0, job.stderr)
                self.assertIn("resuming from", job.stderr)
                self.assert_same_end(job, reference)
                failure = (job.output_dir / "attempts/1/failure.txt").read_text()
                self.assertIn(name, failure)
                hosts.boot_again(name)

    def test_takes_part_again_when_it_is_back(self):
        hosts = self.cluster(3)
        long = MOMENTUM.replace("epochs = 4", "epochs = 30")
        reference = self.run_job("-n", 6, config=long)
        job = self.start_on(hosts, "-n", 6, "-H", "node[0-2]", "--checkpoint-every", 10, "--restarts", 2, "--hosts-min", 2,
                            config=long)
        job.wait_until(lambda: len(checkpoints(job)) > 1, "second checkpoint", 90)
        hosts.kill_host("node2")
        job.wait_until(lambda: "resuming from" in job.stderr, "second attempt", 90)
        job.wait_until(lambda: "epoch 3," in job.stderr, "epoch 3", 60)
        one = job.replica_pid(0)  # On another host, one of the first attempt may still be about to end.
        os.kill(one, signal.SIGSTOP)  # The job cannot end while the host boots.
        hosts.boot_again("node2")
        os.kill(one, signal.SIGKILL)
        job.wait_until(lambda: "note: host node2 answers again, so the job uses it" in job.stderr, "return", 60)
        self.assertEqual(job.wait(), 0, job.stderr)
        self.assert_same_end(job, reference)

    def test_is_done_without_where_it_is_lost_before_or_while_a_restart_begins(self):
        hosts = self.cluster(4)
        reference = self.run_job("-n", 8, config=MOMENTUM)
        for moment in ("in the pause before it", "as mpirun starts a daemon there"):
            with self.subTest(moment):
                job = self.start_on(hosts, "-n", 8, "-H", "node[0-3]", "--checkpoint-every", 10, "--restarts", 2,
                                    "--hosts-min", 2, "--heartbeat-timeout", 5, config=MOMENTUM)
                job.wait_until(lambda: len(checkpoints(job)) > 1, "second checkpoint", 90)
                hosts.forget_start("node2")
                hosts.kill_host("node3")
                job.wait_until(lambda: "restart 1 of 2" in job.stderr, "first restart", 60)
                if moment.startswith("as"):
                    job.wait_until(lambda: hosts.was_asked("node2"), "start of a daemon", 60)
                hosts.kill_host("node2")
                job.wait_until(lambda: "restart 2 of 2" in job.stderr, "second restart", 60)
                self.assertIn("without node3, node2", job.stderr)
                self.assertEqual(job.wait(), 0, job.stderr)
                self.assert_same_end(job, reference)
                verdict = job.stderr.partition("restart 1 of 2")[2].partition("restart 2 of 2")[0]
                self.assertIn("node2", verdict)
                self.assertNotIn("node1", verdict)
                hosts.boot_again("node2")
                hosts.boot_again("node3")

    def test_ends_the_job_where_more_are_needed_and_a_later_one_goes_on_elsewhere(self):
        hosts = self.cluster(4)
        reference = self.run_job("-n", 8, *SHARDS, config=ADAM_IN_SHARDS)
        job = self.start_on(hosts, "-n", 8, "-H", "node[0-3]", "--checkpoint-every", 10, "--restarts", 1, "--hosts-min", 4,
                            "--heartbeat-timeout", 5, *SHARDS, config=ADAM_IN_SHARDS)
        job.wait_until(lambda: len(checkpoints(job)) > 1, "second checkpoint", 90)
        hosts.kill_host("node2")
        self.assertEqual(job.wait(60), 75, job.stderr)
        self.assertIn("no restart: only 3 hosts left, but --hosts-min is 4", job.stderr)
        again = self.run_on(hosts, "-n", 8, "-H", "node0,node1,node3", "--resume", job.output_dir, *SHARDS,
                            config=ADAM_IN_SHARDS)
        self.assert_same_end(again, reference)


if __name__ == "__main__":
    cluster.enter_sandbox()
    unittest.main()
