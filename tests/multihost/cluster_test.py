#!/usr/bin/env python3
"""The real command over several hosts: results bit-identical to one host, and failures that name the host."""
import collections
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "e2e"))

import cluster
from emulated_job import BIN, JobTest, QUICK, environment_of
from perfetto_trace import read_trace

LONG = QUICK.replace("steps = 5", "steps = 100000")
BEFORE_HEARTBEAT_IS_MISSED = 25  # Seconds; --heartbeat-timeout is 30.


class ClusterTest(JobTest):
    def cluster(self, count, **keywords):
        hosts = cluster.Cluster(count, **keywords)
        hosts.__enter__()
        self.addCleanup(hosts.__exit__)
        return hosts

    def start_on(self, hosts, *arguments, environment=None, **keywords):
        return self.start("--host-subnet", "10.77.0.0/24", *arguments,
                          wrapper=hosts.command_on("node0"),
                          environment={**hosts.environment(), **(environment or {})}, **keywords)

    def run_on(self, hosts, *arguments, code=0, **keywords):
        job = self.start_on(hosts, *arguments, **keywords)
        self.assertEqual(job.wait(), code, job.stdout + job.stderr)
        return job

    def assert_same_answer(self, job, reference):
        self.assertEqual(job.weights_hash(), reference.weights_hash())
        self.assertEqual([row["loss"] for row in job.metrics()], [row["loss"] for row in reference.metrics()])


class Trace(ClusterTest):
    def test_puts_all_hosts_on_one_clock(self):
        hosts = self.cluster(2)
        job = self.run_on(hosts, "-n", 4, "-H", "node0,node1", "--report.trace-steps", "2-5")
        slices = read_trace(job.output_dir / "trace.pftrace")
        processes = {slice.process for slice in slices if slice.process.startswith("replica 3")}
        self.assertRegex(processes.pop(), r"\Areplica 3, host node1, clock within [\d.]+ (us|ms)\Z")
        flows = collections.defaultdict(list)
        for slice in slices:
            if slice.flow:
                flows[slice.flow].append(slice)
        self.assertTrue(flows)
        for met in flows.values():
            self.assertEqual(len({slice.process for slice in met}), 4)
            self.assertLessEqual(max(slice.begin for slice in met), min(slice.end for slice in met))


class Placement(ClusterTest):
    """Every job gives the weights and losses of the same job on one host, with one process per replica."""

    # By number of replicas: their hosts, in the order of the replicas.
    HOSTS = {2: ("node1,node0",),
             3: ("node0,node1:2", "node[0-2]"),
             4: ("node[0-1]", "node2,node0:2,node1", "node[0-3]"),
             7: ("node1:6,node0", "node0:2,node1:4,node2:1", "node3:2,node0,node2:3,node1"),
             16: ("node[0-1]", "node1:3,node2:9,node0:4", "node3,node0,node2,node1")}

    def test_on_any_hosts_with_and_without_gradients_that_travel_during_backward_changes_nothing(self):
        hosts = self.cluster(4)
        for replicas, places in self.HOSTS.items():
            reference = self.run_job("-n", replicas)
            for place in places:
                for bucket in (0, 0.1):
                    with self.subTest(replicas=replicas, hosts=place, bucket=bucket):
                        job = self.run_on(hosts, "-n", replicas, "-H", place, "--training.gradient-bucket", bucket)
                        self.assert_same_answer(job, reference)

    def test_with_one_replica_of_each_that_updates_a_whole_tensor_changes_nothing(self):
        hosts = self.cluster(3)
        lamb = ("-n", 7, "--training.optimizer", "lamb", "--training.learning-rate", 0.01)
        reference = self.run_job(*lamb, "--memory.private", "true")
        for place in ((), ("-H", "node0:2,node1:4,node2:1"), ("-H", "node1:2,node0:5", "--num-instances", 7)):
            with self.subTest(place=place):
                job = self.run_on(hosts, *lamb, *place) if place else self.run_job(*lamb)
                self.assert_same_answer(job, reference)

    def test_in_threads_of_fewer_processes_changes_nothing(self):
        hosts = self.cluster(3)
        reference = self.run_job("-n", 10)
        for place in (["--num-instances", 1], ["--num-instances", 5, "-H", "node2,node0,node1"]):
            for bucket in (0, 0.1):
                with self.subTest(place=place, bucket=bucket):
                    job = self.run_on(hosts, "-n", 10, *place, "--training.gradient-bucket", bucket)
                    self.assert_same_answer(job, reference)


class Names(ClusterTest):
    """Any mix of short names, names with a domain, addresses and a host's own name works on every kind of host."""

    MIXES = ("node0,node1", "node0.example.org,node1", "node0,node1.example.org", "node0.example.org,node1.example.org",
             "localhost,node1", "10.77.0.10,10.77.0.11", "node1,10.77.0.12", "node1.example.org,node2")

    def assert_all_mixes_start(self, **kind):
        reference = self.run_job("-n", 2)
        hosts = self.cluster(3, domain="example.org", **kind)
        for names in self.MIXES:
            with self.subTest(names=names):
                # Without --host-subnet, which would determine the address.
                job = self.start("-n", 2, "-H", names, wrapper=hosts.command_on("node0"), environment=hosts.environment())
                self.assertEqual(job.wait(), 0, job.stderr)
                self.assert_same_answer(job, reference)

    def hosts_of(self, job):
        """Returns the hosts on which its replicas ran, from their logs."""
        return sorted({line.split("host ")[1].split(",")[0] for log in (job.output_dir / "logs").iterdir()
                       for line in log.read_text().splitlines() if line.startswith("# replica")})

    def test_start_a_job_where_hostnames_have_a_domain(self):
        self.assert_all_mixes_start(hostnames_with_domain=True)

    def test_start_a_job_where_a_host_finds_its_own_name_on_loopback(self):
        self.assert_all_mixes_start(own_name_is_loopback=True)

    def test_start_a_job_where_hostnames_have_a_domain_and_are_on_loopback(self):
        self.assert_all_mixes_start(hostnames_with_domain=True, own_name_is_loopback=True)

    def test_that_mpirun_finds_by_itself_are_used(self):
        hosts = self.cluster(3)
        file = hosts.folder / "default-hostfile"
        file.write_text("# two\nnode1\nnode2\n")
        job = self.run_on(hosts, "-n", 4, environment={"OMPI_MCA_orte_default_hostfile": str(file)})
        self.assertIn(f"note: running on the hosts of Open MPI's default hostfile {file}: node1, node2", job.stderr)
        self.assertEqual(self.hosts_of(job), ["node1", "node2"])
        self.assert_same_answer(job, self.run_job("-n", 4))

    def test_of_a_slurm_job_are_used(self):
        """A script that enters a host stands in for srun; unlike ssh, it does not join its words."""
        hosts = self.cluster(3)
        programs = hosts.folder / "programs"
        programs.mkdir()
        (programs / "srun").write_text(
            "#!/bin/bash\nwhile [[ $1 != --nodelist ]]; do shift; done\nhost=$2; shift 2\n"
            f"echo \"$host $*\" >> '{hosts.folder}/asked'\n"
            f"exec nsenter -t \"$(cat '{hosts.folder}'/$host.pid)\" -n -u -i -p -m -- \"$@\"\n")
        (programs / "srun").chmod(0o755)
        job = self.run_on(hosts, "-n", 4, environment={
            "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node[1-2]", "SLURM_TASKS_PER_NODE": "1(x2)",
            "PATH": f"{programs}:{os.environ['PATH']}", "OMPI_MCA_plm_rsh_agent": None})
        self.assertIn("note: running on the hosts of Slurm job 7: node1, node2\n", job.stderr)
        self.assertEqual(self.hosts_of(job), ["node1", "node2"])
        self.assert_same_answer(job, self.run_job("-n", 4))
        asked = (hosts.folder / "asked").read_text()
        self.assertEqual(sorted(line.split()[0] for line in asked.splitlines()), ["node1", "node2"])
        self.assertNotIn(job.token, asked)

    def test_of_one_machine_are_refused_together(self):
        job = self.run_on(self.cluster(2), "-n", 2, "-H", "node1,10.77.0.11", code=64)
        self.assert_first_line(job, "hosts node1 and 10.77.0.11 are the same machine (10.77.0.11); name it once, with node1:N")


class Ssh(ClusterTest):
    def test_starts_a_job_that_gives_the_same_answer(self):
        sshd = shutil.which("sshd")
        if sshd is None:
            self.skipTest("sshd not installed (Debian package openssh-server)")
        reference = self.run_job("-n", 3)
        hosts = self.cluster(2)
        config = self.serve(hosts, sshd)
        job = self.run_on(hosts, "-n", 3, "-H", "node[0-1]", "--mpi-global-args", f"--mca plm_rsh_args '-F {config}'",
                          environment={"OMPI_MCA_plm_rsh_agent": "ssh"})
        self.assert_same_answer(job, reference)

    def serve(self, hosts, sshd):
        """Starts an sshd on every host except the first; returns the client's configuration file."""
        folder = hosts.folder
        for key in ("host_key", "user_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)
        (folder / "authorized_keys").write_text((folder / "user_key.pub").read_text())
        (folder / "sshd_config").write_text(
            f"Port 2222\nHostKey {folder}/host_key\nAuthorizedKeysFile {folder}/authorized_keys\nStrictModes no\n"
            "UsePAM no\nPidFile none\nMaxStartups 100\nPermitRootLogin yes\n")
        (folder / "passwd").write_text(pathlib.Path("/etc/passwd").read_text() + "sshd:x:64999:65534::/run/sshd:/bin/false\n")
        for name in hosts.names[1:]:
            server = subprocess.Popen(hosts.command_on(
                name, "sh", "-c", f"mount --bind {folder}/passwd /etc/passwd; mount -t tmpfs none /run; "
                f"mkdir /run/sshd; exec {sshd} -D -e -f {folder}/sshd_config 2> {folder}/sshd.{name}"))
            self.addCleanup(server.wait)
            self.addCleanup(server.kill)
        config = folder / "ssh_config"
        config.write_text(f"Host *\n Port 2222\n IdentityFile {folder}/user_key\n StrictHostKeyChecking no\n"
                          " UserKnownHostsFile /dev/null\n BatchMode yes\n LogLevel ERROR\n ConnectionAttempts 20\n")
        return config


class SentToAllProcesses(ClusterTest):
    """Sends a signal to all processes on all hosts, as scancel does, including Open MPI's daemons and remote shells:
    only the launcher obeys."""

    def test_sigusr1_takes_a_checkpoint_and_sigterm_saves_the_training(self):
        job = self.start_on(self.cluster(2), "-n", 4, "-H", "node[0-1]", config=LONG)
        job.wait_for_step(3)
        job.signal_all(signal.SIGUSR1)
        job.wait_until(lambda: "checkpoint after step" in job.stderr, "checkpoint", 30)
        job.signal_all(signal.SIGTERM)
        self.assertEqual(job.wait(30), 143, job.stderr)
        stored = max(int(path.name[5:]) for path in job.output_dir.glob("checkpoints/step-*"))
        self.assertEqual(stored, int(job.profile()["outcome"]["steps"]))
        self.assertTrue(job.weights_hash())
        self.assertNotRegex(job.stderr, "killed by|the data server|died|did not return")
        self.assert_gone(job)


class Services(ClusterTest):
    def test_listen_only_where_the_hosts_of_the_job_are(self):
        hosts = self.cluster(2)
        job = self.start_on(hosts, "-n", 2, "-H", "node[0-1]", config=LONG)
        job.wait_for_step(1)
        self.assertEqual(self.listening(hosts, job, "poprun-emu"), ["10.77.0.10"])
        self.assertEqual(self.listening(hosts, job, "poprun-emu-hostio"), ["10.77.0.10"])

    SENTENCE = "The quick brown fox jumps over the lazy dog. "
    TEXT_JOB = """
[model]
name = gpt2
layers = 1
hidden = 16
heads = 2
[data]
source = text:{text}
sequence-length = 64
micro-batch-size = 2
[training]
steps = 2
evaluate = false
"""

    def sniffed(self, hosts, *arguments):
        """Runs a job on node0 and node1 with a known text; returns it and the captured traffic between them."""
        tcpdump = shutil.which("tcpdump")
        if tcpdump is None:
            self.skipTest("tcpdump not installed; run deploy/setup")
        text = self.folder / "text"
        text.write_text(self.SENTENCE * 2000)
        capture = self.folder / "capture"
        dump = subprocess.Popen([tcpdump, "-i", "v-node1", "-s", "0", "-U", "-B", "65536", "-Z", "root", "-w", capture],
                                stderr=subprocess.PIPE, text=True)
        self.addCleanup(dump.stderr.close)
        self.addCleanup(dump.wait)
        self.addCleanup(dump.kill)
        self.assertIn("listening on v-node1", dump.stderr.readline())
        job = self.run_on(hosts, "-n", 2, "-H", "node1,node0", *arguments, config=self.TEXT_JOB.format(text=text))
        time.sleep(0.5)
        dump.send_signal(signal.SIGINT)
        self.assertIn("\n0 packets dropped by kernel", dump.stderr.read())
        return job, capture.read_bytes()

    def test_send_no_secret_no_data_and_no_weights_in_plain_text(self):
        hosts = self.cluster(2)
        job, capture = self.sniffed(hosts)
        # Otherwise the test proves nothing: both services begin TLS, which names the intended server.
        self.assertGreaterEqual(capture.count(b"job.poprun-emu"), 2)
        self.assertIn(b"btl_tcp", capture)  # mpirun's own messages are readable.
        self.assertNotIn(job.token.encode(), capture)
        self.assertNotIn(b"PRIVATE KEY", capture)
        words = self.SENTENCE.encode()
        for begin in range(0, len(words) - 8, 8):
            part = words[begin:begin + 8]
            self.assertNotIn(part, capture)
            self.assertNotIn(b"".join(bytes([c, 0, 0, 0]) for c in part), capture)
        weights = (job.output_dir / "weights.safetensors").read_bytes()
        tail = weights[len(weights) // 2:]
        varied = [tail[i:i + 32] for i in range(0, len(tail) - 32, 32) if len(set(tail[i:i + 32])) > 16]
        self.assertGreater(len(varied), 100)
        for part in varied[::len(varied) // 50]:
            self.assertNotIn(part, capture)

    def test_would_send_the_token_in_plain_text_if_mpirun_did(self):
        """Proves that the capture works: -x makes mpirun send a variable itself."""
        job, capture = self.sniffed(self.cluster(2), "--mpi-local-args", "-x POPRUN_EMU_TOKEN")
        self.assertIn(job.token.encode(), capture)

    def test_refuse_a_guess_and_go_on(self):
        hosts = self.cluster(2)
        job = self.start_on(hosts, "-n", 2, "-H", "node[0-1]", config=LONG)
        job.wait_for_step(1)
        environment = environment_of(job.replica_pid(1))
        self.assertEqual(environment["POPRUN_EMU_TLS"], "token")
        for token, code in (("0" * 32, 69), (job.token, 0)):
            port = self.port_of(hosts, job)
            asked = subprocess.run(
                hosts.command_on("node1", BIN / "poprun-emu", "--dry-run", "--hostio-timeout", 2, "--hostio-address",
                                 f"10.77.0.10:{port}", job.folder / "job.cfg"),
                env={**os.environ, "POPRUN_EMU_TOKEN": token}, capture_output=True, text=True)
            self.assertEqual(asked.returncode, code, asked.stderr)
        self.assertIsNone(job.process.poll())
        step = int(job.metrics()[-1]["step"])
        job.wait_for_step(step + 3)

    def port_of(self, hosts, job):
        shown = subprocess.run(hosts.command_on("node0", "ss", "-Hltnp"), check=True, capture_output=True, text=True)
        pid, = job.pids("poprun-emu-hostio")
        line, = [line for line in shown.stdout.splitlines() if f"pid={pid}," in line]
        return line.split()[3].rsplit(":", 1)[1]

    def listening(self, hosts, job, program):
        """Returns the addresses of node0 at which this program accepts connections."""
        pids = job.pids(program)  # The launcher's fork has no sockets of its own.
        shown = subprocess.run(hosts.command_on("node0", "ss", "-Hltnp"), check=True, capture_output=True, text=True)
        found = [line.split()[3].rsplit(":", 1)[0] for line in shown.stdout.splitlines()
                 if any(f"pid={pid}," in line for pid in pids)]
        return [address.strip("[]").removeprefix("::ffff:") for address in found]  # gRPC uses IPv4 over IPv6 sockets.


class Failure(ClusterTest):
    def running_job(self, hosts, *arguments):
        job = self.start_on(hosts, "-n", 4, "-H", "node[0-1]", *arguments, config=LONG)
        job.wait_for_step(3)
        return job

    def assert_ends(self, job, seconds):
        self.assertEqual(job.wait(seconds), 75, job.stderr)
        self.assert_gone(job)

    def test_of_a_rank_on_another_host_is_named(self):
        job = self.running_job(self.cluster(2))
        os.kill(job.replica_pid(3), signal.SIGKILL)
        self.assert_ends(job, BEFORE_HEARTBEAT_IS_MISSED)
        self.assert_first_line(job, "replica 3", "node1")

    def test_of_a_whole_host_is_named(self):
        hosts = self.cluster(2)
        job = self.running_job(hosts)
        hosts.kill_host("node1")
        self.assert_ends(job, BEFORE_HEARTBEAT_IS_MISSED)
        self.assert_first_line(job, "host node1 (replicas 2, 3) ")

    def test_of_a_host_without_the_program_is_named(self):
        hosts = self.cluster(3)
        hosts.hide("node2", BIN)
        job = self.run_on(hosts, "-n", 3, "-H", "node[0-2]", code=69)
        self.assertRegex(job.stderr, rf"\Apoprun-emu: host node2 has no executable {BIN}/poprun-emu-replica; install ")
        self.assert_gone(job)

    def test_of_a_remote_shell_is_named(self):
        hosts = self.cluster(2)
        shell = hosts.folder / "remote_shell"
        for words, told in (("bash: line 1: orted: command not found", "Open MPI"),
                            ("ssh: connect to host node1 port 22: Connection refused", "node1 port 22: Connection refused")):
            shell.write_text(f"#!/bin/sh\necho '{words}' >&2\nexit 127\n")
            job = self.run_on(hosts, "-n", 2, "-H", "node[0-1]", code=69)
            self.assert_first_line(job, "no replica could be started", told)

    def test_of_a_start_file_is_named_with_its_host(self):
        """Breaks remote shells as ~/.bashrc can, which they read before the command."""
        hosts = self.cluster(2)
        shell = hosts.folder / "remote_shell"
        usual = shell.read_text()
        start = "no replica could be started"
        for does, told in (("cat >/dev/null;", [f"{start} on host node1: nothing arrived on standard input"]),
                           ("exec true;", [f"{start} on host node1: the remote shell ("]),
                           ("PATH=/nowhere;", [start, "host node1", "sh: command not found"]),
                           ("export OPAL_PREFIX=/nowhere;", [f"{start}: host node1: ", "/nowhere"])):
            with self.subTest(does):
                shell.write_text(usual.replace('bash -c "$*"', f"bash -c '{does} '\"$*\""))
                job = self.start_on(hosts, "-n", 2, "-H", "node[0-1]")
                self.assertEqual(job.wait(30), 69, job.stderr)
                self.assert_first_line(job, *told)
                self.assert_gone(job)

    def test_of_mpirun_is_not_hidden_by_warnings_of_our_settings(self):
        job = self.run_on(self.cluster(2), "-n", 2, "-H", "node[0-1]", "--mpi-local-args", "--bind-to nowhere", code=69)
        self.assertNotIn("deprecated", job.stderr)

    def test_of_a_folder_with_a_blank_does_not_come(self):
        hosts = self.cluster(2)
        folder = hosts.folder / "my programs"
        shutil.copytree(BIN, folder)
        job = self.start("-n", 2, "-H", "node[0-1]", "--host-subnet", "10.77.0.0/24", program=folder / "poprun-emu",
                         wrapper=hosts.command_on("node0"), environment=hosts.environment())
        self.assertEqual(job.wait(), 0, job.stderr)

    def test_of_a_link_that_loses_packets_names_the_network_and_no_healthy_replica(self):
        hosts = self.cluster(3)
        job = self.start_on(hosts, "-n", 6, "-H", "node[0-2]", "--collective-timeout", 8, config=LONG)
        job.wait_for_step(3)
        hosts.lose_packets("node2", 0.3)
        self.assertEqual(job.wait(60), 75, job.stderr)
        first = next(line for line in job.stderr.splitlines() if "host node" in line or "the network" in line)
        self.assertRegex(first, r"poprun-emu: (the network between .*node2.* is losing packets: \d+ of \d+ segments|"
                                r"the exchange between .*node2|host node2 \(replicas 4, 5\) )")
        self.assert_gone(job, 30)  # The messages that end them are lost, too, and resent after growing delays.

    def test_of_a_link_that_carries_small_packets_only_names_the_network(self):
        """Certificates need full packets, which the bridge drops silently."""
        hosts = self.cluster(2)
        cluster.run("ip", "link", "set", "v-node1", "mtu", "1280")
        job = self.start_on(hosts, "-n", 2, "-H", "node[0-1]", "--heartbeat-timeout", 5)
        self.assertEqual(job.wait(30), 75, job.stderr)
        self.assert_first_line(job, "replica 1 (instance 1, host node1, ", " did not join within ",
                               "carries full-size packets (MTU: `ping -M do -s 1472 node1`)", "clock is right")
        self.assert_gone(job)

    def test_of_a_link_names_who_fell_silent(self):
        hosts = self.cluster(2)
        job = self.running_job(hosts)
        hosts.cut_link("node1")
        self.assert_ends(job, 60)
        self.assert_blames_node1(job, "heartbeat")
        self.assertIn("meanwhile replicas 0, 1 ", job.stderr)

    def test_of_a_link_names_who_does_not_come_to_an_exchange(self):
        hosts = self.cluster(2)
        job = self.running_job(hosts, "--collective-timeout", 3)
        hosts.cut_link("node1")
        self.assertEqual(job.wait(BEFORE_HEARTBEAT_IS_MISSED), 75, job.stderr)
        self.assert_blames_node1(job, "is missing: all-reduce ")
        # mpirun's daemon there has reported the end of its replicas, and waits until TCP gives up.
        deadline = time.monotonic() + 10
        while job.pids("poprun-emu-replica"):
            self.assertLess(time.monotonic(), deadline, "replicas are left on node1")
            time.sleep(0.05)

    def assert_blames_node1(self, job, what):
        first = next(line for line in job.stderr.splitlines() if "host node" in line)
        self.assertTrue(first.startswith("poprun-emu: host node1 (replicas 2, 3) "), job.stderr)
        self.assertIn(what, first)


if __name__ == "__main__":
    cluster.enter_sandbox()
    unittest.main()
