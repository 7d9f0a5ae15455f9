#!/usr/bin/env python3
"""Disturbs many short jobs at random and checks the outcomes: campaign.py --seed 1 --count 200

A disturbed job must end either with the weights of the undisturbed one, or with one named cause and the right exit
code, and then with the same weights after its user starts it again. See README.md."""
import argparse
import collections
import concurrent.futures
import csv
import dataclasses
import os
import pathlib
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS / "e2e"), str(TESTS / "multihost")]

import cluster
from emulated_job import BIN, GPT2_HALF, Job, PROGRESS
from faults import KINDS, NETWORK_KINDS, Violation, replicas_of, send
from onnx_test import classifier

HEARTBEAT_TIMEOUT_SECONDS = 8  # Default: 30 s, but a silent replica must be noticed within 12 s.
DETECTION_SECONDS_MAX = 12
END_SECONDS_MAX = 90
ATTEMPTS_MAX = 4
CASES_THAT_REACH_ALL = 400  # From this number on, a campaign must reach every rare branch that is not in unreached.txt.
CHECKPOINT_EVERY = 25  # Steps.
CHECKPOINTS_LATE = 4  # After this many intervals, one must be complete.

MOMENTUM = """
[model]
name = small-cnn
[data]
source = fashion-mnist
micro-batch-size = 4
[training]
optimizer = momentum
learning-rate = 0.05
schedule = constant
evaluate = false
"""

ADAM = """
[model]
name = mlp
hidden = 64
[data]
source = fashion-mnist
micro-batch-size = 8
[training]
optimizer = adam
learning-rate = 0.001
schedule = constant
evaluate = false
"""

SHARDED = ADAM.replace("evaluate = false", "evaluate-every-epochs = 1").replace(
    "source = fashion-mnist", "source = synthetic:images=1x28x28,classes=10,items=9600") + """
[memory]
replicated-tensor-sharding = weights,optimizer-state
optimizer-state = off-chip
"""

STAGED = MOMENTUM.replace("[training]", "[training]\ngradient-accumulation = 4") + """
[pipeline]
recomputation = standard
"""

ONNX = ADAM.replace("name = mlp\nhidden = 64", "onnx = MODEL").replace(
    "fashion-mnist", "synthetic:images=1x8x8,classes=4,items=9600")

# Steps by number of replicas: about as many as two processors run in 3 s.
JOBS = {"momentum": (MOMENTUM, {2: 900, 3: 700, 4: 550, 6: 400, 8: 300}),
        "adam": (ADAM, {2: 1600, 3: 1300, 4: 1100, 6: 800, 8: 650}),
        "half": (GPT2_HALF, {2: 1300, 3: 1000, 4: 800, 6: 600, 8: 450}),
        "sharded": (SHARDED, {2: 1200, 3: 1000, 4: 800, 6: 600, 8: 450}),
        "onnx": (ONNX, {2: 2400, 3: 2000, 4: 1600, 6: 1200, 8: 900}),
        "staged": (STAGED, {2: 260, 3: 200, 4: 160, 6: 120, 8: 90})}
ARGUMENTS = {"staged": ["--ipus-per-replica", 2]}
RARE = re.compile(r'POPRUN_RARE\("([^"]+)"\)')


@dataclasses.dataclass
class Case:
    number: int
    kind: str
    job: str
    replicas: int
    hosts: int         # 1: this host, without a network.
    fraction: float    # Time of the fault, as a fraction of the undisturbed job's time.
    restarts: int      # Value of --restarts, if the command has that option.
    again: bool        # Whether a replica is killed when the user has started the job again.
    details: dict

    def __str__(self):
        details = "".join(f", {name} {value}" for name, value in self.details.items())
        return (f"case {self.number}: {self.kind} at {self.fraction:.0%} of {self.job} on {self.replicas} replicas, "
                f"{self.hosts} host{'s' if self.hosts > 1 else ''}, restarts {self.restarts}"
                f"{', and a second fault' if self.again else ''}{details}")


def choose(seed, number):
    """Returns case `number`, which depends only on the seed. Each block of len(KINDS) cases has every kind once."""
    names = list(KINDS)
    random.Random(f"{seed} block {number // len(names)}").shuffle(names)
    kind = names[number % len(names)]
    rng = random.Random(f"{seed} case {number}")
    replicas = rng.choice((2, 3, 4, 6, 8))
    hosts = rng.choice((2, 3)) if kind in NETWORK_KINDS else rng.choice((1, 1, 2)) if KINDS[kind].any_hosts else 1
    return Case(number, kind, rng.choice(list(JOBS)), replicas, min(hosts, replicas), rng.uniform(0.02, 0.85),
                rng.choice((0, 0, 2)), rng.random() < 0.3, KINDS[kind].details(rng))


class Features:
    """Options that the command supports."""

    def __init__(self):
        self.checkpoints = self.knows("--checkpoint-every", "1")
        self.resume = self.checkpoints and self.knows("--resume", "auto")
        self.restarts = self.resume and self.knows("--restarts", "1")

    def knows(self, *words):
        return subprocess.run([BIN / "poprun-emu", *words, "--version"], capture_output=True).returncode == 0


class Attempt:
    """One run of the command, with the times of its messages and steps."""

    def __init__(self, run, number):
        folder = run.folder / f"attempt{number}"
        folder.mkdir()
        self.case = run.case
        config, steps = JOBS[run.case.job]
        words = ["-n", run.case.replicas, "--training.steps", steps[run.case.replicas], "--output-dir", run.output,
                 "--heartbeat-timeout", HEARTBEAT_TIMEOUT_SECONDS, *ARGUMENTS.get(run.case.job, ()), *run.arguments,
                 *run.options]
        if run.features.checkpoints:
            words += ["--checkpoint-every", CHECKPOINT_EVERY]
        if run.features.restarts and run.case.restarts:
            words += ["--restarts", run.case.restarts]
        if number > 0:
            words += ["--resume", "auto"] if run.features.resume else ["--overwrite"]
        self.started = time.monotonic()
        self.words = [str(word) for word in (BIN / "poprun-emu", *words, folder / "job.cfg")]
        self.job = Job(folder, *words, config=config, environment=run.environment, wrapper=run.wrapper)
        self.job.output_dir = run.output
        self.known = set()

    @property
    def code(self):
        return self.job.process.poll()

    def step(self):
        """Returns the last step in metrics.csv; 0 if there is none."""
        try:
            with open(self.job.output_dir / "metrics.csv", "rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - 400))
                lines = file.read().split(b"\n")[:-1]
            return int(lines[-1].split(b",")[0]) if lines else 0
        except (OSError, ValueError):
            return 0

    def complaints(self):
        return [line for line in self.job.stderr.splitlines()
                if line.startswith("poprun-emu: ") and not line.startswith("poprun-emu: note: outlining ")
                and not PROGRESS.match(line)]

    def news(self):
        """Returns the complaints since the fault."""
        return [line for line in self.complaints() if line not in self.known]

    def restarts(self):
        return "poprun-emu: restart 1 of " in self.job.stderr

    def wait_until(self, condition, seconds):
        """Returns whether the condition became true before the command ended."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if condition():
                return True
            if self.code is not None:
                return bool(condition())
            time.sleep(0.01)
        return False


class Run:
    """A case, from its folder to its verdict."""

    def __init__(self, case, features, references, folder):
        self.case, self.features, self.references = case, features, references
        self.folder = folder
        self.output = folder / "out"
        self.files = folder / "tmp"
        self.files.mkdir()
        self.environment = {"TMPDIR": str(self.files), "POPRUN_EMU_RARE": str(folder.parent / "rare")}
        self.wrapper = []
        self.arguments = []  # For every job of the case.
        self.options = []    # For the disturbed job.
        self.hosts = None
        self.detection = self.recovery = None
        self.attempts = []
        self.undo = []  # Actions at the end of the case, last one first.
        self.aside = concurrent.futures.ThreadPoolExecutor(1)  # Ends a fault while this thread watches the command.
        if not in_sandbox():
            memory = folder / "memory"
            memory.mkdir()
            self.environment["OMPI_MCA_btl_vader_backing_directory"] = str(memory)

    def __enter__(self):
        if self.case.hosts > 1:
            self.hosts = cluster.Cluster(self.case.hosts)
            self.hosts.__enter__()
            self.undo.append(lambda: self.hosts.__exit__())
            self.environment = {**self.hosts.environment(), **self.environment}
            self.wrapper = self.hosts.command_on("node0")
            self.separate_files()
            self.arguments += ["-H", ",".join(self.hosts.names), "--host-subnet", "10.77.0.0/24"]
        return self

    def __exit__(self, *_):
        self.aside.shutdown()
        for attempt in self.attempts:
            attempt.job.end()
        for action in reversed(self.undo):
            action()

    @property
    def steps(self):
        """The number of steps of the case's job."""
        return JOBS[self.case.job][1][self.case.replicas]

    def command(self, *words):
        """Returns what the command prints for the case's job and these options."""
        folder = self.folder / "command"
        folder.mkdir()
        job = Job(folder, "-n", self.case.replicas, *ARGUMENTS.get(self.case.job, ()), *words,
                  config=JOBS[self.case.job][0], environment=self.environment)
        self.expect(job.wait() == 0, f"{words} failed: {job.stderr}")
        return job.stdout

    def separate_files(self):
        """Gives each host its own folder for temporary files, because remote shells do not pass on such variables."""
        for name in self.hosts.names[1:]:
            (self.folder / f"tmp-{name}").mkdir()
        shell = self.hosts.folder / "remote_shell"
        shell.write_text(shell.read_text().replace("bash -c", f"env TMPDIR='{self.folder}'/tmp-$host bash -c"))

    def expect(self, condition, text):
        if not condition:
            raise Violation(text)

    def carry_out(self):
        """Runs the case and returns its outcome in one or two words."""
        kind = KINDS[self.case.kind]
        reference = self.references.get(self.case.job, self.case.replicas)
        kind.missed = False
        kind.prepare(self)
        attempt = self.start()
        time.sleep(self.case.fraction * reference.seconds)
        attempt.known = set(attempt.complaints())
        struck = kind.strike(self, attempt)
        if struck:
            self.watch(kind, attempt)
        code = self.wait_for_end(attempt)
        self.check_end(kind, attempt, code)
        outcome = "resumed" if code != 0 else "restarted" if attempt.restarts() else "went on"
        kind.repair(self)
        while code != 0:
            self.expect(len(self.attempts) < ATTEMPTS_MAX, f"still code {code} after {ATTEMPTS_MAX} attempts")
            code = self.start_again()
        if (kind.leaves_things or self.broke_off_on_hosts(attempt)) and len(self.attempts) == 1:
            self.run_another()
        self.expect(self.clean(), f"left over: {self.left()}")
        self.expect(self.attempts[-1].job.weights_hash() == reference.weights,
                    "weights differ from those of the undisturbed job")
        self.expect(numbers_of(self.output) == reference.numbers, "metrics differ from those of the undisturbed job")
        return outcome if struck and not kind.missed else "too late"

    def start(self):
        attempt = Attempt(self, len(self.attempts))
        attempt.reached = 0
        self.attempts.append(attempt)
        return attempt

    def start_again(self):
        """Starts the job again, as a user does after it ended too early; returns its exit code."""
        reached = max(attempt.reached for attempt in self.attempts)
        checkpoints = [path.name for path in self.output.glob("checkpoints/step-*") if path.suffix != ".part"]
        attempt = self.start()
        begun = time.monotonic()
        if self.case.again and len(self.attempts) == 2:
            return self.disturb_again(attempt)
        attempt.wait_until(lambda: attempt.step() > reached, END_SECONDS_MAX)
        self.recovery = self.recovery or time.monotonic() - begun
        code = self.wait_for_end(attempt)
        if self.features.resume:
            self.expect(checkpoints or reached < CHECKPOINTS_LATE * CHECKPOINT_EVERY,
                        f"step {reached} was reached, but there was no checkpoint to resume from")
            self.expect(not checkpoints or "poprun-emu: resuming from " in attempt.job.stderr,
                        f"did not resume from {', '.join(checkpoints)}")
        self.check_end(KINDS[self.case.kind], attempt, code)
        return code

    def disturb_again(self, attempt):
        """Kills a replica while the job recovers; returns the exit code."""
        if attempt.wait_until(lambda: replicas_of(attempt.job), END_SECONDS_MAX):
            pids = replicas_of(attempt.job)
            if pids:
                send(pids[self.case.number % len(pids)], signal.SIGKILL)
        code = self.wait_for_end(attempt)
        self.expect(code in (0, 75), f"code {code} after a second fault, not 0 or 75")
        if self.hosts is None and not self.case.restarts:
            self.expect(self.clean(), f"left over: {self.left()}")
        return code

    def run_another(self):
        """Runs a small, unrelated job on the same hosts."""
        folder = self.folder / "another"
        folder.mkdir()
        job = Job(folder, *self.arguments, "-n", self.case.replicas, "--training.steps", 2, config=ADAM,
                  environment=self.environment, wrapper=self.wrapper)
        self.expect(job.wait() == 0, f"another job ended with {job.process.poll()}")

    def watch(self, kind, attempt):
        """Measures, from the fault on, when the command reports something and when the job continues."""
        struck = time.monotonic()
        reached = attempt.step()
        ending = self.aside.submit(kind.end, self, attempt) if kind.goes_on else None
        while attempt.code is None and not attempt.news():
            self.expect(time.monotonic() - struck < END_SECONDS_MAX, f"no message within {END_SECONDS_MAX} s")
            if ending and ending.done():
                break
            time.sleep(0.01)
        noticed = time.monotonic()
        if attempt.news() or (attempt.code or 0) > 0:
            self.detection = noticed - struck
            self.expect(self.detection <= DETECTION_SECONDS_MAX, f"noticed only after {self.detection:.1f} s")
        if ending:
            ending.result()
            over = time.monotonic()
            reached = attempt.step()
        elif kind.end(self, attempt):
            over = time.monotonic()
            reached = attempt.step()
            self.expect(attempt.wait_until(lambda: attempt.step() > reached, END_SECONDS_MAX) or attempt.code == 0,
                        "did not continue after the end of the fault")
        elif attempt.wait_until(attempt.restarts, END_SECONDS_MAX):
            over = noticed
        else:
            return  # The user must act.
        if attempt.wait_until(lambda: attempt.step() > reached, END_SECONDS_MAX) or attempt.code == 0:
            self.recovery = time.monotonic() - over

    def wait_for_end(self, attempt):
        self.expect(attempt.wait_until(lambda: attempt.code is not None, END_SECONDS_MAX),
                    f"no end within {END_SECONDS_MAX} s")
        attempt.reached = attempt.step()
        return attempt.code

    def check_end(self, kind, attempt, code):
        disturbed = attempt is self.attempts[0]
        codes = kind.codes if disturbed else (0,)
        self.expect(code in codes, f"code {code}, not {' or '.join(map(str, codes))}")
        self.expect(not (disturbed and kind.undisturbed and attempt.restarts()), "had to restart")
        if code > 0:
            cause = kind.cause(self)
            self.expect(any(re.search(cause, line) for line in attempt.news()), f"no line names the cause ({cause})")
        if disturbed:
            kind.tidy(self)
        ended = time.monotonic()
        while attempt.job.pids():
            self.expect(time.monotonic() < ended + kind.seconds_to_vanish,
                        f"processes remain: {describe(attempt.job)}")
            time.sleep(0.02)
        if code < 0 and not kind.leaves_things:
            self.detection = time.monotonic() - ended  # No process can report anything: all others end.
        if not (disturbed and kind.leaves_things) and not self.broke_off_on_hosts(attempt):
            self.expect(self.clean(), f"left over: {self.left()}")

    def broke_off_on_hosts(self, attempt):
        """Returns whether a daemon that mpirun could not end in time may leave a folder to the host's next job."""
        return self.hosts is not None and (attempt.code != 0 or bool(attempt.restarts()))

    def clean(self):
        deadline = time.monotonic() + 2
        while self.left():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def left(self):
        """Returns the temporary files and the shared memory that are left on the hosts."""
        found = [str(path.relative_to(self.folder)) for path in self.folder.glob("tmp*/*")]
        if "OMPI_MCA_btl_vader_backing_directory" in self.environment:
            return found + os.listdir(self.environment["OMPI_MCA_btl_vader_backing_directory"])
        found += os.listdir("/dev/shm")
        for name in self.hosts.names[1:] if self.hosts else ():
            found += subprocess.run(self.hosts.command_on(name, "ls", "/dev/shm"), check=True, capture_output=True,
                                    text=True).stdout.split()
        return found


def describe(job):
    texts = []
    for pid in job.pids():
        try:
            process = pathlib.Path(f"/proc/{pid}")
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:60].strip()
            state = re.search(r"State:\s*(.*)", (process / "status").read_text())[1]
            texts.append(f"{command} (state {state}, in {(process / 'wchan').read_text()})")
        except OSError:
            pass
    return ", ".join(texts)


def numbers_of(folder):
    """Returns metrics.csv without wall seconds."""
    with open(folder / "metrics.csv", newline="") as file:
        return [tuple(value for name, value in row.items() if name != "wall_seconds") for row in csv.DictReader(file)]


class References:
    """Undisturbed jobs, each run once: results do not depend on placement."""

    Reference = collections.namedtuple("Reference", "weights numbers seconds")

    def __init__(self, folder):
        self.folder, self.known = folder, {}

    def get(self, name, replicas):
        if (name, replicas) not in self.known:
            folder = self.folder / f"{name}-{replicas}"
            folder.mkdir()
            config, steps = JOBS[name]
            began = time.monotonic()
            job = Job(folder, "-n", replicas, "--training.steps", steps[replicas], *ARGUMENTS.get(name, ()), config=config)
            code = job.wait()
            if code != 0:
                sys.exit(f"the undisturbed job {name} on {replicas} replicas ended with {code}:\n{job.stderr}")
            self.known[name, replicas] = self.Reference(job.weights_hash(), numbers_of(job.output_dir),
                                                        time.monotonic() - began)
        return self.known[name, replicas]


def in_sandbox():
    return cluster.INSIDE in os.environ


def enter_sandbox():
    """Enters namespaces of our own; returns False, with a message, if that is not possible."""
    class Refused(Exception):
        pass

    def refuse(reason):
        raise Refused(reason)

    cluster.skip = refuse
    try:
        cluster.enter_sandbox()
        subprocess.run(["mount", "-t", "tmpfs", "none", "/dev/shm"], check=True)
        return True
    except Refused as reason:
        print(f"SKIP: all kinds that need their own network or mounts: {reason}")
        return False


def middle_and_worst(values):
    values = [value for value in values if value is not None]
    return f"{statistics.median(values):7.2f} {max(values):7.2f}" if values else f"{'-':>7} {'-':>7}"


def report(results):
    outcomes = ("went on", "restarted", "resumed", "too late", "broken")
    print(f"\n{'':17} {'':5}{'':50}  detection, s    recovery, s")
    print(f"{'kind':17} {'cases':>5}{''.join(f'{outcome:>10}' for outcome in outcomes)} {'median':>7} {'worst':>7} "
          f"{'median':>7} {'worst':>7}")
    for kind in (*KINDS, "all"):
        rows = [r for r in results if kind in (r["kind"], "all")]
        if rows:
            count = collections.Counter(r["outcome"] for r in rows)
            print(f"{kind:17} {len(rows):5}{''.join(f'{count[outcome]:10}' for outcome in outcomes)} "
                  f"{middle_and_worst(r['detection'] for r in rows)} {middle_and_worst(r['recovery'] for r in rows)}")


def rare_branches():
    """Returns the names of all branches that the sources mark with POPRUN_RARE."""
    files = [path for room in ("launcher", "hostio", "replica", "collectives") for path in (TESTS.parent / room).rglob("*.cc")]
    return {name for path in files for name in RARE.findall(path.read_text())}


def report_rare(reached, cases):
    """Prints the rare branches; returns those that should have been reached."""
    expected = rare_branches() - set((TESTS / "faults/unreached.txt").read_text().split("\n"))
    count = collections.Counter(reached)
    print("\nrare branches, by the number of processes that reached them")
    for name in sorted(rare_branches()):
        print(f"{count[name]:6} {name}{'' if name in expected else '  (not expected)'}")
    return sorted(expected - set(count)) if cases >= CASES_THAT_REACH_ALL else []


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--kinds", help=f"only cases of these kinds: {','.join(KINDS)}")
    parser.add_argument("--only", type=int, help="only case K")
    parser.add_argument("--keep", help="folder in which the files of broken cases are kept")
    options = parser.parse_args()
    kinds = options.kinds.split(",") if options.kinds else list(KINDS)
    if unknown := set(kinds) - set(KINDS):
        parser.error(f"unknown kinds: {', '.join(sorted(unknown))}")
    has_sandbox = enter_sandbox()
    numbers = [options.only] if options.only is not None else range(options.first, options.first + options.count)
    cases = [case for case in (choose(options.seed, number) for number in numbers) if case.kind in kinds]
    if not has_sandbox:
        skipped = [case for case in cases if case.hosts > 1 or KINDS[case.kind].needs_mounts]
        cases = [case for case in cases if case not in skipped]
        print(f"SKIP: {len(skipped)} cases of {len(skipped) + len(cases)}")
    impossible = {kind for kind in {case.kind for case in cases} if not KINDS[kind].is_possible()}
    for kind in sorted(impossible):
        print(f"SKIP: {kind}: not possible on this machine")
    cases = [case for case in cases if case.kind not in impossible]
    results, reached = run_all(cases, options)
    report(results)
    missed = report_rare(reached, len(results))
    broken = [r for r in results if r["outcome"] == "broken"]
    for r in broken:
        print(f"BROKEN: seed {options.seed} {r['case']}: {r['why']}")
    for name in missed:
        print(f"BROKEN: no case reached {name}; add a fault that does, or list it in unreached.txt")
    sys.exit(1 if broken or missed else 0)


def run_all(cases, options):
    results = []
    features = Features()
    with tempfile.TemporaryDirectory(prefix="poprun-emu-faults-") as folder:
        folder = pathlib.Path(folder)
        references = References(folder)
        model = folder / "model.onnx"
        model.write_bytes(classifier(64, 4))
        JOBS["onnx"] = (ONNX.replace("MODEL", str(model)), JOBS["onnx"][1])
        for case in cases:
            print(case, flush=True)
            place = folder / f"case{case.number}"
            place.mkdir()
            result = {"case": case, "kind": case.kind, "outcome": "broken", "detection": None, "recovery": None}
            with Run(case, features, references, place) as run:
                try:
                    result["outcome"] = run.carry_out()
                except Violation as violation:
                    result["why"] = str(violation)
                    tell_broken(run, violation)
                except (OSError, AssertionError, subprocess.SubprocessError) as error:
                    result["why"] = f"the test itself failed: {error!r}"
                    tell_broken(run, error)
                result["detection"], result["recovery"] = run.detection, run.recovery
            times = ", ".join(f"{what} {result[what]:.2f} s" for what in ("detection", "recovery")
                              if result[what] is not None)
            print(f"  {result['outcome']}, {len(run.attempts)} attempts{', ' if times else ''}{times}", flush=True)
            results.append(result)
            if result["outcome"] == "broken" and in_sandbox():
                for path in pathlib.Path("/dev/shm").iterdir():
                    path.unlink()  # So that the next case is not blamed for it.
            if result["outcome"] == "broken" and options.keep:
                shutil.copytree(place, pathlib.Path(options.keep) / place.name, dirs_exist_ok=True, symlinks=True,
                                ignore_dangling_symlinks=True, ignore=shutil.ignore_patterns("debugger_attach_fifo"))
            shutil.rmtree(place, ignore_errors=True)
        rare = folder / "rare"
        reached = rare.read_text().split() if rare.exists() else []
    return results, reached


def tell_broken(run, why):
    print(f"  BROKEN: {why}")
    for i, attempt in enumerate(run.attempts):
        print(f"  attempt {i}, code {attempt.code}, printed:")
        for line in attempt.job.stderr.splitlines()[-12:]:
            print(f"    {line[:300]}")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    main()
