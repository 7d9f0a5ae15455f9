"""Hosts of a cluster, simulated on one machine by namespaces (reference: unshare(1), veth(4)).

    sandbox (own network, mounts, processes)     node0 10.77.0.10      node1 10.77.0.11
      bridge br0 ------- veth ---------------------- eth0
                 ------- veth ------------------------------------------- eth0

Everything happens in one sandbox that a test enters first. When it ends, or is killed, the kernel removes all its
processes, links and mounts; nothing is written outside of a temporary folder.

Each host has its own name, network, shared memory and processes. Commands are started on node0, which keeps the
sandbox's processes and mounts, because its remote shell must be able to enter the others.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

SKIP = 77
NEEDED = ("unshare", "nsenter", "setpriv", "ip", "tc", "mpirun")
INSIDE = "POPRUN_MULTIHOST_SANDBOX"


def enter_sandbox():
    """Returns inside the sandbox; the calling process waits for the sandbox and exits with its code."""
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    if INSIDE in os.environ:
        run("ip", "link", "set", "lo", "up")
        return
    missing = [program for program in NEEDED if shutil.which(program) is None]
    if missing:
        skip(f"{', '.join(missing)} not installed; run deploy/setup")
    unshare = ["unshare", "--net", "--uts", "--ipc", "--pid", "--mount", "--fork", "--kill-child",
               "--mount-proc"]
    probe = ("ip link set lo up && ip link add br0 type bridge && ip link add va type veth peer name vb && "
             "tc qdisc add dev va root tbf rate 1gbit burst 64kb latency 50ms")
    found = subprocess.run([*unshare, "sh", "-c", probe], capture_output=True, text=True)
    if found.returncode != 0:
        lines = found.stderr.strip().splitlines() or ["no reason given"]
        skip(f"no namespaces with a bridge here ({lines[-1]}); needs root with CAP_SYS_ADMIN and CAP_NET_ADMIN")
    with tempfile.TemporaryDirectory(prefix="poprun-emu-multihost-") as folder:
        inner = subprocess.run(["setpriv", "--pdeathsig", "KILL", *unshare, sys.executable, "-B", *sys.argv],
                               env={**os.environ, INSIDE: folder})
    sys.exit(inner.returncode)


def skip(reason):
    print(f"SKIP: {reason}")
    sys.exit(SKIP)


def run(*command):
    subprocess.run(command, check=True)


class Cluster:
    """`count` hosts node0, node1, ...; `rate` limits the sending rate of each, for example "1gbit". With `domain`, each
    also has a name in that domain, which hostname(1) prints with `hostnames_with_domain`. With `own_name_is_loopback`,
    a host resolves its own name to 127.0.1.1, as in Debian's /etc/hosts."""

    def __init__(self, count, rate=None, domain=None, hostnames_with_domain=False, own_name_is_loopback=False):
        self.domain = domain
        self.hostnames_with_domain = hostnames_with_domain
        self.own_name_is_loopback = own_name_is_loopback
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=os.environ[INSIDE]))
        self.names = [f"node{i}" for i in range(count)]
        self.inits = {}
        self.cuts = {}  # Timers that cut the links of killed hosts.
        self.rate = rate

    def __enter__(self):
        run("ip", "link", "add", "br0", "type", "bridge")
        run("ip", "link", "set", "br0", "up")
        hosts = self.folder / "hosts.node0"
        hosts.write_text(self._hosts_file("node0"))
        run("mount", "--bind", str(hosts), "/etc/hosts")
        for name in self.names:
            self._boot(name)
        (self.folder / "remote_shell").write_text(
            "#!/bin/bash\n"
            "# Called by mpirun as a remote shell: [options] HOST command...\n"
            "while [[ $1 == -* ]]; do shift; done\n"
            "host=$1; shift\n"
            "case $host in 10.77.*) host=node$((${host##*.} - 10)) ;; *) host=${host%%.*} ;; esac\n"
            f"touch '{self.folder}'/$host.asked\n"
            f"exec nsenter -t \"$(cat '{self.folder}'/$host.pid)\" -n -u -i -p -m -- bash -c \"$*\"\n")
        (self.folder / "remote_shell").chmod(0o755)
        return self

    def __exit__(self, *_):
        for cut in self.cuts.values():
            cut.join()
        for init in self.inits.values():
            init.kill()
            init.wait()
        run("umount", "/etc/hosts")
        run("ip", "link", "del", "br0")
        for name in self.names:
            subprocess.run(["ip", "link", "del", f"v-{name}"], stderr=subprocess.DEVNULL)
        subprocess.run(["ip", "link", "del", "lost"], stderr=subprocess.DEVNULL)

    def address(self, name):
        return f"10.77.0.{10 + self.names.index(name)}"

    def _hosts_file(self, reader):
        lines = ["127.0.0.1 localhost"]
        for name in self.names:
            address = "127.0.1.1" if self.own_name_is_loopback and name == reader else self.address(name)
            lines.append(f"{address} {name}.{self.domain} {name}" if self.domain else f"{address} {name}")
        return "\n".join(lines) + "\n"

    def _boot(self, name):
        hostname = f"{name}.{self.domain}" if self.hostnames_with_domain else name
        hosts = self.folder / f"hosts.{name}"
        hosts.write_text(self._hosts_file(name))
        private = [] if name == "node0" else ["--pid", "--mount", "--fork", "--kill-child", "--mount-proc"]
        ready = self.folder / f"{name}.ready"
        init = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--uts", "--ipc", *private, "sh", "-c",
             f"hostname {hostname}; "
             f"{f'mount -t tmpfs none /dev/shm; mount --bind {hosts} /etc/hosts;' if private else ''} touch {ready}; "
             "exec sleep infinity"])
        self.inits[name] = init
        while not ready.exists():
            if init.poll() is not None:
                raise RuntimeError(f"{name} did not start")
            time.sleep(0.01)
        pid = init.pid
        if private:  # The child of unshare is the first process of the host.
            pid = int(pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
        (self.folder / f"{name}.pid").write_text(str(pid))
        run("ip", "link", "add", f"v-{name}", "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        run("ip", "link", "set", f"v-{name}", "master", "br0", "up")
        inside = ["nsenter", "-t", str(pid), "-n"]
        run(*inside, "ip", "link", "set", "lo", "up")
        run(*inside, "ip", "addr", "add", f"{self.address(name)}/24", "dev", "eth0")
        run(*inside, "ip", "link", "set", "eth0", "up")
        # The same on every machine. With bbr, earlier traffic on a connection matters: an all-reduce of 16 MiB over
        # 1gbit took 212 ms alone and 250 ms after short ones; with reno it takes 212 ms in both cases.
        run(*inside, "sysctl", "-qw", "net.ipv4.tcp_congestion_control=reno")
        if self.rate:
            # Room for the largest packet that TCP passes down, including the headers of its segments. With less, the
            # kernel splits packets, drops some, and needs ten times the processor time, unlike a slower wire.
            run(*inside, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", self.rate, "burst",
                "128kb", "latency", "50ms")

    def command_on(self, name, *command):
        """Returns the words that run a command on a host; on node0, with the sandbox's files and processes."""
        pid = (self.folder / f"{name}.pid").read_text()
        private = [] if name == "node0" else ["-p", "-m"]
        return ["nsenter", "-t", pid, "-n", "-u", "-i", *private, "--", *map(str, command)]

    def environment(self):
        """Returns mpirun's variables on node0 to start processes on the others. Temporary files end with the
        sandbox."""
        return {"TMPDIR": str(self.folder),
                "OMPI_MCA_plm_rsh_agent": str(self.folder / "remote_shell"),
                "OMPI_MCA_btl_tcp_if_include": "10.77.0.0/24",
                "OMPI_MCA_oob_tcp_if_include": "10.77.0.0/24"}

    def kill_host(self, name):
        """Kills all processes of a host at once; soon afterwards nothing answers at its address."""
        self.inits[name].kill()
        # After its connections have broken: its network namespace may exist for seconds and would refuse new ones.
        cut = ["ip", "link", "set", f"v-{name}", "down"]
        self.cuts[name] = threading.Timer(0.2, subprocess.run, [cut], {"stderr": subprocess.DEVNULL})
        self.cuts[name].start()

    def forget_start(self, name):
        """Makes `was_asked` false until mpirun starts a daemon on the host again."""
        (self.folder / f"{name}.asked").unlink()

    def was_asked(self, name):
        """Returns whether mpirun has begun to start a daemon on the host."""
        return (self.folder / f"{name}.asked").exists()

    def boot_again(self, name):
        """Starts a killed host again, empty."""
        self.inits[name].wait()
        self.cuts.pop(name).join()
        (self.folder / f"{name}.ready").unlink()
        subprocess.run(["ip", "link", "del", f"v-{name}"], stderr=subprocess.DEVNULL)
        self._boot(name)

    def hide(self, name, folder):
        """Gives a host an empty folder in which the others have programs."""
        run(*self.command_on(name, "mount", "-t", "tmpfs", "none", folder))

    def lose_packets(self, name, share):
        """Drops random packets from and to a host. Not every kernel has netem, so a filter selects the packets and
        redirects them to a link that leads nowhere."""
        random_word, load, at_least, give = 4294963256, 32, 53, 6
        pick = f"4,{load} 0 0 {random_word},{at_least} 1 0 {int(share * 2**32)},{give} 0 0 4294967295,{give} 0 0 0"
        for device, inside in ((f"v-{name}", []), ("eth0", self.command_on(name))):
            run(*inside, "ip", "link", "add", "lost", "type", "veth", "peer", "name", "nowhere")
            run(*inside, "ip", "link", "set", "lost", "up")
            run(*inside, "tc", "qdisc", "add", "dev", device, "clsact")
            run(*inside, "tc", "filter", "add", "dev", device, "egress", "bpf", "bytecode", pick,
                "action", "mirred", "egress", "redirect", "dev", "lost")

    def cut_link(self, name):
        run("ip", "link", "set", f"v-{name}", "down")

    def bytes_sent(self, name):
        """Returns the bytes that this host has sent since it was created, including headers."""
        inside = self.command_on(name, "cat", "/proc/net/dev")
        for line in subprocess.run(inside, check=True, capture_output=True, text=True).stdout.splitlines():
            if line.strip().startswith("eth0:"):
                return int(line.split()[9])
        raise RuntimeError(f"{name} has no eth0")
