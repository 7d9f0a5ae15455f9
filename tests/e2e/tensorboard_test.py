#!/usr/bin/env python3
"""--tensorboard: an independent reader finds the results of metrics.csv in the event files, each step once."""
import os
import signal
import struct
import unittest

from emulated_job import JobTest

CONFIG = """
[model]
name = small-cnn
[data]
source = synthetic:images=1x28x28,classes=10,items=1280
micro-batch-size = 64
[training]
steps = 40
optimizer = adam
learning-rate = 0.001
schedule = cosine
"""


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(crc):
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def records(data):
    """Yields the records of a TFRecord file, and checks both checksums of each."""
    while data:
        length, of_length = struct.unpack_from("<QI", data)
        record = data[12:12 + length]
        (of_record,) = struct.unpack_from("<I", data, 12 + length)
        assert masked(crc32c(data[:8])) == of_length
        assert len(record) == length and masked(crc32c(record)) == of_record
        yield record
        data = data[16 + length:]


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def fields(message):
    """Yields (field number, value) of a Protobuf message."""
    at = 0
    while at < len(message):
        key, at = varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = varint(message, at)
        elif kind == 1:
            value, at = struct.unpack_from("<d", message, at)[0], at + 8
        elif kind == 5:
            value, at = struct.unpack_from("<f", message, at)[0], at + 4
        else:
            assert kind == 2, kind
            size, at = varint(message, at)
            value, at = message[at:at + size], at + size
        yield number, value


def event(record):
    """Decodes an Event of tensorflow/core/util/event.proto."""
    found = {"step": 0, "scalars": {}}
    for number, value in fields(record):
        if number == 1:
            found["wall_time"] = value
        elif number == 2:
            found["step"] = value
        elif number == 3:
            found["file_version"] = value.decode()
        elif number == 5:
            for inner, scalar in fields(value):
                assert inner == 1
                parts = dict(fields(scalar))
                found["scalars"][parts[1].decode()] = parts[2]
        elif number == 7:
            found["session"] = dict(fields(value))[1]
        else:
            raise AssertionError(f"field {number} of an event")
    return found


def curves(folder):
    """Returns {tag: {step: value}} as TensorBoard would: in the order of the files' names, a session's start drops what
    came before for its step and later ones."""
    found = {}
    for file in sorted(folder.iterdir()):
        events = [event(record) for record in records(file.read_bytes())]
        assert events[0].get("file_version") == "brain.Event:2", events[0]
        assert events[1].get("session") == 1, events[1]
        for one in events:
            if one.get("session") == 1:
                for curve in found.values():
                    for step in [step for step in curve if step >= one["step"]]:
                        del curve[step]
            for tag, value in one["scalars"].items():
                curve = found.setdefault(tag, {})
                assert one["step"] not in curve, (tag, one["step"])
                curve[one["step"]] = value
    return found


def single(text):
    return struct.unpack("<f", struct.pack("<f", float(text)))[0]


class Tensorboard(JobTest):
    def assert_those_of_metrics(self, job, folder):
        found = curves(folder)
        rows = job.metrics()
        trained = [row for row in rows if row["split"] == "train"]
        tested = [row for row in rows if row["split"] == "test"]
        for tag, wanted, key in (("training/loss", trained, "loss"), ("training/accuracy", trained, "accuracy"),
                                 ("evaluation/loss", tested, "loss"), ("evaluation/accuracy", tested, "accuracy")):
            self.assertEqual(list(found[tag]), [int(row["step"]) for row in wanted], tag)
            for row in wanted:
                self.assertAlmostEqual(found[tag][int(row["step"])], single(row[key]), delta=1e-6, msg=tag)
        self.assertEqual(sorted(found["training/learning_rate"]), list(range(1, 41)))
        return found

    def test_has_the_results_of_a_job(self):
        folder = self.folder / "runs" / "first"
        job = self.run_job("-n", 2, "--tensorboard", folder, config=CONFIG)
        found = self.assert_those_of_metrics(job, folder)
        self.assertEqual(len(list(folder.iterdir())), 1)
        rates = found["training/learning_rate"]
        self.assertAlmostEqual(rates[1], 0.001, delta=1e-6)
        self.assertLess(rates[40], 0.0001)  # The cosine ends near 0.
        device = job.profile()["device"]["stepSeconds"]
        self.assertTrue(all(abs(seconds - device) < 0.01 * device
                            for seconds in found["speed/device_seconds_per_step"].values()), found)
        self.assertTrue(all(speed > 0 for speed in found["speed/samples_per_second"].values()))

    def test_has_each_step_once_after_a_restart_and_a_resume(self):
        folder = self.folder / "events"
        job = self.start("-n", 2, "--tensorboard", folder, "--checkpoint-every", 6, "--restarts", 1,
                         "--training.steps", 400, config=CONFIG.replace("steps = 40", "evaluate = false"))
        job.wait_until(lambda: len(job.metrics()) > 20, "step 20", 60)
        os.kill(job.replica_pid(1), signal.SIGKILL)
        job.wait_until(lambda: "resuming from" in job.stderr and len(job.metrics()) > 30, "the next attempt", 60)
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143, job.stderr)
        again = self.start("-n", 2, "--tensorboard", folder, "--resume", job.output_dir / "checkpoints",
                           "--training.steps", 400, config=CONFIG.replace("steps = 40", "evaluate = false"))
        self.assertEqual(again.wait(), 0, again.stderr)
        self.assertEqual(len(list(folder.iterdir())), 3)
        losses = curves(folder)["training/loss"]
        self.assertEqual(list(losses), list(range(1, 401)))
        for row in again.metrics():
            self.assertAlmostEqual(losses[int(row["step"])], single(row["loss"]), delta=1e-6)

    def test_a_folder_that_cannot_be_created_is_refused(self):
        job = self.run_job("--tensorboard", "/proc/none", code=64)
        self.assert_first_line(job, "--tensorboard /proc/none: this folder cannot be created")
        self.assertFalse(job.metrics())

    def test_inference_says_that_it_has_none(self):
        folder = self.folder / "none"
        job = self.run_job("--tensorboard", folder, config=CONFIG.replace("[data]", "mode = inference\n[data]")
                           .split("[training]", maxsplit=1)[0])
        self.assertIn(f"note: --tensorboard {folder} has no effect: inference reports no training steps", job.stderr)
        self.assertFalse(folder.exists())


if __name__ == "__main__":
    unittest.main()
