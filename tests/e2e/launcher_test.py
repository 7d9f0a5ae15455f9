#!/usr/bin/env python3
"""The launcher alone, with a replica that computes nothing and misbehaves on demand."""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
import unittest

import emulated_job
from emulated_job import JobTest

FAKE = pathlib.Path(os.environ["POPRUN_EMU_FAKE_REPLICA"])
LONG = "100000"
UNDRAINED = "has not stopped within"


class LauncherTest(JobTest):
    """Jobs from a folder in which the fake replaces poprun-emu-replica."""

    def setUp(self):
        super().setUp()
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        for name in ("poprun-emu", "poprun-emu-hostio"):
            shutil.copy(emulated_job.BIN / name, self.bin / name)
        shutil.copy(FAKE, self.bin / "poprun-emu-replica")
        self.real = emulated_job.BIN
        emulated_job.BIN = self.bin
        self.addCleanup(setattr, emulated_job, "BIN", self.real)

    def fake(self, *arguments, mode="", instance=1, steps="3", **environment):
        return self.start(*arguments, environment={"FAKE_MODE": mode, "FAKE_INSTANCE": str(instance),
                                                   "FAKE_STEPS": steps, **environment})

    def ends(self, job, code, *parts, seconds=20):
        self.assertEqual(job.wait(seconds), code, job.stdout + job.stderr)
        self.assert_first_line(job, *parts)
        self.assert_gone(job)


class Ends(LauncherTest):
    def test_well_with_a_summary_and_all_files(self):
        job = self.fake("-n", 3)
        self.assertEqual(job.wait(20), 0, job.stderr)
        self.assertIn("steps          3\n", job.stdout)
        self.assertEqual(job.profile()["outcome"]["steps"], 3)
        self.assertEqual([row["step"] for row in job.metrics()], ["1", "2", "3"])
        for replica in range(3):
            log = (job.output_dir / "logs" / f"replica-0{replica}.log").read_text()
            self.assertIn(f"# replica {replica}: instance {replica}, host ", log)
        self.assert_gone(job)

    def test_well_where_a_process_stays_after_all_is_done(self):
        job = self.fake("-n", 3, "--heartbeat-timeout", 2, mode="lingers")
        self.assertEqual(job.wait(20), 0, job.stderr)
        self.assertIn("the job has finished, but mpirun is still running after 2 s; ending mpirun", job.stderr)
        self.assertIn("steps          3\n", job.stdout)
        self.assert_gone(job)

    def test_well_where_a_process_dies_after_all_is_done(self):
        job = self.fake("-n", 3, mode="dies-late", instance=0)
        self.ends(job, 0, "note: the results are complete, but replica 0 (instance 0, host ", "exited with code 9")
        self.assertIn("steps          3\n", job.stdout)

    def test_well_and_names_a_replica_that_computes_slowly(self):
        job = self.fake("-n", 4, "--heartbeat-interval", 0.05, mode="slow", instance=2, steps="200")
        self.assertEqual(job.wait(20), 0, job.stderr)
        self.assertRegex(job.stderr, r"note: replica 2 \(host \S+\) is 2\.5 times as slow as the median of the others: "
                                     r"2\.50 s against 1\.00 s in operators per step, over \d+ steps; all replicas wait")
        self.assertEqual(job.stderr.count("as slow as"), 1)

    def test_with_a_replicas_own_exit_code(self):
        job = self.fake("-n", 3, mode="exit", steps=LONG)
        self.ends(job, 7, "replica 1 (instance 1, host ", "exited with code 7")

    def test_with_a_replicas_own_reason_and_table(self):
        job = self.fake("-n", 3, mode="fail", steps=LONG)
        self.ends(job, 86, "out of memory: needs 2 B, had 1 B")
        self.assertIn("\na table\n", job.stderr)

    def test_with_the_name_of_a_replica_killed_before_it_joined(self):
        job = self.fake("-n", 3, mode="killed-early", steps=LONG)
        self.ends(job, 75, "replica 1 (instance 1, host ", "SIGKILL", "before it joined")

    def test_when_an_instance_never_joins(self):
        job = self.fake("-n", 3, "--collective-timeout", 2, mode="absent", steps=LONG)
        self.ends(job, 75, "replica 1 (instance 1, host ", "did not join within 2 s")

    def test_when_an_instance_does_not_join_with_the_others(self):
        job = self.fake("-n", 3, "--heartbeat-timeout", 2, mode="absent", steps=LONG)
        self.ends(job, 75, "replica 1 (instance 1, host ", "did not join within ")

    def test_badly_without_a_profile(self):
        job = self.fake("-n", 3, mode="no-profile", instance=0)
        self.ends(job, 75, "without reporting their results")

    def test_when_its_time_is_up(self):
        job = self.fake("-n", 3, "--timeout", 2, steps=LONG)
        self.ends(job, 75, "not finished after 2 s, the limit of --timeout", "at step")

    def test_badly_where_the_summary_cannot_be_written_and_keeps_the_results(self):
        for stdout, reason in (("> /dev/full", "No space left on device"), (">&-", "Bad file descriptor")):
            shell = ("sh", "-c", f'exec "$@" {stdout}', "sh")
            job = self.start("-n", 2, wrapper=shell, environment={"FAKE_STEPS": "3"})
            self.ends(job, 75, "standard output cannot be written: " + reason)
            self.assertEqual(job.profile()["outcome"]["steps"], 3)

    def test_before_its_start_where_too_few_files_may_be_open(self):
        shell = ("sh", "-c", 'ulimit -n 70; exec "$@"', "sh")
        job = self.start("-n", 16, wrapper=shell)
        self.ends(job, 69, "16 replicas in 16 instances needs 96 open files, but the limit is 70", "ulimit -n 96")

    def test_before_its_start_where_a_limit_of_processes_is_too_low(self):
        for option, had, needed in (("-s", 128, "256 KiB for the stack"), ("-f", 100, "4,096 KiB for the file size"),
                                    ("-v", 500000, "1,048,576 KiB for the address space"),
                                    ("-d", 10000, "1,048,576 KiB for the data segment")):
            shell = ("sh", "-c", f'ulimit {option} {had}; exec "$@"', "sh")
            job = self.start("-n", 1, wrapper=shell)
            self.ends(job, 69, f"need a limit of at least {needed}", f"ulimit {option}")

    def test_well_where_nobody_reads_the_summary(self):
        shell = ("bash", "-c", '"$@" | true; exit ${PIPESTATUS[0]}', "bash")
        job = self.start("-n", 2, wrapper=shell, environment={"FAKE_STEPS": "3"})
        self.assertEqual(job.wait(20), 0, job.stderr)
        self.assertNotIn("standard output", job.stderr)

    def test_well_without_a_path(self):
        job = self.start("-n", 2, wrapper=("env", "-u", "PATH"), environment={"FAKE_STEPS": "3"})
        self.assertEqual(job.wait(20), 0, job.stderr)

    def test_with_the_missing_program(self):
        (self.bin / "poprun-emu-replica").unlink()
        self.ends(self.fake("-n", 2), 69, "poprun-emu-replica", "is missing or not executable")


class Signals(LauncherTest):
    def stop(self, job, *numbers):
        job.wait_for_step(3)
        for number in numbers:
            job.process.send_signal(number)
            time.sleep(0.2)
        code = job.wait(20)
        self.assert_gone(job)
        return code

    def test_drain_a_job(self):
        job = self.fake("-n", 3, steps=LONG)
        self.assertEqual(self.stop(job, signal.SIGTERM), 143, job.stderr)
        self.assertNotIn(UNDRAINED, job.stderr)
        self.assertTrue((job.output_dir / "profile.json").exists())

    def test_end_a_job_that_does_not_drain_within_the_drain_timeout(self):
        job = self.fake("-n", 3, "--drain-timeout", 2, mode="deaf", instance=0, steps=LONG)
        self.assertEqual(self.stop(job, signal.SIGINT), 130, job.stderr)
        self.assertIn(UNDRAINED + " 2 s, the limit of --drain-timeout (replica 0: pretending for ", job.stderr)

    def test_wait_for_a_job_that_takes_long_to_drain(self):
        job = self.fake("-n", 3, mode="saves-slowly", instance=0, steps=LONG)
        self.assertEqual(self.stop(job, signal.SIGTERM), 143, job.stderr)
        self.assertTrue((job.output_dir / "profile.json").exists())

    def test_given_twice_end_a_job_at_once(self):
        job = self.fake("-n", 3, mode="deaf", instance=0, steps=LONG)
        self.assertEqual(self.stop(job, signal.SIGINT, signal.SIGINT), 130, job.stderr)
        self.assertNotIn(UNDRAINED, job.stderr)

    def test_after_the_last_step_lose_nothing_and_are_no_failure(self):
        job = self.fake("-n", 2, mode="evaluates", instance=0)
        self.assertEqual(self.stop(job, signal.SIGINT), 0, job.stderr)
        self.assertIn("SIGINT: training is done; saving the weights", job.stderr)
        self.assertIn("steps          3\n", job.stdout)
        self.assertTrue((job.output_dir / "profile.json").exists())

    def test_given_twice_after_the_last_step_give_up_the_results(self):
        job = self.fake("-n", 2, mode="evaluates", instance=0)
        self.assertEqual(self.stop(job, signal.SIGINT, signal.SIGINT), 130, job.stderr)
        self.assertFalse((job.output_dir / "profile.json").exists())

    def test_after_the_results_are_no_failure(self):
        job = self.fake("-n", 2, mode="lingers")
        job.wait_until((job.output_dir / "profile.json").exists, "profile", 10)
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(20), 0, job.stderr)
        self.assertIn("steps          3\n", job.stdout)
        self.assert_gone(job)

    def test_before_the_first_step_end_a_job(self):
        job = self.fake("-n", 3, mode="absent", instance=0)
        job.wait_until(lambda: len(job.pids("poprun-emu-replica")) == 3, "replicas", 10)
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(20), 143, job.stderr)
        self.assertIn("which has not completed a step yet", job.stderr)
        self.assert_gone(job)


class Stopped(LauncherTest):
    def test_launcher_says_how_long_it_did_not_run(self):
        job = self.fake("-n", 2, steps=LONG)
        job.wait_for_step(3)
        job.process.send_signal(signal.SIGSTOP)
        time.sleep(5)
        job.process.send_signal(signal.SIGCONT)
        job.wait_until(lambda: "note" in job.stderr, "note", 5)
        self.assertRegex(job.stderr, "poprun-emu itself did not run for [5-9] s")
        self.assertIsNone(job.process.poll())


class DataServer(LauncherTest):
    def test_that_dies_is_a_line_with_the_command_to_start_it_again(self):
        job = self.fake("-n", 2, steps=LONG)
        job.wait_for_step(3)
        os.kill(job.pids("poprun-emu-hostio")[0], signal.SIGKILL)
        job.wait_until(lambda: "data server" in job.stderr, "a line", 5)
        self.assert_first_line(job, "the data server was killed by signal 9 (SIGKILL)", "60 s",
                               "poprun-emu-hostio --bind 127.0.0.1 --port ")
        command = re.search(r"if you restart the server: (.*)", job.stderr)[1]
        again = subprocess.Popen(["bash", "-c", "exec " + command], env=job.environment,
                                 stdout=subprocess.PIPE)
        self.addCleanup(again.wait)
        self.addCleanup(again.stdout.close)
        self.addCleanup(again.kill)
        self.assertIn(b"listening on 127.0.0.1:", again.stdout.readline())
        self.assertIsNone(job.process.poll())


class Lines(LauncherTest):
    def test_stay_whole_and_say_where_they_come_from(self):
        job = self.fake("-n", 3, mode="talk")
        self.assertEqual(job.wait(20), 0, job.stderr)
        lines = job.stdout.splitlines()
        tag = re.compile(r"^\[instance 1 @ [^\]]+\] (.*)$")
        texts = [match[1] for match in map(tag.match, lines) if match]
        self.assertIn("x" * 10000, texts)
        self.assertIn("half and half", texts)
        self.assertIn("[replica 1 @ here] W tagged at its source", lines)
        log = (job.output_dir / "logs" / "replica-01.log").read_text().splitlines()
        self.assertEqual(log[1:], ["x" * 10000, "half and half",
                                   "[replica 1 @ here] W tagged at its source"])

    def test_of_one_instance_alone(self):
        job = self.fake("-n", 3, "--only-output-from-instance", 0, mode="talk")
        self.assertEqual(job.wait(20), 0, job.stderr)
        self.assertNotIn("half and half", job.stdout)
        self.assertIn("half and half", (job.output_dir / "logs" / "replica-01.log").read_text())

    def test_of_mpirun_come_with_v_after_the_first_cause(self):
        job = self.fake("-n", 3, "-v", mode="exit", steps=LONG)
        self.assertEqual(job.wait(20), 7, job.stderr)
        self.assertIn("Primary job  terminated", job.stderr)
        self.assertLess(job.stderr.index("exited with code 7"), job.stderr.index("Primary job  terminated"))

    def test_of_mpirun_stay_away_without_v(self):
        job = self.fake("-n", 3, mode="exit", steps=LONG)
        self.assertEqual(job.wait(20), 7, job.stderr)
        self.assertNotIn("Primary job", job.stderr)
        self.assertNotIn("------", job.stderr)


class DryRun(LauncherTest):
    def test_shows_everything_with_vv_and_makes_nothing(self):
        job = self.fake("-n", 4, "--num-instances", 2, "-H", "node[0-1]", "--dry-run", "-vv")
        self.assertEqual(job.wait(5), 0, job.stderr)
        self.assertFalse(job.output_dir.exists())
        for part in ("poprun topology", "| node0 ", "steps = 5                                # file\n",
                     "epochs = ", "# default", " mpirun --tag-output -np 1 --host node0 ",
                     f"{self.bin}/poprun-emu-replica : -np 1 --host node1",
                     "POPDIST_REPLICA_INDEX_OFFSET=2\n", "asked --compile\n"):
            self.assertIn(part, job.stdout)
        self.assertNotIn(job.token, job.stdout)


if __name__ == "__main__":
    unittest.main()
