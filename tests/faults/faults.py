"""The kinds of faults: the action of each on a job, and the reactions that are allowed."""
import ipaddress
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from emulated_job import BIN, environment_of, name_of

BAD_FRAMES = pathlib.Path(__file__).resolve().parent / "bad_frames.py"
STRIKE_SECONDS_MAX = 30


class Violation(Exception):
    """The job broke a requirement."""


def send(pid, number):
    try:
        os.kill(pid, number)
        return True
    except ProcessLookupError:
        return False


def replicas_of(job):
    return sorted(job.pids("poprun-emu-replica"))


ORDERS = ("parents first", "children first", "any order")


def signal_in_order(run, attempt, number):
    """Sends a signal to all processes of a job. Children have higher numbers than their parents."""
    pids = sorted(attempt.job.pids(), reverse=run.case.details["order"] == "children first")
    if run.case.details["order"] == "any order":
        random.Random(run.case.number).shuffle(pids)
    for pid in pids:
        send(pid, number)


class Kind:
    """A kind of fault, with the defaults of all kinds."""

    any_hosts = True        # Also tried on hosts with a network between them.
    needs_mounts = False
    goes_on = False         # The job must continue, so it may be silent.
    codes = (0, 75)         # Exit codes allowed for the disturbed command; 0 if its results were complete.
    seconds_to_vanish = 12  # Longest time that processes may outlive the command.
    leaves_things = False   # May leave temporary files and shared memory until the next job.
    undisturbed = False     # The job must not even restart by itself.
    missed = False          # After `end`: the job had ended before the fault reached it.

    def is_possible(self):
        """Returns whether this machine allows the fault."""
        return True

    def details(self, rng):
        """Returns the fault's own random parameters, by name."""
        return {}

    def cause(self, run):
        """Returns a pattern that a line of the command must match if its exit code is not 0."""
        return "replica|host|mpirun"

    def prepare(self, run):
        """Runs before the command starts."""

    def strike(self, run, attempt):
        """Causes the fault; returns False if the job ended first."""
        raise NotImplementedError

    def end(self, run, attempt):
        """Ends the fault if the job must continue, or once the job has reported it; returns True if the job must now
        continue or end with 0."""

    def tidy(self, run):
        """Ends the fault's own processes, after the command has ended."""

    def repair(self, run):
        """Repairs the damage, before the user starts the job again."""


class OfAProcess(Kind):
    """Sends a signal to one process with a given name."""

    number = signal.SIGKILL

    def victim(self, run, job):
        raise NotImplementedError

    def strike(self, run, attempt):
        self.pid = None

        def found():
            self.pid = self.victim(run, attempt.job)
            return self.pid is not None

        return attempt.wait_until(found, STRIKE_SECONDS_MAX) and attempt.code is None and send(self.pid, self.number)


class OfAReplica(OfAProcess):
    def details(self, rng):
        return {"victim": rng.randrange(1000)}

    def victim(self, run, job):
        pids = replicas_of(job)
        if not pids:
            return None
        pid = pids[run.case.details["victim"] % len(pids)]
        self.rank = environment_of(pid).get("OMPI_COMM_WORLD_RANK")
        return pid

    def cause(self, run):
        return rf"\breplica {self.rank}\b|\breplicas [^:]*\b{self.rank}\b"


class KillReplica(OfAReplica):
    pass


class KillMpirun(OfAProcess):
    def cause(self, run):
        return "mpirun was killed by signal 9"

    def victim(self, run, job):
        return next(iter(job.pids("orterun")), None)


class KillLauncher(OfAProcess):
    codes = (0, -9)

    def victim(self, run, job):
        # Until mpirun runs, there may be no other process that removes the job's folder.
        self.leaves_things = not job.pids("orterun")
        return job.process.pid if not run.wrapper else next(iter(job.pids("poprun-emu")), None)


class KillDataServer(OfAProcess):
    """Kills the job's own data server. A user restarts it as printed, and the job continues; or the job ends."""

    def cause(self, run):
        address = run.hosts.address("node0") if run.hosts else "127.0.0.1"
        return f"data server {re.escape(address)}:|data server was killed by signal 9 .*before it was ready"

    def details(self, rng):
        return {"restarted": rng.random() < 0.5}

    def prepare(self, run):
        self.undisturbed = run.case.details["restarted"]
        self.codes = (0,) if self.undisturbed else (0, 69)
        run.arguments += ["--hostio-timeout", 20 if self.undisturbed else 5]
        self.server = None

    def victim(self, run, job):
        # A server that was never ready cannot be restarted: the job ends. Replicas start when it is ready.
        if run.case.details["restarted"] and not replicas_of(job):
            return None
        return next(iter(job.pids("poprun-emu-hostio")), None)

    def end(self, run, attempt):
        def told():
            return re.search("you restart the server: (.*)", attempt.job.stderr)

        if not run.case.details["restarted"]:
            return False
        if not attempt.wait_until(told, STRIKE_SECONDS_MAX):
            if attempt.code is None:
                raise Violation("no line says how to restart the data server")
            return False  # The job already had all the data that it needed.
        time.sleep(0.5)
        self.server = subprocess.Popen([*run.wrapper, "bash", "-c", "exec " + told().group(1)],
                                       env=attempt.job.environment, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
        return True

    def tidy(self, run):
        if self.server:
            code = self.server.poll()
            self.server.kill()
            self.server.wait()
            if code is not None:
                raise Violation(f"the restarted data server ended with {code}")


class KillEverything(Kind):
    codes = (0, -9)
    leaves_things = True

    def strike(self, run, attempt):
        attempt.job.kill_everything()
        return True


class SignalEverything(Kind):
    """Sends a request to end to all processes of the job, as scancel or systemd do: no completed step may be lost."""

    def details(self, rng):
        return {"signal": rng.choice(("TERM", "INT", "HUP", "USR2")), "order": rng.choice(ORDERS)}

    def prepare(self, run):
        self.number = signal.Signals[f"SIG{run.case.details['signal']}"]
        self.codes = (0, 128 + self.number)
        self.reached = 0

    def cause(self, run):
        return f"SIG{run.case.details['signal']}: "

    def strike(self, run, attempt):
        self.reached = attempt.step()
        signal_in_order(run, attempt, self.number)
        return attempt.code is None

    def tidy(self, run):
        stored = max((int(path.name[5:]) for path in run.output.glob("checkpoints/step-*") if path.name[5:].isdigit()),
                     default=0)
        if run.attempts[0].code != 0 and self.reached > 0:
            if stored < self.reached:
                raise Violation(f"step {self.reached} was completed, but the last checkpoint is of step {stored}")
            if not (run.output / "weights.safetensors").exists():
                raise Violation(f"step {self.reached} was completed, but there are no weights")


class SignalEverythingForACheckpoint(Kind):
    """Sends SIGUSR1 to all processes."""

    goes_on = True
    codes = (0,)
    undisturbed = True

    def details(self, rng):
        return {"order": rng.choice(ORDERS)}

    def strike(self, run, attempt):
        signal_in_order(run, attempt, signal.SIGUSR1)
        return attempt.code is None


class StopReplica(OfAReplica):
    number = signal.SIGSTOP


class PauseReplica(OfAReplica):
    number = signal.SIGSTOP
    goes_on = True
    codes = (0,)

    def details(self, rng):
        return {**super().details(rng), "seconds": round(rng.uniform(0.2, 5), 1)}

    def end(self, run, attempt):
        time.sleep(run.case.details["seconds"])
        send(self.pid, signal.SIGCONT)


class PauseLauncher(PauseReplica):
    def victim(self, run, job):
        return next(iter(job.pids("poprun-emu")), None)


class SlowReplica(PauseReplica):
    """Gives a replica a tenth of a processor for a while."""

    def end(self, run, attempt):
        until = time.monotonic() + run.case.details["seconds"]
        while time.monotonic() < until and attempt.code is None:
            send(self.pid, signal.SIGCONT)
            time.sleep(0.005)
            send(self.pid, signal.SIGSTOP)
            time.sleep(0.045)
        send(self.pid, signal.SIGCONT)


class OfALink(Kind):
    codes = (0, 69, 75)
    seconds_to_vanish = 40  # Processes beyond a cut link must notice it by themselves.

    def details(self, rng):
        return {"node": 1 if rng.random() < 0.7 else 2}

    def cause(self, run):
        return rf"\b{self.node(run)}\b"

    def node(self, run):
        return run.hosts.names[run.case.details["node"] % len(run.hosts.names) or 1]

    def await_network(self, run):
        """Waits until the link carries packets: up to a second after it is up."""
        knock = f"echo > /dev/tcp/{run.hosts.address('node0')}/9"
        while "refused" not in subprocess.run(run.hosts.command_on(self.node(run), "timeout", "1", "bash", "-c", knock),
                                              capture_output=True, text=True).stderr:
            time.sleep(0.05)

    def set_link(self, run, state):
        subprocess.run(["ip", "link", "set", f"v-{self.node(run)}", state], check=True)


class CutLink(OfALink):
    leaves_things = True

    def strike(self, run, attempt):
        self.set_link(run, "down")
        return attempt.code is None

    def repair(self, run):
        self.set_link(run, "up")
        self.await_network(run)


class FlapLink(OfALink):
    goes_on = True

    def details(self, rng):
        return {**super().details(rng), "times": rng.randint(1, 4), "seconds": round(rng.uniform(0.1, 1), 1)}

    def strike(self, run, attempt):
        return attempt.code is None

    def end(self, run, attempt):
        for _ in range(run.case.details["times"]):
            self.set_link(run, "down")
            time.sleep(run.case.details["seconds"])
            self.set_link(run, "up")
            time.sleep(run.case.details["seconds"])


class KillHost(OfALink):
    """Simulates a power failure of a host, which is up again when the user returns."""

    leaves_things = True

    def strike(self, run, attempt):
        run.hosts.kill_host(self.node(run))
        return attempt.code is None

    def repair(self, run):
        run.hosts.boot_again(self.node(run))
        self.await_network(run)


class FullDisk(Kind):
    """Fills the disk of the outputs for a while."""

    needs_mounts = True
    goes_on = True

    def cause(self, run):
        return "disk|No space left"

    def details(self, rng):
        return {"seconds": round(rng.uniform(0.3, 4), 1)}

    def prepare(self, run):
        self.disk = run.folder / "disk"
        self.disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "none", self.disk], check=True)
        run.undo.append(lambda: subprocess.run(["umount", "--lazy", self.disk], check=True))
        run.output = self.disk / "out"

    def strike(self, run, attempt):
        if attempt.code is not None:
            return False
        with open(self.disk / "filler", "wb", buffering=0) as filler:
            for size in (1 << 20, 1 << 12):
                try:
                    while True:
                        filler.write(b"x" * size)
                except OSError:
                    pass
        return True

    def end(self, run, attempt):
        time.sleep(run.case.details["seconds"])
        (self.disk / "filler").unlink()


class HungDisk(Kind):
    """Freezes the file system of the outputs for a while: whatever writes to it then waits."""

    needs_mounts = True
    goes_on = True
    undisturbed = True
    codes = (0,)

    def details(self, rng):
        return {"seconds": round(rng.uniform(0.3, 7), 1)}

    def is_possible(self):
        with tempfile.TemporaryDirectory() as folder:
            if not self.mount(pathlib.Path(folder)):
                return False
            frozen = self.freeze("--freeze") and self.freeze("--unfreeze")
            subprocess.run(["umount", self.disk], check=True)
            return frozen

    def mount(self, folder):
        self.disk = folder / "disk"
        self.disk.mkdir()
        image = folder / "image"
        image.touch()
        os.truncate(image, 64 << 20)
        try:
            return all(subprocess.run(command, capture_output=True, check=False).returncode == 0 for command in
                       (["mkfs.ext4", "-q", image], ["mount", "-o", "loop", image, self.disk]))
        except FileNotFoundError:
            return False

    def prepare(self, run):
        if not self.mount(run.folder):
            raise OSError("cannot mount a file system in a file")
        run.undo.append(lambda: subprocess.run(["umount", "--lazy", self.disk], check=True))
        run.undo.append(lambda: self.freeze("--unfreeze"))
        run.output = self.disk / "out"

    def freeze(self, way):
        return subprocess.run(["fsfreeze", way, self.disk], capture_output=True, check=False).returncode == 0

    def strike(self, run, attempt):
        return attempt.code is None and self.freeze("--freeze")

    def end(self, run, attempt):
        time.sleep(run.case.details["seconds"])
        self.freeze("--unfreeze")


class TwoLaunchers(Kind):
    """Starts the same command again while it runs: the second one must be refused, and the first must not notice."""

    goes_on = True
    codes = (0,)
    undisturbed = True

    def strike(self, run, attempt):
        return attempt.wait_until(lambda: attempt.step() > 0, STRIKE_SECONDS_MAX) and attempt.code is None

    def end(self, run, attempt):
        again = subprocess.run([*run.wrapper, *attempt.words], env=attempt.job.environment, capture_output=True, text=True,
                               timeout=60, check=False)
        refused = re.search("another job is writing to this folder|holds checkpoints of an earlier run", again.stderr)
        if attempt.code is None and (again.returncode != 64 or not refused):
            raise Violation(f"the second launcher ended with {again.returncode}: {again.stderr[-300:]}")


class FlipBit(Kind):
    """A bit of a tensor is wrong on one replica: the job must find it, name replica, tensor and step, and end."""

    every = 20  # Steps from one replay to the next.

    def details(self, rng):
        return {"victim": rng.randrange(1000), "tensor": rng.randrange(1_000_000),
                "of": rng.choice(("weights", "values"))}

    def prepare(self, run):
        case = run.case
        sample = run.command("--training.steps", self.every, "--dry-run", "-vv")
        weights = re.findall(r"^([\w./-]+) = initialise\(", sample, re.MULTILINE)
        values = [name for names in re.findall(r"^@\S+:(?:for|back)ward ([^=@]+) = ", sample, re.MULTILINE)
                  for name in names.split(", ")]
        self.is_weight = case.details["of"] == "weights" and case.job != "sharded"  # Shards have no copies.
        names = weights if self.is_weight else values
        self.tensor = names[case.details["tensor"] % len(names)]
        self.replica = case.details["victim"] % case.replicas
        step = max(1, round(case.fraction * run.steps / self.every)) * self.every
        self.fault = ["--flip-bit", f"{self.replica}:{self.tensor}@{step}"]
        if self.is_weight:  # Replicas of a host share it, and only one of them names the host.
            replica = r"\d+" if run.hosts else rf"{self.replica}\b"
            self.report = (rf"before step \d+: '{re.escape(self.tensor)}' (is wrong on|differs between) "
                           rf".*replica {replica}")
        else:
            self.report = rf"in step {step}: replica {self.replica} computed a wrong '{re.escape(self.tensor)}'"
        run.options += ["--replay-every", self.every, *self.fault]
        if self.is_weight and run.hosts is None:
            run.options += ["--memory.private", "true"]  # Otherwise the replicas of a host share the weight.

    def cause(self, run):
        return f"silent data corruption {self.report}"

    def strike(self, run, attempt):
        attempt.known = set()
        found = attempt.wait_until(lambda: any(re.search(self.cause(run), line) for line in attempt.news()), 90)
        if not found:
            raise Violation(f"nothing was found ({self.cause(run)})")
        return True

    def repair(self, run):
        for word in self.fault:
            run.options.remove(word)


class BitRot(KillEverything):
    """A power cut, after which one bit of the last checkpoint is flipped."""

    def repair(self, run):
        stored = sorted((path for path in run.output.glob("checkpoints/step-*") if path.name[5:].isdigit()),
                        key=lambda path: int(path.name[5:]))
        if len(stored) > 1:
            with open(stored[-1] / "state.safetensors", "r+b") as file:
                file.seek(-1 - run.case.number % 1000, os.SEEK_END)
                byte = file.read(1)
                file.seek(-1, os.SEEK_CUR)
                file.write(bytes([byte[0] ^ 1]))


class Flood(Kind):
    """Opens many connections to each port of our own programs, and sends nothing."""

    any_hosts = False
    goes_on = True
    codes = (0,)
    undisturbed = True
    programs = ("poprun-emu", "poprun-emu-hostio")

    def details(self, rng):
        return {"connections": rng.randint(100, 2000), "seconds": round(rng.uniform(0.3, 3), 1)}

    def strike(self, run, attempt):
        return attempt.wait_until(lambda: all(listening_ports(attempt.job, [program]) for program in self.programs),
                                  STRIKE_SECONDS_MAX)

    def end(self, run, attempt):
        flood = []
        for _, ports in listening_ports(attempt.job, self.programs).values():
            for address in ports:
                host, port = address.rsplit(":", 1)
                for _ in range(run.case.details["connections"] // len(ports)):
                    try:
                        flood.append(socket.create_connection((host, int(port)), timeout=5))
                    except OSError:
                        break  # The job has ended, or this process can open no more files.
        time.sleep(run.case.details["seconds"])
        for client in flood:
            client.close()


class DataServerAway(Kind):
    """Stops the user's own data server for a while."""

    any_hosts = False
    goes_on = True
    codes = (0,)

    def details(self, rng):
        return {"seconds": round(rng.uniform(0.1, 5), 1)}

    def prepare(self, run):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.server = None
        self.serve()
        run.undo.append(self.stop)
        run.arguments += ["--hostio-address", f"127.0.0.1:{self.port}"]

    def serve(self):
        self.server = subprocess.Popen(
            [str(BIN / "poprun-emu-hostio"), "--port", str(self.port)], stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, env=dict(os.environ, POPRUN_EMU_TOKEN=""))
        if b"listening" not in self.server.stdout.readline():
            raise OSError("the data server does not listen")

    def stop(self):
        self.server.kill()
        self.server.wait()
        self.server.stdout.close()

    def strike(self, run, attempt):
        self.stop()
        return attempt.code is None

    def end(self, run, attempt):
        time.sleep(run.case.details["seconds"])
        self.serve()


def listening_address(text, network):
    """Returns the ADDRESS:PORT at which a socket of /proc/net/tcp or tcp6 is reachable on its host, or None."""
    address, port = text.split(":")
    # Each word of four bytes has the processor's byte order.
    words = [bytes.fromhex(address[i:i + 8])[::-1] for i in range(0, len(address), 8)]
    address = ipaddress.ip_address(b"".join(words))
    address = getattr(address, "ipv4_mapped", None) or address
    if address.is_unspecified:
        # Open MPI's IPv6 sockets accept nothing else.
        if address.version == 6 and not re.search(r"\blo$", (network / "if_inet6").read_text(), re.M):
            return None
        address = ipaddress.ip_address("127.0.0.1" if address.version == 4 else "::1")
    return f"{address}:{int(port, 16)}"


def listening_ports(job, programs):
    """Returns the programs' listening ports by network namespace: a process in it, and a set of ADDRESS:PORT."""
    found = {}
    for pid in job.pids():
        if name_of(pid) not in programs:
            continue
        try:
            namespace = os.readlink(f"/proc/{pid}/ns/net")
            sockets = {os.readlink(entry.path) for entry in os.scandir(f"/proc/{pid}/fd")}
            network = pathlib.Path(f"/proc/{pid}/net")
            for line in [line for table in ("tcp", "tcp6") for line in (network / table).read_text().splitlines()[1:]]:
                fields = line.split()
                if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                    if address := listening_address(fields[1], network):
                        found.setdefault(namespace, (pid, set()))[1].add(address)
        except OSError:
            pass  # The process has ended.
    return found


class BadFrames(Kind):
    """Sends bad frames to the ports of our own programs, which must ignore them."""

    goes_on = True
    codes = (0,)
    undisturbed = True
    programs = ("poprun-emu", "poprun-emu-hostio")

    def details(self, rng):
        return {"seconds": round(rng.uniform(0.5, 2), 1), "bytes": rng.randrange(1 << 32)}

    def strike(self, run, attempt):
        return attempt.wait_until(lambda: all(listening_ports(attempt.job, [program]) for program in self.programs),
                                  STRIKE_SECONDS_MAX)

    def end(self, run, attempt):
        taken = {}
        senders = {}
        for namespace, (pid, ports) in listening_ports(attempt.job, self.programs).items():
            taken[namespace] = dict.fromkeys(ports, 0)
            inside = ["nsenter", "-t", str(pid), "-n"] if run.hosts else []
            senders[namespace] = subprocess.Popen(
                [*inside, sys.executable, "-B", str(BAD_FRAMES), str(run.case.details["bytes"]),
                 str(run.case.details["seconds"]), *sorted(ports)], stdout=subprocess.PIPE, text=True)
        for namespace, sender in senders.items():
            told = sender.communicate()[0]
            if sender.returncode == 0:  # Otherwise the host's last process may have exited.
                taken[namespace].update(json.loads(told))
        self.missed = not any(count for ports in taken.values() for count in ports.values())
        for namespace, (_, ports) in listening_ports(attempt.job, self.programs).items():
            for port in ports & set(taken.get(namespace, ())):
                if attempt.code is None and not taken[namespace][port]:
                    raise Violation(f"no frame reached {port}, although it listens")


class BadFramesMpi(BadFrames):
    """Sends bad frames to the ports of Open MPI, which does not check them: the job may end with a message."""

    codes = (0, 75)
    undisturbed = False
    programs = ("orterun", "orted", "poprun-emu-replica")

    def cause(self, run):
        return "replica|host|mpirun"  # Any of them may be the victim.

    def strike(self, run, attempt):
        return attempt.wait_until(lambda: listening_ports(attempt.job, self.programs), STRIKE_SECONDS_MAX)


class Overlap(Kind):
    """Two or three faults, less than half a second apart. At least one of them ends the job. Pauses last 2 s."""

    any_hosts = False
    codes = (0, 69, 75)
    FATAL = {"kill a replica": ("poprun-emu-replica", signal.SIGKILL), "stop a replica": ("poprun-emu-replica", signal.SIGSTOP),
             "kill mpirun": ("orterun", signal.SIGKILL)}
    OTHERS = {"kill the data server": ("poprun-emu-hostio", signal.SIGKILL), "pause the launcher": ("poprun-emu", signal.SIGSTOP),
              "pause the data server": ("poprun-emu-hostio", signal.SIGSTOP), "pause mpirun": ("orterun", signal.SIGSTOP)}

    def details(self, rng):
        first = rng.choice(list(self.FATAL))
        others = rng.sample([*self.FATAL, *self.OTHERS], rng.choice((1, 2)))
        chosen = [first, *others]
        rng.shuffle(chosen)
        return {"faults": "; ".join(f"{fault} after {rng.uniform(0, 0.5):.2f} s" for fault in chosen)}

    def cause(self, run):
        return "replica|host|mpirun|data server"

    def strike(self, run, attempt):
        if not attempt.wait_until(lambda: replicas_of(attempt.job), STRIKE_SECONDS_MAX) or attempt.code is not None:
            return False
        struck = []
        for fault, seconds in re.findall(r"([^;]+?) after ([0-9.]+) s", run.case.details["faults"]):
            time.sleep(float(seconds))
            name, number = {**self.FATAL, **self.OTHERS}[fault.strip()]
            pids = [attempt.job.process.pid] if name == "poprun-emu" else sorted(attempt.job.pids(name))
            if pids:
                pid = pids[run.case.number % len(pids)]
                struck.append(send(pid, number))
                if number == signal.SIGSTOP and name != "poprun-emu-replica":
                    threading.Timer(2, send, (pid, signal.SIGCONT)).start()
        return any(struck)


KINDS = {"kill-replica": KillReplica(), "kill-data-server": KillDataServer(), "kill-mpirun": KillMpirun(),
         "kill-launcher": KillLauncher(), "kill-everything": KillEverything(), "signal-everything": SignalEverything(),
         "checkpoint-everything": SignalEverythingForACheckpoint(), "kill-host": KillHost(),
         "stop-replica": StopReplica(), "pause-replica": PauseReplica(), "pause-launcher": PauseLauncher(),
         "slow-replica": SlowReplica(), "cut-link": CutLink(), "flap-link": FlapLink(), "full-disk": FullDisk(),
         "data-server-away": DataServerAway(), "hung-disk": HungDisk(), "flood": Flood(),
         "two-launchers": TwoLaunchers(), "bit-rot": BitRot(), "flip-bit": FlipBit(), "overlap": Overlap(),
         "bad-frames": BadFrames(), "bad-frames-mpi": BadFramesMpi()}
NETWORK_KINDS = ("kill-host", "cut-link", "flap-link")
