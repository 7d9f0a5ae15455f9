#!/usr/bin/env python3
"""A job that was killed, drained or moved resumes from its last checkpoint, bit-identical to an uninterrupted job."""
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import safetensors_file
from emulated_job import JobTest

MOMENTUM = """
[model]
name = small-cnn
[data]
source = synthetic:images=1x20x20,classes=10,items=960
micro-batch-size = 8
[training]
optimizer = momentum
epochs = 4
learning-rate = 0.02
"""

SMALL = """
[model]
name = mlp
[data]
source = synthetic:images=1x4x4,classes=4,items=160
micro-batch-size = 1
[training]
optimizer = momentum
steps = 4
evaluate = false
learning-rate = 0.02
"""

HALF_WITH_DROPOUT = """
[model]
name = bert-base
layers = 2
hidden = 32
heads = 2
vocabulary = 96
precision = half
dropout = 0.1
[data]
source = synthetic:tokens,vocabulary=96,items=960
task = masked-lm
sequence-length = 16
micro-batch-size = 8
[training]
optimizer = adam
learning-rate = 0.001
epochs = 4
stochastic-rounding = true
"""


def rows_without_wall(job):
    """Returns metrics.csv without wall seconds, and the wall seconds separately."""
    rows = job.metrics()
    return [{key: value for key, value in row.items() if key != "wall_seconds"} for row in rows]


def checkpoints(job):
    folder = job.output_dir / "checkpoints"
    names = [path.name for path in folder.iterdir()] if folder.exists() else []
    return sorted((name for name in names if name.partition("-")[2].isdigit()), key=lambda name: int(name[5:]))


class CheckpointTest(JobTest):
    REPLICAS = 4
    shared = None

    def start_in(self, output_dir, *arguments, **keywords):
        job = self.start("-n", self.REPLICAS, "--output-dir", output_dir, *arguments, **keywords)
        job.output_dir = pathlib.Path(output_dir)
        return job

    def run_in(self, output_dir, *arguments, code=0, **keywords):
        job = self.start_in(output_dir, *arguments, **keywords)
        self.assertEqual(job.wait(), code, job.stdout + job.stderr)
        return job

    def killed_at(self, step, *arguments, every=10, **keywords):
        job = self.start_in(self.folder / "out", "--checkpoint-every", every, *arguments, **keywords)
        job.wait_for_step(step)
        job.kill_everything()
        self.assert_gone(job)
        return job

    def uninterrupted(self):
        """Returns a job that ran MOMENTUM to its end, which all tests share."""
        if CheckpointTest.shared is None:
            folder = tempfile.TemporaryDirectory(prefix="poprun-emu-e2e-")
            unittest.addModuleCleanup(folder.cleanup)
            CheckpointTest.shared = self.run_in(pathlib.Path(folder.name) / "out", config=MOMENTUM)
        return CheckpointTest.shared

    def assert_same_end(self, job, reference):
        self.assertEqual(job.weights_hash(), reference.weights_hash())
        self.assertEqual(rows_without_wall(job), rows_without_wall(reference))
        wall = [float(row["wall_seconds"]) for row in job.metrics()]
        self.assertEqual(wall, sorted(wall))
        for key in ("final_loss", "test_accuracy", "test_loss", "steps"):
            key = "".join(part.capitalize() if k else part for k, part in enumerate(key.split("_")))
            self.assertEqual(job.profile()["outcome"][key], reference.profile()["outcome"][key], key)
        self.assertEqual(job.profile()["device"]["totalSeconds"], reference.profile()["device"]["totalSeconds"])


class Resumed(CheckpointTest):
    def goes_on(self, config, *arguments):
        reference = self.run_in(self.folder / "reference", *arguments, config=config)
        killed = self.killed_at(47, *arguments, config=config)
        self.assertLess(len(killed.metrics()), len(reference.metrics()))
        for instances in (4, 2, 1):
            out = self.folder / f"out{instances}"
            shutil.copytree(killed.output_dir, out)
            job = self.run_in(out, "--num-instances", instances, "--checkpoint-every", 10, "--resume", "auto", *arguments,
                              config=config)
            self.assertIn(f"resuming from {out}/checkpoints/step-", job.stderr)
            self.assertIn(", resumed after step ", job.stdout)
            self.assert_same_end(job, reference)
            self.assertEqual(len(checkpoints(job)), 3)
            self.assertTrue((out / "attempts/1/logs").is_dir())

    def test_after_everything_was_killed_on_any_number_of_processes(self):
        self.goes_on(MOMENTUM)

    def test_in_half_precision_with_dropout_and_a_loss_scale(self):
        self.goes_on(HALF_WITH_DROPOUT)

    def test_with_variables_that_are_divided_among_replicas_and_off_the_chip(self):
        self.goes_on(MOMENTUM.replace("momentum", "adam").replace("0.02", "0.001"),
                     "--memory.replicated-tensor-sharding", "weights,optimizer-state", "--memory.sharding-group", 2,
                     "--memory.optimizer-state", "off-chip")

    def test_from_a_folder_into_another_one(self):
        reference = self.uninterrupted()
        killed = self.killed_at(25, config=MOMENTUM)
        for source in (killed.output_dir, killed.output_dir / "checkpoints", killed.output_dir / "checkpoints/step-20"):
            out = self.folder / f"from-{source.name}"
            job = self.run_in(out, "--resume", source, config=MOMENTUM)
            self.assert_same_end(job, reference)

    def test_with_more_steps_where_the_learning_rate_is_constant(self):
        longer = MOMENTUM.replace("epochs = 4", "epochs = 5")
        reference = self.run_in(self.folder / "reference", "--training.evaluate", "false", config=longer)
        first = self.run_in(self.folder / "out", "--training.evaluate", "false", "--checkpoint-every", 30, config=MOMENTUM)
        self.assertEqual(checkpoints(first), ["step-60", "step-90", "step-120"])
        job = self.run_in(self.folder / "out", "--training.evaluate", "false", "--resume", "auto", config=longer)
        self.assertEqual(job.weights_hash(), reference.weights_hash())
        self.assertEqual(rows_without_wall(job), rows_without_wall(reference))
        falling = self.run_in(self.folder / "out", "--training.evaluate", "false", "--resume", "auto",
                              "--training.schedule", "linear", code=64, config=longer)
        self.assertIn("training.", falling.stderr)

    def test_at_its_last_step_with_an_evaluation_that_the_longer_job_did_not_need(self):
        at_end = ("--training.evaluate-every-epochs", 0)
        reference = self.run_in(self.folder / "reference", *at_end, config=MOMENTUM)
        self.run_in(self.folder / "longer", *at_end, "--checkpoint-every", 30, "--training.epochs", 5, config=MOMENTUM)
        job = self.run_in(self.folder / "out", *at_end, "--resume", self.folder / "longer/checkpoints/step-120",
                          config=MOMENTUM)
        self.assert_same_end(job, reference)

    def test_after_it_was_drained_in_a_step_or_an_evaluation(self):
        reference = self.uninterrupted()
        whole = len(reference.metrics())
        for rows in (17, 30, 31, 50):  # The evaluation comes after step 30.
            out = self.folder / f"drained-{rows}"
            job = self.start_in(out, config=MOMENTUM)
            job.wait_until(lambda: len(job.metrics()) >= rows, "row", 60)
            job.process.send_signal(signal.SIGTERM)
            self.assertEqual(job.wait(), 143, job.stderr)
            steps = job.profile()["outcome"]["steps"]
            self.assertEqual(checkpoints(job), [f"step-{steps}"])
            self.assertLess(len(job.metrics()), whole)
            self.assert_same_end(self.run_in(out, "--resume", "auto", "--num-instances", 2, config=MOMENTUM), reference)


class Refused(CheckpointTest):
    @classmethod
    def change(cls, path, at=-1):
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(data)

    def test_a_damaged_one_is_named_and_the_one_before_it_taken(self):
        reference = self.uninterrupted()
        killed = self.killed_at(45, config=MOMENTUM)
        names = checkpoints(killed)  # One more than are kept, until the oldest is removed.
        for k, (file, at) in enumerate([("state.safetensors", -1), ("manifest.json", 300), ("metrics.csv", 100)]):
            out = self.folder / f"damaged{k}"
            shutil.copytree(killed.output_dir, out)
            self.change(out / "checkpoints" / names[-1] / file, at)
            job = self.run_in(out, "--resume", "auto", config=MOMENTUM)
            self.assertRegex(job.stderr, f"note: a checkpoint is damaged.*{names[-1]}/{file}")
            self.assertIn(f"resuming from {out}/checkpoints/{names[-2]}", job.stderr)
            self.assertTrue((out / "checkpoints" / f"{names[-1]}.damaged").is_dir())
            self.assert_same_end(job, reference)
        for name in names:
            os.truncate(killed.output_dir / "checkpoints" / name / "state.safetensors", 1000)
        job = self.run_in(killed.output_dir, "--resume", "auto", code=65, config=MOMENTUM)
        self.assert_first_line(job, f"found {len(names)} checkpoints, but none is complete")

    def test_one_that_cannot_be_read_keeps_its_name_and_is_not_called_damaged(self):
        reference = self.run_in(self.folder / "reference", "--checkpoint-every", 30, "--checkpoint-keep", 2, config=MOMENTUM)
        folder = reference.output_dir / "checkpoints"
        (folder / "latest").symlink_to("step-120")
        for name, going_on in (("step-120", "step-90"), ("step-90", None)):
            state = folder / name / "state.safetensors"
            state.rename(folder / name / "kept")
            state.mkdir()
            out = self.folder / f"without-{name}"
            job = self.run_in(out, "--resume", folder / "latest", code=0 if going_on else 69, config=MOMENTUM)
            self.assertRegex(job.stderr, f"note: a checkpoint cannot be read: .*/{name}/state.safetensors: cannot be "
                             "read: it is a directory")
            self.assertEqual(checkpoints(reference), ["step-90", "step-120"])
            if going_on:
                self.assertRegex(job.stderr, f"resuming from .*/{going_on}")
                self.assert_same_end(job, reference)
        self.assert_first_line(job, "found 2 checkpoints, but none is usable: 2 cannot be read; see above for the reason")
        self.assertNotRegex(job.stderr, "damaged|remove")

    def test_another_job_data_or_instruction_set(self):
        data = self.folder / "words.txt"
        data.write_text("a stitch in time saves nine and so does a checkpoint " * 40)
        config = f"""
[model]
name = gpt2
layers = 1
hidden = 16
heads = 2
vocabulary = 256
[data]
source = text:{data}
sequence-length = 8
micro-batch-size = 2
[training]
steps = 20
evaluate = false
learning-rate = 0.01
"""
        self.run_in(self.folder / "out", "--checkpoint-every", 10, config=config)
        again = lambda *arguments, code: self.run_in(self.folder / "out", "--resume", "auto", *arguments, code=code,
                                                     config=config)
        self.assert_first_line(again("--training.learning-rate", 0.02, code=64),
                               "this job differs from the checkpoint's: training.learning-rate: 0.01 -> 0.02")
        self.assert_first_line(again("-n", 2, code=64), "topology.num-replicas: 4 -> 2")
        self.assert_first_line(again("--cpu-isa", "sse41", code=69), "the checkpoint was computed with")
        self.assert_first_line(again("--training.steps", 15, code=64),
                               "the checkpoint was taken after step 20, but this job has only 15 steps")
        data.write_text(data.read_text().replace("nine", "ten!"))
        self.assert_first_line(again(code=65), "differ from those of the checkpoint")
        missing = self.run_in(self.folder / "other", "--resume", self.folder / "nowhere", code=64, config=config)
        self.assert_first_line(missing, "this folder has no checkpoint; give a folder step-N")
        anew = self.run_in(self.folder / "out", code=64, config=config)
        self.assert_first_line(anew, "holds checkpoints of an earlier run", "--resume auto", "--overwrite")

    def test_one_of_another_version_is_refused_and_keeps_its_name(self):
        job = self.run_in(self.folder / "out", "--checkpoint-every", 60, config=MOMENTUM)
        manifest = job.output_dir / "checkpoints/step-120/manifest.json"
        text = manifest.read_text()
        own = json.loads(text)["sha256"]
        bare = re.sub(r'"version": "[^"]*"', '"version": "9.9.9",\n "later": 1', text.replace(own, ""), count=1)
        manifest.write_text(re.sub(r'\n "sha256": "', lambda field: field[0] + hashlib.sha256(bare.encode()).hexdigest(), bare))
        refused = self.run_in(job.output_dir, "--resume", "auto", code=64, config=MOMENTUM)
        self.assert_first_line(refused, "step-120: the checkpoint was written by poprun-emu 9.9.9, and this version")
        self.assertNotIn("damaged", refused.stderr)
        self.assertEqual(checkpoints(job), ["step-60", "step-120"])

    def test_to_replace_what_another_job_left(self):
        source = self.run_in(self.folder / "source", "--checkpoint-every", 30, config=MOMENTUM)
        other = self.run_in(self.folder / "other", "--training.epochs", 1, "--checkpoint-every", 10, config=MOMENTUM)
        weights, kept = other.weights_hash(), checkpoints(other)
        refused = self.run_in(other.output_dir, "--resume", source.output_dir, code=64, config=MOMENTUM)
        self.assertIn("holds checkpoints of an earlier run", refused.stderr)
        shutil.rmtree(other.output_dir / "checkpoints")
        refused = self.run_in(other.output_dir, "--resume", source.output_dir, code=64, config=MOMENTUM)
        self.assertIn("holds the results of an earlier run", refused.stderr)
        self.assertEqual(other.weights_hash(), weights)
        self.assertEqual(len(kept), 3)


class Taken(CheckpointTest):
    def test_on_a_signal_by_time_and_when_one_is_there_already(self):
        job = self.start_in(self.folder / "out", "--checkpoint-every", "1s", "--checkpoint-keep", 2,
                            "--training.epochs", 400, "-v", config=MOMENTUM)
        job.wait_until(lambda: len(checkpoints(job)) == 2, "second checkpoint", 60)
        job.process.send_signal(signal.SIGUSR1)
        job.wait_until(lambda: "SIGUSR1: taking a checkpoint" in job.stderr, "word", 10)
        job.wait_until(lambda: job.stderr.count("poprun-emu: checkpoint after step") > 4, "more", 60)
        self.assertLessEqual(len(checkpoints(job)), 3)
        other = self.run_in(self.folder / "other", "--checkpoint-dir", job.output_dir / "checkpoints", "--overwrite",
                            "--checkpoint-every", 5, code=64, config=MOMENTUM)
        self.assert_first_line(other, "another job is writing to this folder")
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143, job.stderr)
        self.assertIn(f"the last after step {job.profile()['outcome']['steps']:,}: ", job.stdout)

    def test_that_could_never_be_gone_on_from_are_refused_at_the_start(self):
        job = self.run_in(self.folder / "out", "--checkpoint-every", 5, "--restarts", 1, "--hosts-min", 2, code=64,
                          config=MOMENTUM)
        self.assert_first_line(job, "--hosts-min 2: the job has 1 host")

    def test_are_safetensors_with_optimiser_state_and_checksums(self):
        job = self.run_in(self.folder / "out", "--checkpoint-every", 60, config=MOMENTUM)
        folder = job.output_dir / "checkpoints/step-120"
        header_bytes = int.from_bytes((folder / "state.safetensors").read_bytes()[:8], "little")
        header = json.loads((folder / "state.safetensors").read_bytes()[8:8 + header_bytes])
        weights = safetensors_file.read(job.output_dir / "weights.safetensors")
        for name, (_, shape, _) in weights.items():
            self.assertEqual(header[name]["shape"], shape, name)
        self.assertGreater(len(header), len(weights))  # Momentum.
        manifest = json.loads((folder / "manifest.json").read_text())
        self.assertEqual(manifest["host"]["step"], 120)
        for file in manifest["files"]:
            summed = subprocess.run(["sha256sum", folder / file["name"]], capture_output=True, text=True, check=True)
            self.assertEqual(summed.stdout.split()[0], file["sha256"])


class OfManyReplicas(CheckpointTest):
    REPLICAS = 40

    def test_in_one_process_holds_a_part_of_each(self):
        job = self.run_in(self.folder / "out", "--num-instances", 1, "--checkpoint-every", 2, "--timeout", 120,
                          "--memory.replicated-tensor-sharding", "weights,optimizer-state",
                          "--memory.sharding-min-elements", 1, config=SMALL)
        self.assertEqual(checkpoints(job), ["step-2", "step-4"])
        self.assert_same_end(self.run_in(self.folder / "again", "--resume", job.output_dir / "checkpoints/step-2",
                                         "--num-instances", 8, "--memory.replicated-tensor-sharding",
                                         "weights,optimizer-state", "--memory.sharding-min-elements", 1, config=SMALL),
                             job)


class Restarted(CheckpointTest):
    def test_after_a_replica_died_with_the_bits_of_a_job_that_lost_none(self):
        reference = self.uninterrupted()
        job = self.start_in(self.folder / "out", "--checkpoint-every", 10, "--restarts", 1, config=MOMENTUM)
        for attempt, step in ((1, 25), (2, 45)):
            job.wait_until(lambda: len(job.metrics()) > step and job.pids("poprun-emu-replica"), f"row {step}", 60)
            os.kill(job.replica_pid(attempt), signal.SIGKILL)
            # Each attempt stores a checkpoint, which renews the number of restarts.
            job.wait_until(lambda: job.stderr.count("restart 1 of 1") == attempt, "restart", 60)
            job.wait_until(lambda: job.stderr.count("resuming from") == attempt, "next attempt", 60)
        self.assertEqual(job.wait(), 0, job.stderr)
        self.assert_same_end(job, reference)
        for attempt in (1, 2):
            self.assertIn("killed", (job.output_dir / f"attempts/{attempt}/failure.txt").read_text())
            self.assertTrue(any((job.output_dir / f"attempts/{attempt}/logs").iterdir()))

    def test_not_more_often_than_allowed_and_not_for_what_stays_wrong(self):
        job = self.start_in(self.folder / "out", "--restarts", 1, "--training.epochs", 400, config=MOMENTUM)
        for _ in range(2):
            job.wait_until(lambda: len(job.metrics()) > 5 and job.pids("poprun-emu-replica"), "row", 60)
            attempts = job.stderr.count("replicas: ")
            os.kill(job.replica_pid(0), signal.SIGKILL)
            if job.stderr.count("restart 1 of 1") == 0:
                job.wait_until(lambda: job.stderr.count("replicas: ") > attempts, "next attempt", 60)
                job.wait_until(lambda: not job.metrics() or len(job.metrics()) < 400, "new metrics", 60)
        self.assertEqual(job.wait(60), 75, job.stderr)
        self.assertEqual(job.stderr.count("restart "), 1, job.stderr)
        wrong = self.run_in(self.folder / "wrong", "--restarts", 3, "--training.learning-rate", 1e6, code=65,
                            config=MOMENTUM)
        self.assertNotIn("restart 1 of", wrong.stderr)
        late = self.run_in(self.folder / "late", "--restarts", 3, "--timeout", 4, "--training.epochs", 4000, code=75,
                           config=MOMENTUM)
        self.assertNotIn("restart 1 of", late.stderr)

    def kill_a_replica(self, job):
        job.wait_until(lambda: len(job.metrics()) > 5 and job.pids("poprun-emu-replica"), "row", 60)
        os.kill(job.replica_pid(1), signal.SIGKILL)
        job.wait_until(lambda: "restart 1 of 1" in job.stderr, "restart", 60)

    def test_before_its_first_checkpoint_from_where_it_began(self):
        reference = self.run_in(self.folder / "reference", "--checkpoint-every", 10, config=MOMENTUM)
        source = reference.output_dir / "checkpoints/step-100"
        job = self.start_in(self.folder / "out", "--resume", source, "--checkpoint-every", 1000, "--restarts", 1,
                            config=MOMENTUM)
        job.wait_until(lambda: len(job.pids("poprun-emu-replica")) == self.REPLICAS, "replicas", 60)
        os.kill(job.replica_pid(1), signal.SIGKILL)
        self.assertEqual(job.wait(), 0, job.stderr)
        self.assertEqual(job.stderr.count(f"resuming from {source}"), 2, job.stderr)
        self.assert_same_end(job, reference)

    def test_before_its_first_checkpoint_and_not_from_those_of_the_job_that_it_replaces(self):
        out = self.folder / "out"
        self.run_in(out, "--checkpoint-every", 10, "--training.learning-rate", 0.01, config=MOMENTUM)
        reference = self.uninterrupted()
        job = self.start_in(out, "--overwrite", "--checkpoint-every", 1000, "--restarts", 1, config=MOMENTUM)
        job.wait_until(lambda: len(job.pids("poprun-emu-replica")) == self.REPLICAS, "replicas", 60)
        os.kill(job.replica_pid(1), signal.SIGKILL)
        self.assertEqual(job.wait(), 0, job.stderr)
        self.assertIn("restart 1 of 1", job.stderr)
        self.assert_same_end(job, reference)
        self.assertTrue((out / "attempts/1/failure.txt").exists())

    def test_though_it_is_asked_for_a_checkpoint_in_the_pause(self):
        job = self.start_in(self.folder / "out", "--checkpoint-every", 1000, "--restarts", 1, config=MOMENTUM)
        self.kill_a_replica(job)
        job.process.send_signal(signal.SIGUSR1)
        self.assertEqual(job.wait(), 0, job.stderr)

    def test_is_given_up_by_a_signal_in_the_pause(self):
        job = self.start_in(self.folder / "out", "--restarts", 9, "--training.epochs", 400, config=MOMENTUM)
        job.wait_for_step(5)
        os.kill(job.replica_pid(0), signal.SIGKILL)
        job.wait_until(lambda: "restart 1 of 9" in job.stderr, "restart", 60)
        job.process.send_signal(signal.SIGINT)
        self.assertEqual(job.wait(10), 130, job.stderr)

    def test_leaves_its_folder_to_nobody_in_the_pause(self):
        job = self.start_in(self.folder / "out", "--checkpoint-every", 1000, "--restarts", 1, config=MOMENTUM)
        self.kill_a_replica(job)
        job.process.send_signal(signal.SIGSTOP)
        other = self.run_in(job.output_dir, "--overwrite", code=64, config=MOMENTUM)
        self.assert_first_line(other, "another job is writing to this folder")
        job.process.send_signal(signal.SIGCONT)
        self.assertEqual(job.wait(), 0, job.stderr)


class FullDisk(CheckpointTest):
    def small_disk(self):
        disk = self.folder / "disk"
        disk.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "none", disk], capture_output=True,
                                 check=False)
        if mounted.returncode != 0:
            self.skipTest("cannot mount here (mount needs CAP_SYS_ADMIN)")
        self.addCleanup(subprocess.run, ["umount", "--lazy", disk], check=True)
        return disk

    def fill(self, path, size):
        """Writes a file of this size; a checkpoint that is being written or removed may delay it for a moment."""
        with open(path, "wb", buffering=0) as file:
            for _ in range(6000):
                try:
                    file.write(b"x" * min(1 << 16, size - file.tell()))
                except OSError:
                    time.sleep(0.01)
                if file.tell() == size:
                    return
        self.fail(f"no space for {path}")

    def test_with_room_for_fewer_than_are_kept_has_the_latest(self):
        disk = self.small_disk()
        job = self.run_in(self.folder / "out", "--checkpoint-dir", disk, "--checkpoint-every", 10, "--checkpoint-keep", 9,
                          "--training.evaluate", "false", config=MOMENTUM)
        names = {path.name for path in disk.glob("step-*")}
        self.assertIn("step-120", names)
        self.assertGreater(len(names), 1)
        self.assertLess(len(names), 9)
        self.assertNotIn("note: no checkpoint", job.stderr)

    def test_keeps_the_last_whole_one_and_is_tried_again(self):
        disk = self.small_disk()
        job = self.start_in(self.folder / "out", "--checkpoint-dir", disk / "ck", "--checkpoint-every", 20,
                            "--training.evaluate", "false", "--checkpoint-keep", 1, "--training.epochs", 4000, config=MOMENTUM)
        there = lambda: [path.name for path in (disk / "ck").glob("step-*") if not path.name.endswith(".part")]
        job.wait_until(lambda: (disk / "ck").exists() and there(), "first checkpoint", 60)
        filler = disk / "filler"
        self.fill(filler, 7 << 19)
        job.wait_until(lambda: "note: no checkpoint after step" in job.stderr, "note", 60)
        self.assertRegex(job.stderr, r"No space left on device.*; the checkpoint after step \d+ is kept; trying again")
        kept = there()
        self.assertEqual(len(kept), 1)
        filler.unlink()
        job.wait_until(lambda: there() and there() != kept, "later checkpoint", 60)
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143, job.stderr)
        self.assertEqual(there(), [f"step-{job.profile()['outcome']['steps']}"])


if __name__ == "__main__":
    unittest.main()
