"""Runs poprun-emu as a user does, finds its processes, and cleans up after it.

Every job gets its own token through POPRUN_EMU_TOKEN. Its processes are found by that variable in /proc, so that tests
never touch other processes.
"""
import contextlib
import csv
import hashlib
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest
import uuid

import safetensors_file

BIN = pathlib.Path(os.environ["POPRUN_EMU_BIN"]).resolve()
ROOT = pathlib.Path(os.environ["POPRUN_EMU_ROOT"]).resolve()
DATASET = pathlib.Path("/usr/share/datasets/fashion-mnist")
DEADLINE_SECONDS = 120
os.environ["POPRUN_EMU_STRICT"] = "1"  # A failed proof ends the job, even if the pass is optional.

# If a script runs the tests in the background, SIGINT is ignored, with nohup also SIGHUP; jobs would inherit this.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, handler)

# A job of a few steps, without evaluation, for tests of everything but the numbers.
ACCUMULATING = """
[model]
name = small-cnn
[data]
source = fashion-mnist
micro-batch-size = 64
[training]
steps = 3
gradient-accumulation = 4
optimizer = adam
learning-rate = 0.001
"""

QUICK = """
[model]
name = small-cnn
[data]
source = fashion-mnist
micro-batch-size = 4
[training]
steps = 5
evaluate = false
"""


GPT2_HALF = """
[model]
name = gpt2
precision = half
layers = 2
hidden = 32
heads = 2
vocabulary = 64
sequence-length = 16
dropout = 0.1
[data]
source = synthetic:tokens,vocabulary=64
sequence-length = 16
micro-batch-size = 2
[training]
optimizer = adamw
learning-rate = 0.001
loss-scaling = auto
schedule = constant
evaluate = false
"""


def environment_of(pid):
    try:
        raw = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (item.split(b"=", 1) for item in raw.split(b"\0") if b"=" in item)
    return {key.decode(): value.decode(errors="replace") for key, value in pairs}


def name_of(pid):
    """Returns the program's name, or "" for a zombie or a process that has exited."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
        if stat.rsplit(")", 1)[1].split()[0] == "Z":
            return ""
        return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return ""


def signal_each(pids, number):
    """Signals children before their parents, which have lower pids: when a parent dies, the kernel continues its
    stopped children."""
    for pid in sorted(pids, reverse=True):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


class Job:
    """One `poprun-emu` command; `wrapper` holds the words before it, which run it elsewhere.

    A variable in `environment` that is None is unset. If `config` is None, the command gets no train.cfg and no
    --output-dir."""

    def __init__(self, folder, *arguments, config=QUICK, environment=None, wrapper=(), program=None):
        self.folder = pathlib.Path(folder)
        self.token = uuid.uuid4().hex
        self.output_dir = self.folder / "out"
        variables = {**os.environ, "POPRUN_EMU_TOKEN": self.token, **(environment or {})}
        self.environment = {name: value for name, value in variables.items() if value is not None}
        self.stdout_file = self.folder / "stdout"
        self.stderr_file = self.folder / "stderr"
        command = [*wrapper, str(program or BIN / "poprun-emu")]
        if config is None:
            command += map(str, arguments)
        else:
            config_file = self.folder / "job.cfg"
            config_file.write_text(config)
            command += ["--output-dir", str(self.output_dir), *map(str, arguments), str(config_file)]
        with open(self.stdout_file, "wb") as out, open(self.stderr_file, "wb") as err:
            self.process = self.popen(command, stdout=out, stderr=err, cwd=self.folder, env=self.environment,
                                      stdin=subprocess.DEVNULL)

    def popen(self, command, **keywords):
        return subprocess.Popen(command, **keywords)

    @property
    def stdout(self):
        return self.stdout_file.read_text(errors="replace")

    @property
    def stderr(self):
        return self.stderr_file.read_text(errors="replace")

    def wait(self, seconds=DEADLINE_SECONDS):
        """Returns the exit code; fails with the job's output if the job runs longer than `seconds`."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.end()
            raise AssertionError(f"no end within {seconds} s\n{self.stdout}\n{self.stderr}") from None

    def pids(self, name=None):
        """Returns the processes of this job, or only those called `name`."""
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdigit() and environment_of(entry).get("POPRUN_EMU_TOKEN") == self.token:
                if name_of(entry) == (name or name_of(entry)) != "":
                    found.append(int(entry))
        return found

    def replica_pid(self, instance):
        for pid in self.pids("poprun-emu-replica"):
            if environment_of(pid).get("OMPI_COMM_WORLD_RANK") == str(instance):
                return pid
        raise AssertionError(f"no instance {instance} among {self.pids()}\n{self.stderr}")

    def metrics(self):
        try:
            with open(self.output_dir / "metrics.csv", newline="") as file:
                return list(csv.DictReader(file))
        except FileNotFoundError:  # The job has not begun, or a restart is just about to write a new file.
            return []

    def wait_for_step(self, step, seconds=60):
        self.wait_until(lambda: any(row.get("step") and int(row["step"]) >= step
                                    for row in self.metrics()), f"step {step}", seconds)

    def wait_until(self, condition, what, seconds):
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise AssertionError(f"no {what}; exit code {self.process.poll()}\n{self.stderr}")
            time.sleep(0.02)

    def weights_hash(self):
        """Returns a hash of the names, types and values of all weights."""
        raw = (self.output_dir / "weights.safetensors").read_bytes()
        return hashlib.sha256(safetensors_file.without_metadata(raw)).hexdigest()

    def profile(self):
        return json.loads((self.output_dir / "profile.json").read_text())

    def signal_all(self, number):
        """Signals every process of this job."""
        signal_each(self.pids(), number)

    def kill_everything(self):
        """Ends all processes as a power cut would: none survives another long enough to clean up after it.

        Stops all of them first. A process that is starting a program shows no environment for a moment, so a search can
        miss it. The search is therefore repeated until it finds no new process, and every process ever found is killed:
        a stopped one that was forgotten would remain forever."""
        stopped = set()
        while found := set(self.pids()) - stopped:
            signal_each(found, signal.SIGSTOP)
            stopped |= found
        signal_each(stopped, signal.SIGKILL)
        self.process.wait()

    def end(self):
        """Ends all processes of this job that still run."""
        self.signal_all(signal.SIGKILL)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


# Lines that a working job prints. "2,923 samples/s" is not a complaint about 3 s.
PROGRESS = re.compile(r"poprun-emu: (step \d|epoch \d|\S+ on \d+ replica)")


class JobTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="poprun-emu-e2e-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self, *arguments, **keywords):
        folder = self.folder / f"job{len(list(self.folder.iterdir()))}"
        folder.mkdir()
        job = Job(folder, *arguments, **keywords)
        self.addCleanup(job.end)
        return job

    def run_job(self, *arguments, code=0, **keywords):
        job = self.start(*arguments, **keywords)
        self.assertEqual(job.wait(), code, job.stdout + job.stderr)
        return job

    def assert_first_line(self, job, *parts):
        """Checks that the first complaint contains all of `parts`."""
        lines = [line for line in job.stderr.splitlines()
                 if line.startswith("poprun-emu: ") and not PROGRESS.match(line)]
        complaints = [line for line in lines if any(part in line for part in parts)]
        self.assertTrue(complaints, job.stderr)
        for part in parts:
            self.assertIn(part, complaints[0], job.stderr)

    def assert_gone(self, job, seconds=5):
        deadline = time.monotonic() + seconds
        while job.pids():
            self.assertLess(time.monotonic(), deadline,
                            f"left over: {[(p, name_of(p)) for p in job.pids()]}")
            time.sleep(0.05)
