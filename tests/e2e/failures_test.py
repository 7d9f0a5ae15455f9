#!/usr/bin/env python3
"""Realistic failures: each ends its job in time and with the right exit code, and a message names the cause."""
import gzip
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import threading
import time
import unittest

from emulated_job import BIN, DATASET, Job, JobTest, QUICK

LONG = QUICK.replace("steps = 5", "steps = 100000")
STEPS = QUICK.replace("steps = 5", "steps = 400")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Replica(JobTest):
    def test_killed_is_named_with_its_host(self):
        job = self.start("-n", 4, config=LONG)
        job.wait_for_step(3)
        os.kill(job.replica_pid(2), signal.SIGKILL)
        self.assertEqual(job.wait(20), 75, job.stderr)
        self.assert_first_line(job, "replica 2", f"host {socket.gethostname().split('.')[0]}",
                               "SIGKILL")
        self.assert_gone(job)

    def test_stopped_is_named_by_its_missing_heartbeat(self):
        job = self.start("-n", 4, "--heartbeat-timeout", 3, config=LONG)
        job.wait_for_step(3)
        os.kill(job.replica_pid(1), signal.SIGSTOP)
        self.assertEqual(job.wait(30), 75, job.stderr)
        self.assert_first_line(job, "replica 1", "heartbeat")
        self.assert_gone(job)

    def test_that_mpi_does_not_let_start_says_so(self):
        """Simulates hosts whose daemons can reach one another but whose replicas cannot: MPI_Init waits for a
        debugger."""
        job = self.start("-n", 2, "--collective-timeout", 3,
                         environment={"OMPI_MCA_orte_in_parallel_debugger": "1"})
        self.assertEqual(job.wait(20), 75, job.stderr)
        self.assert_first_line(job, "replica ", " at step 0 (starting): MPI_Init did not return within 3 s")
        self.assert_gone(job)

    def test_that_does_not_come_to_an_exchange_is_named_with_what_it_did(self):
        job = self.start("-n", 4, "--collective-timeout", 3, config=LONG)
        job.wait_for_step(3)
        os.kill(job.replica_pid(1), signal.SIGSTOP)
        self.assertEqual(job.wait(30), 75, job.stderr)
        self.assert_first_line(job, "replica 1 (instance 1, host ", " is missing: ",
                               "replica 1 did not arrive within 3 s")
        # The all-reduce of a step, or the meeting of the host's replicas after its update.
        self.assertRegex(job.stderr, r" is missing: (all-reduce .*\d+ more\)|all-reduce .*'train.metrics'\)|barrier )")
        self.assertRegex(job.stderr, r"missing replica 1 was at step \d+ or later \(.* at its last heartbeat, "
                                     r"\d+\.\d s ago\)")
        self.assertRegex(job.stderr, r"last exchanges of replica [023]:\n    call \d+( of replicas 0-3)?: ")
        report = (job.output_dir / "failure.txt").read_text()
        self.assertRegex(report, r"(?m)^  replica 1 was at step \d+ ")
        self.assertRegex(report, r"    call \d+ of replicas 0-3: all-reduce to owners \(mean\) of \d+ B "
                                 r"\('\S+\.gradient' and \d+ more\), begun \d+\.\d+ s ago, took \d+\.\d+ ms\n")
        self.assertRegex(report, r"(all-reduce|barrier).* s ago, not done\n")
        self.assert_gone(job)


class KilledWhileOthersWait(JobTest):
    """The victim is first stopped, so that the others certainly wait, and then killed."""

    def check(self, job, victim, waiting_seconds, *told, pid=None):
        pid = pid or job.replica_pid(victim)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(waiting_seconds)
        os.kill(pid, signal.SIGKILL)
        self.assertEqual(job.wait(20), 75, job.stderr)
        self.assert_first_line(job, f"replica {victim} (", "SIGKILL")
        for part in told:
            self.assertIn(part, job.stderr)
        self.assert_gone(job)

    def test_for_the_program_is_named(self):
        job = self.start("-n", 3, "--model.name", "resnet101", config=LONG)
        job.wait_until(lambda: len(job.pids("poprun-emu-replica")) == 3, "replicas", 60)
        victim = job.replica_pid(0)
        maps = [pathlib.Path(f"/proc/{pid}/maps") for pid in job.pids("poprun-emu-replica")]
        # The replicas' shared memory appears just before the Program is compiled, which takes a while. On a busy
        # machine the victim may be stopped a little earlier or later.
        deadline = time.monotonic() + 60
        while not all("poprun-exchange" in file.read_text() for file in maps):
            self.assertLess(time.monotonic(), deadline, job.stderr)
        time.sleep(0.03)
        self.check(job, 0, 2, pid=victim)
        if "meanwhile replicas 1, 2 were at step 0 " not in job.stderr:  # They wait in different places.
            self.assertIn("meanwhile replica 1 was at step 0 ", job.stderr)
            self.assertIn("meanwhile replica 2 was at step 0 ", job.stderr)

    def wait_until_idle(self, pids):
        """Waits until the processes have used little processor time for two seconds: they wait for each other."""
        def ticks():
            fields = [pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split() for pid in pids]
            return sum(int(field[11]) + int(field[12]) for field in fields)
        deadline = time.monotonic() + 60
        used = ticks()
        while True:
            time.sleep(2)
            before, used = used, ticks()
            if used - before < 10:
                return
            self.assertLess(time.monotonic(), deadline, "the replicas still compute")

    def test_in_the_last_barrier_is_named(self):
        """A launcher that does not accept the results keeps replica 0 out of the barrier, and the others in it. If the
        results were already on their way to the launcher, they are complete, and the job succeeds."""
        job = self.start("-n", 4, config=QUICK.replace("steps = 5", "steps = 60"))
        job.wait_for_step(3)
        pid = job.replica_pid(2)
        job.process.send_signal(signal.SIGSTOP)
        self.wait_until_idle(job.pids("poprun-emu-replica"))
        os.kill(pid, signal.SIGKILL)
        time.sleep(0.5)
        job.process.send_signal(signal.SIGCONT)
        code = job.wait(20)
        self.assert_first_line(job, "replica 2 (", "SIGKILL")
        complete = (job.output_dir / "profile.json").exists()
        self.assertEqual(code, 0 if complete else 75, job.stderr)
        self.assertEqual("note: the results are complete" in job.stderr, complete, job.stderr)
        self.assertIn("60 steps done", (job.output_dir / "logs" / "replica-02.log").read_text())
        self.assert_gone(job)

    def test_in_a_steps_all_reduce_is_named(self):
        job = self.start("-n", 4, config=LONG)
        job.wait_for_step(3)
        self.check(job, 2, 3, "meanwhile replicas 0, 1, 3 were at step ")
        self.assertRegex(job.stderr, r"\((all-reduce of 9 tensors|meeting of the replicas on this host) for ")

    def test_in_an_evaluation_is_named(self):
        job = self.start("-n", 4, "--training.evaluate", "true",
                         config=QUICK.replace("steps = 5", "steps = 2"))
        job.wait_for_step(2)
        self.check(job, 3, 3, "meanwhile replicas 0-2 were at step 2 ")


class Memory(JobTest):
    def test_that_a_host_lacks_is_named_before_training(self):
        fields = dict(line.split(":") for line in pathlib.Path("/proc/meminfo").read_text().splitlines())
        kib = sum(int(fields[name].split()[0]) for name in ("MemTotal", "SwapTotal"))
        replicas = kib // (185 * 1024) + 1  # Each needs over 185 MiB, far less than an IPU has.
        if replicas > 512:
            self.skipTest(f"{kib} KiB of memory are too many to exceed")
        job = self.run_job("-n", replicas, "--num-instances", 1, "--model.name", "mlp", code=69,
                           config=QUICK.replace("micro-batch-size = 4", "micro-batch-size = 12160")
                           .replace("source = fashion-mnist", "source = synthetic:images=1x28x28,classes=10,items=100000000"))
        self.assert_first_line(job, f"{replicas} replicas on host ", " for their tensors", "is free (", "-H")
        self.assert_gone(job)

    def test_too_small_for_open_mpi_is_named_before_training(self):
        small = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=5m none /dev/shm && exec "$0" "$@"']
        if subprocess.run([*small, "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("cannot mount here (unshare --mount needs CAP_SYS_ADMIN)")
        job = self.run_job("-n", 32, code=69, wrapper=small)
        self.assert_first_line(job, "32 processes on host ", "in /dev/shm", "5.0 MiB (5,242,880 B) is free", "--shm-size")
        self.assert_gone(job)
        self.run_job("-n", 4, wrapper=small)

    def test_on_the_disks_of_a_start_and_of_the_weights_is_named_before_training(self):
        for folder, code, first_line in (
                ("folders", 69, "Open MPI needs 8.1 MiB in "), ("results", 75, "the weights need 1.6 MiB, but the folder's disk has ")):
            disk = self.folder / folder
            disk.mkdir(parents=True)
            small = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o size=1m none {disk} && exec "$0" "$@"']
            if subprocess.run([*small, "true"], capture_output=True, check=False).returncode != 0:
                self.skipTest("cannot mount here (unshare --mount needs CAP_SYS_ADMIN)")
            job = Job(self.folder, "-n", 2, "--output-dir", disk, wrapper=small,
                      environment={"TMPDIR": str(disk) if code == 69 else "/tmp"})
            self.addCleanup(job.end)
            self.assertEqual(job.wait(), code, job.stderr)
            self.assert_first_line(job, first_line)
            self.assert_gone(job)


def start_server(test, port):
    """Starts a user's own data server, open to every job."""
    process = subprocess.Popen(
        [str(BIN / "poprun-emu-hostio"), "--port", str(port)], stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, env=dict(os.environ, POPRUN_EMU_TOKEN=""))
    test.addCleanup(process.wait)
    test.addCleanup(process.stdout.close)
    test.addCleanup(process.kill)
    test.assertIn(b"listening", process.stdout.readline())
    return process


class StallingProxy:
    """A proxy of a data server that can hold back packets to one client: the first one that streams after the request
    to do so, on that connection and on all later ones."""

    def __init__(self, test):
        self.port = free_port()
        start_server(test, self.port)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.stalls = False
        self.stalled = None
        self.lock = threading.Lock()
        self.flows = threading.Event()
        self.flows.set()
        threading.Thread(target=self.accept, daemon=True).start()
        test.addCleanup(self.listener.close)
        test.addCleanup(self.flows.set)

    def stall_one(self):
        self.flows.clear()
        self.stalls = True

    def go_on(self):
        self.stalls = False
        self.flows.set()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.port))
            is_new = self.stalls
            for pair in ((client, server, False), (server, client, True)):
                threading.Thread(target=self.carry, args=(*pair, is_new), daemon=True).start()

    def carry(self, source, target, is_answer, is_new):
        try:
            while data := source.recv(1 << 16):
                if self.stalls and is_answer and self.holds_back(target, is_new):
                    self.flows.wait()
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        source.close()

    def holds_back(self, target, is_new):
        with self.lock:
            self.stalled = self.stalled or target
            return is_new or self.stalled is target


class DataServer(JobTest):
    def server(self, port):
        return start_server(self, port)

    def test_killed_and_started_again_changes_nothing_but_time(self):
        undisturbed = self.run_job("-n", 4, config=STEPS)
        port = free_port()
        first = self.server(port)
        job = self.start("-n", 4, "--hostio-address", f"127.0.0.1:{port}", config=STEPS)
        job.wait_for_step(20)
        first.kill()
        first.wait()
        time.sleep(1)
        self.assertIsNone(job.process.poll(), job.stderr)
        self.server(port)
        self.assertEqual(job.wait(), 0, job.stderr)
        self.assertEqual(job.weights_hash(), undisturbed.weights_hash())

    def test_gone_for_good_ends_the_job_with_its_address(self):
        port = free_port()
        server = self.server(port)
        job = self.start("-n", 4, "--hostio-address", f"127.0.0.1:{port}", "--hostio-timeout", 3,
                         config=LONG)
        job.wait_for_step(3)
        server.kill()
        self.assertEqual(job.wait(30), 69, job.stderr)
        self.assert_first_line(job, f"127.0.0.1:{port}", "3 s")
        self.assert_gone(job)

    # One replica of four gets no data, and the others wait for it in an exchange, whose timeout is 2 s.
    LET_ONE_STARVE = ("-n", 4, "--collective-timeout", 2, "--hostio-timeout", 12)

    def test_that_stalls_for_one_replica_excuses_those_that_wait_for_it(self):
        undisturbed = self.run_job("-n", 4, config=STEPS)
        proxy = StallingProxy(self)
        job = self.start(*self.LET_ONE_STARVE, "--hostio-address", proxy.address, config=STEPS)
        job.wait_for_step(20)
        proxy.stall_one()
        job.wait_until(lambda: f" waiting for the data server {proxy.address} for " in job.stderr, "note", 20)
        self.assertRegex(job.stderr, r"note: replica \d has been waiting .* give up after 12 s \(--hostio-timeout\)")
        proxy.go_on()
        self.assertEqual(job.wait(), 0, job.stderr)
        self.assertIn(f"note: the data server {proxy.address} has recovered; it kept replicas waiting for ", job.stderr)
        self.assertEqual(job.weights_hash(), undisturbed.weights_hash())

    def test_that_stalls_for_one_replica_for_good_ends_the_job_with_its_address(self):
        proxy = StallingProxy(self)
        job = self.start(*self.LET_ONE_STARVE, "--hostio-address", proxy.address, config=LONG)
        job.wait_for_step(3)
        proxy.stall_one()
        self.assertEqual(job.wait(40), 69, job.stderr)
        self.assert_first_line(job, f"data server {proxy.address} did not answer for 12 s")
        self.assertNotIn("missing", job.stderr)
        self.assert_gone(job)

    def test_that_never_was_there_ends_the_job_with_its_address(self):
        port = free_port()
        job = self.run_job("-n", 2, "--hostio-address", f"127.0.0.1:{port}", "--hostio-timeout", 2,
                           code=69)
        self.assert_first_line(job, f"127.0.0.1:{port}")
        self.assert_gone(job)

    def test_whose_name_does_not_resolve_ends_the_job_with_it(self):
        job = self.run_job("-n", 2, "--hostio-address", "no.such.host.invalid:50051", "--hostio-timeout", 2, code=69)
        self.assert_first_line(job, "host.invalid:50051 did not answer for 2 s; this host name does not resolve")

    def test_on_a_taken_port_says_so(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            done = subprocess.run([str(BIN / "poprun-emu-hostio"), "--port", str(port)],
                                  capture_output=True, text=True, timeout=20, check=False)
        self.assertEqual(done.returncode, 69, done.stderr)
        self.assertIn(str(port), done.stderr.splitlines()[0])


class Threads(JobTest):
    def test_that_a_host_does_not_allow_are_told_in_one_line(self):
        """Run as a user without processes, who is subject to a limit that root does not have."""
        def limited(processes):
            return ["setpriv", "--reuid=64981", "--regid=64981", "--clear-groups", "prlimit", f"--nproc={processes}"]
        config = self.folder / "job.cfg"
        config.write_text(QUICK)
        self.folder.chmod(0o777)
        if subprocess.run([*limited(9), "test", "-x", BIN / "poprun-emu"], capture_output=True, check=False).returncode:
            self.skipTest("needs root, and programs that every user can execute")
        for program, *arguments in (("poprun-emu", "-n", "2", "--output-dir", self.folder / "out", config), ("poprun-emu-hostio", "--port", "0")):
            for processes in (1, 2, 6, 11):
                with self.subTest(program=program, processes=processes):
                    done = subprocess.run([*limited(processes), BIN / program, *arguments], capture_output=True,
                                          text=True, timeout=20, check=False)
                    self.assertEqual(done.returncode, 69, done.stderr)
                    self.assertRegex(done.stderr, rf"\A.* needs \d+ more threads and processes on this host, but only "
                                                  rf"\d+ can be started; raise ulimit -u .*\n\Z")


class Dataset(JobTest):
    def datasets(self):
        """Copies the real files to their own root."""
        root = self.folder / "datasets"
        shutil.copytree(DATASET, root / "fashion-mnist")
        return root

    def test_missing_names_the_file_and_the_package(self):
        job = self.run_job("-n", 2, code=65,
                           environment={"POPRUN_EMU_DATASETS": str(self.folder / "nowhere")})
        self.assert_first_line(job, "train-images", "dataset-fashion-mnist")
        self.assert_gone(job)

    def test_cut_short_names_the_file(self):
        root = self.datasets()
        images = root / "fashion-mnist" / "train-images-idx3-ubyte.gz"
        whole = gzip.decompress(images.read_bytes())
        images.write_bytes(gzip.compress(whole[:len(whole) // 2], compresslevel=1))
        job = self.run_job("-n", 2, code=65, environment={"POPRUN_EMU_DATASETS": str(root)})
        self.assert_first_line(job, "train-images-idx3-ubyte")
        self.assert_gone(job)


class Options(JobTest):
    def test_unknown_key_names_the_nearest(self):
        job = self.run_job("-n", 2, code=64, config=QUICK + "learning-rat = 0.1\n")
        self.assert_first_line(job, "learning-rat", "learning-rate")

    def test_ill_typed_value_names_file_and_line(self):
        job = self.run_job("-n", 2, code=64, config="[training]\nsteps = many\n")
        self.assert_first_line(job, "job.cfg:2", "steps", "many")

    def test_unknown_model_lists_the_models(self):
        job = self.run_job("-n", 2, "--model.name", "large-cnn", code=64)
        self.assert_first_line(job, "large-cnn", "small-cnn")

    def test_instances_that_do_not_divide_replicas_are_refused(self):
        self.assert_first_line(self.run_job("-n", 4, "--num-instances", 3, code=64), "4", "3")


class Outputs(JobTest):
    def test_unwritable_folder_is_refused_before_training(self):
        blocker = self.folder / "file"
        blocker.write_text("")
        job = self.run_job("-n", 2, "--output-dir", blocker / "out", code=64)
        self.assert_first_line(job, "out")
        self.assertEqual(job.stdout, "")

    def test_earlier_results_are_kept_unless_overwrite(self):
        job = self.run_job("-n", 2)
        before = job.weights_hash()
        again = self.run_job("-n", 2, "--output-dir", job.output_dir, "--training.seed", 9, code=64)
        self.assert_first_line(again, "--overwrite")
        self.assertEqual(job.weights_hash(), before)
        self.run_job("-n", 2, "--output-dir", job.output_dir, "--training.seed", 9, "--overwrite")
        self.assertNotEqual(job.weights_hash(), before)

    def test_earlier_results_outlive_a_job_that_never_trains(self):
        job = self.run_job("-n", 2)
        files = {path: path.read_bytes() for path in job.output_dir.iterdir()
                 if path.is_file() and path.name != ".poprun-emu.lock"}
        overwrite = ("-n", 2, "--output-dir", job.output_dir, "--overwrite")
        for code, *wrong in ((65, "--data.source", "idx:/nowhere"), (64, "--model.hidden", 4),
                             (86, "--data.micro-batch-size", 100000),
                             (65, "--model.initial-weights", "/nowhere")):
            self.run_job(*overwrite, *wrong, code=code)
            for path, content in files.items():
                self.assertEqual(path.read_bytes(), content, (path, wrong))


class Signals(JobTest):
    def stop_with(self, number, code):
        job = self.start("-n", 8, config=LONG)
        job.wait_for_step(3)
        job.process.send_signal(number)
        self.assertEqual(job.wait(20), code, job.stderr)
        self.assert_gone(job)
        return job

    def test_sigterm_saves_the_weights_and_leaves_nothing(self):
        job = self.stop_with(signal.SIGTERM, 143)
        self.assertTrue(job.profile()["outcome"]["drained"])
        self.assertTrue(job.weights_hash())

    def test_sigint_leaves_nothing(self):
        self.stop_with(signal.SIGINT, 130)

    def test_sigint_before_replicas_joined_is_the_last_that_is_heard(self):
        """mpirun starts its replicas even if it is asked to end in the meantime."""
        for delay in (0.04, 0.05, 0.06, 0.07):
            job = self.start("-n", 4, config=LONG)
            job.wait_until(lambda: job.pids("orterun"), "mpirun", 10)
            time.sleep(delay)
            job.process.send_signal(signal.SIGINT)
            self.assertEqual(job.wait(10), 130, job.stderr)
            self.assertEqual(job.stderr, "poprun-emu: SIGINT: ending the job, which has not completed a step yet\n")
            self.assert_gone(job)

    def test_sighup_of_a_closed_terminal_saves_the_weights(self):
        """The signal comes twice: from the kernel and from the shell."""
        job = self.start("-n", 4, config=LONG)
        job.wait_for_step(3)
        for _ in range(2):
            job.process.send_signal(signal.SIGHUP)
            time.sleep(0.01)
        self.assertEqual(job.wait(10), 129, job.stderr)
        self.assertTrue(job.profile()["outcome"]["drained"])
        self.assertTrue(job.weights_hash())

    def test_given_twice_ends_a_job_at_once_and_leaves_no_folders(self):
        folders = self.folder / "folders"
        folders.mkdir()
        job = self.start("-n", 4, config=LONG, environment={"TMPDIR": str(folders)})
        job.wait_for_step(3)
        os.kill(job.replica_pid(1), signal.SIGSTOP)
        for _ in range(2):
            job.process.send_signal(signal.SIGINT)
            time.sleep(0.2)
        self.assertEqual(job.wait(20), 130, job.stderr)
        self.assertNotIn("ending it without saving the weights", job.stderr)
        self.assert_gone(job)
        self.assertEqual(list(folders.iterdir()), [])

    def start_with_leftovers(self):
        """Starts a job; returns it and the folder of Open MPI's folders and shared memory."""
        leftovers = self.folder / "leftovers"
        for name in ("folders", "memory"):
            (leftovers / name).mkdir(parents=True, exist_ok=True)
        job = self.start("-n", 4, config=LONG, environment={
            "TMPDIR": str(leftovers / "folders"),
            "OMPI_MCA_btl_vader_backing_directory": str(leftovers / "memory")})
        return job, leftovers

    def test_killed_launcher_leaves_nothing(self):
        """The job leaves no processes, and none of mpirun's folders and shared memory."""
        for _ in range(3):
            job, leftovers = self.start_with_leftovers()
            job.wait_for_step(3)
            self.assertEqual(len(list(leftovers.glob("memory/*"))), 4)
            job.process.kill()
            self.assert_gone(job, seconds=15)
            self.assertEqual(list(leftovers.glob("*/*")), [])

    def test_killed_mpirun_leaves_nothing(self):
        job, leftovers = self.start_with_leftovers()
        another = leftovers / "memory" / "vader_segment.another.0.10001.0"
        another.touch()
        job.wait_for_step(3)
        os.kill(job.pids("orterun")[0], signal.SIGKILL)
        self.assertEqual(job.wait(20), 75, job.stderr)
        self.assert_first_line(job, "mpirun was killed by signal 9 (SIGKILL) at step", " or later")
        self.assert_gone(job)
        self.assertEqual(list(leftovers.glob("*/*")), [another])



class Surroundings(JobTest):
    """If a user's environment breaks Open MPI, the message names the effect and the variable to unset."""

    def assert_refused(self, *told, **variables):
        job = self.run_job("-n", 2, code=69, environment=variables)
        self.assert_first_line(job, *told)
        self.assert_gone(job)

    def programs(self, *names):
        """Returns a PATH with only these programs, as files; `mpirun` may be one of them."""
        folder = self.folder / f"programs{len(list(self.folder.iterdir()))}"
        folder.mkdir()
        for name in names:
            (folder / name).symlink_to(shutil.which(name))
        return folder

    def test_of_a_slurm_job_without_srun(self):
        self.assert_refused("SLURM_JOB_ID = 5", "n1, n2", "`unset SLURM_JOB_ID SLURM_JOBID`", SLURM_JOB_ID="5",
                            SLURM_JOBID="5", SLURM_JOB_NODELIST="n[1-2]", PATH=str(self.programs("mpirun", "ssh", "sh")))

    def test_of_a_grid_engine_job_that_is_not_here(self):
        self.assert_refused("PE_HOSTFILE = /nowhere", "`unset PE_HOSTFILE`", SGE_ROOT="/x", ARC="lx", JOB_ID="4",
                            PE_HOSTFILE="/nowhere")

    def test_of_components_that_do_not_start(self):
        for name, value in (("OMPI_MCA_pml", "ucx"), ("OMPI_MCA_ess", "pmi"), ("OPAL_PREFIX", "/nowhere")):
            with self.subTest(name):
                self.assert_refused("Open MPI did not start", f"`unset {name}`", **{name: value})

    def test_of_another_mpirun(self):
        for words, name in (("HYDRA build details:", "MPICH"), ("mpirun (Open MPI) 5.0.3", "Open MPI 5.0.3")):
            with self.subTest(words):
                folder = self.programs()
                mpirun = folder / "mpirun"
                mpirun.write_text(f"#!/bin/sh\n[ $1 = --version ] && echo '{words}' || echo 'unrecognized argument tag-output'\n"
                                  "exit 255\n")
                mpirun.chmod(0o755)
                self.assert_refused(f"{mpirun} is from {name}, but Open MPI 4.1 is needed", PATH=f"{folder}:{os.environ['PATH']}")

    def test_of_a_loopback_interface_that_is_down(self):
        """Runs in its own network, which ends with the job."""
        apart = ("unshare", "--net", "sh", "-c", 'ip link set lo up && ip link set lo down && exec "$@"', "sh")
        if not shutil.which("ip") or subprocess.run([*apart, "true"], stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("needs unshare and ip, and root with CAP_SYS_ADMIN and CAP_NET_ADMIN")
        begin = time.monotonic()
        job = self.run_job("-n", 2, code=69, wrapper=apart)
        self.assertLess(time.monotonic() - begin, 10)
        self.assert_first_line(job, "the loopback interface of this machine is down", "ip link set lo up")
        self.assertFalse(job.output_dir.exists())
        self.assert_gone(job)

    def test_without_a_home_or_a_name_for_the_user_do_not_matter(self):
        if os.geteuid() != 0:
            self.skipTest("needs root to become another user")
        self.folder.chmod(0o777)
        self.addCleanup(os.umask, os.umask(0))
        job = self.start("-n", 2, environment={"HOME": None, "TMPDIR": None},
                         wrapper=("setpriv", "--reuid", "4321", "--regid", "4321", "--clear-groups"))
        self.assertEqual(job.wait(), 0, job.stderr)


if __name__ == "__main__":
    unittest.main()
