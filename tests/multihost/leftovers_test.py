#!/usr/bin/env python3
"""The next job on a host removes the files that a job left there when all its processes were killed at once."""
import pathlib
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "e2e"))

import cluster
from emulated_job import JobTest, QUICK

LONG = QUICK.replace("steps = 5", "steps = 100000")


class Leftovers(JobTest):
    def setUp(self):
        super().setUp()
        self.hosts = cluster.Cluster(3)
        self.hosts.__enter__()
        self.addCleanup(self.hosts.__exit__)
        subprocess.run(["mount", "-t", "tmpfs", "none", "/dev/shm"], check=True)
        self.addCleanup(subprocess.run, ["umount", "/dev/shm"], check=True)
        self.files = self.folder / "files"
        self.files.mkdir()

    def start_on(self, hosts, *arguments, **keywords):
        return self.start("-H", hosts, "--host-subnet", "10.77.0.0/24", *arguments,
                          wrapper=self.hosts.command_on("node0"),
                          environment={**self.hosts.environment(), "TMPDIR": str(self.files)}, **keywords)

    def run_on(self, hosts, *arguments):
        job = self.start_on(hosts, *arguments)
        self.assertEqual(job.wait(), 0, job.stderr)
        self.assert_gone(job)

    def left(self):
        """Returns the leftover temporary files, which the hosts share, and those in the shared memory of each host."""
        memory = [subprocess.run(self.hosts.command_on(name, "ls", "/dev/shm"), check=True, capture_output=True,
                                 text=True).stdout.split() for name in self.hosts.names]
        return sorted(path.name for path in self.files.glob("*/*")), memory

    def kill_everything_of_a_job(self):
        job = self.start_on("node[0-1]", "-n", 4, config=LONG)
        job.wait_for_step(3)
        job.kill_everything()
        self.assert_gone(job)

    def remote_shells_forget_the_folder(self):
        """Makes remote shells pass on no variables, like ssh."""
        shell = self.hosts.folder / "remote_shell"
        shell.write_text(shell.read_text().replace("bash -c \"$*\"", f"env TMPDIR='{self.files}' bash -c \"$*\""))

    def test_are_removed_by_the_next_job_on_these_hosts(self):
        for handed_on in (True, False):
            with self.subTest(handed_on=handed_on):
                if not handed_on:
                    self.remote_shells_forget_the_folder()
                self.kill_everything_of_a_job()
                files, memory = self.left()
                self.assertEqual([name for name in files if name.startswith("ompi.")],
                                 ["ompi.node0.0", "ompi.node1.0"])
                self.assertEqual([len(names) for names in memory], [2, 2, 0])
                self.run_on("node[0-1]", "-n", 4)
                self.assertEqual(self.left(), ([], [[], [], []]))
                self.assertEqual(list(self.files.iterdir()), [])

    def test_of_other_hosts_wait_for_a_job_there(self):
        self.remote_shells_forget_the_folder()
        self.kill_everything_of_a_job()
        self.run_on("node0,node2", "-n", 2)
        self.assertEqual([len(names) for names in self.left()[1]], [0, 2, 0])
        self.assertEqual(self.left()[0], ["ompi.node1.0"])
        self.run_on("node0,node1", "-n", 2)
        self.assertEqual(list(self.files.iterdir()), [])
        self.assertEqual(self.left()[1], [[], [], []])

    def test_stay_while_the_job_runs(self):
        running = self.start_on("node[0-1]", "-n", 4, config=LONG)
        running.wait_for_step(3)
        before = self.left()
        self.kill_everything_of_a_job()
        self.run_on("node[0-2]", "-n", 3)
        self.assertEqual(self.left(), before)
        running.wait_for_step(int(running.metrics()[-1]["step"]) + 3)
        running.process.send_signal(signal.SIGTERM)
        self.assertEqual(running.wait(), 143, running.stderr)
        self.assertEqual(list(self.files.iterdir()), [])


if __name__ == "__main__":
    cluster.enter_sandbox()
    unittest.main()
