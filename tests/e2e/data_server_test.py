#!/usr/bin/env python3
"""The data server alone: which data it serves, to which clients, and how it ends."""
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import time
import unittest
import zipfile

import npy_file
from emulated_job import BIN, QUICK, ROOT, JobTest

CONFIG = """
[model]
name = mlp
[data]
source = {source}
micro-batch-size = 2
[training]
steps = 2
evaluate = false
"""


class ServerTest(JobTest):
    def server(self, *arguments, token="", port=0):
        process = subprocess.Popen(
            [str(BIN / "poprun-emu-hostio"), "--port", str(port), *map(str, arguments)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=dict(os.environ, POPRUN_EMU_TOKEN=token))
        self.addCleanup(process.wait)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        return process

    def address(self, process):
        line = process.stdout.readline()
        self.assertIn("listening on ", line)
        return line.split()[-1]

    def assert_refused(self, code, *arguments, parts):
        process = self.server(*arguments)
        _, errors = process.communicate(timeout=20)
        self.assertEqual(process.returncode, code, errors)
        self.assertEqual(errors.count("\n"), 1, errors)
        for part in parts:
            self.assertIn(part, errors)

    def data(self, name):
        folder = self.folder / name
        folder.mkdir()
        (folder / "x_train.npy").write_bytes(npy_file.floats((8, 3), [0.5] * 24))
        (folder / "y_train.npy").write_bytes(npy_file.floats((8,), [1.0] * 8))
        return folder


class Server(ServerTest):
    def test_beyond_this_host_it_needs_a_token(self):
        self.assert_refused(64, "--bind", "0.0.0.0", parts=["--bind 0.0.0.0", "POPRUN_EMU_TOKEN"])
        self.address(self.server("--bind", "0.0.0.0", token="c41f6e0b9d7a258390e2b4fd61a7c835"))
        process = self.server("--bind", "0.0.0.0", token="secret")
        _, errors = process.communicate(timeout=20)
        self.assertEqual(process.returncode, 64, errors)
        self.assertIn("openssl rand -hex 16", errors)

    def test_the_token_of_the_manifests_is_refused(self):
        lines = (ROOT / "deploy/kubernetes/base/kustomization.yaml").read_text().splitlines()
        token = next(line.split("POPRUN_EMU_TOKEN=")[1] for line in lines if line.startswith("  - POPRUN_EMU_TOKEN="))
        file = self.folder / "token"
        file.write_text(token + "\n")
        for arguments, given in (((), token), (("--token-file", file), "")):
            process = self.server(*arguments, token=given)
            _, errors = process.communicate(timeout=20)
            self.assertEqual(process.returncode, 64, errors)
            self.assertEqual(errors.count("\n"), 1, errors)
            self.assertIn("openssl rand -hex 16", errors)
        job = self.run_job("-n", 1, code=64, environment={"POPRUN_EMU_TOKEN": token})
        self.assertEqual(job.stderr.count("\n"), 1, job.stderr)
        self.assert_first_line(job, "POPRUN_EMU_TOKEN", "openssl rand -hex 16")

    def test_it_serves_what_lies_below_its_root_and_what_it_was_started_for(self):
        served, named, other = self.data("served"), self.data("named"), self.data("other")
        (served / "away").symlink_to(other)
        address = self.address(self.server("--root", served, "--source", f"npy:{named}"))
        for source, code in ((served, 0), (named, 0), (other, 64), (served / "../other", 64),
                             (served / "away", 64)):
            config = CONFIG.format(source=f"npy:{source}").replace(
                "name = mlp", "name = mlp\nclasses = 2")
            job = self.start("--dry-run", "--hostio-address", address, config=config,
                             environment={"POPRUN_EMU_TOKEN": ""})
            job.wait(60)
            if code == 0:
                self.assertNotIn("does not serve", job.stderr)
            else:
                self.assertEqual(job.process.returncode, code, job.stderr)
                self.assert_first_line(job, "does not serve this file", "--root")

    def test_a_dataset_beyond_any_memory_is_refused_by_its_size(self):
        config = CONFIG.format(source="synthetic:tokens,vocabulary=50,items=16777216").replace(
            "micro-batch-size = 2", "micro-batch-size = 2\nsequence-length = 65536")
        job = self.run_job("-n", 1, code=65, config=config)
        self.assert_first_line(job, "16,777,216 items of 65,536 tokens", "4,194,304.0 MiB")

    def test_a_pipe_is_no_dataset(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        self.assert_refused(65, "--preload", f"text:{pipe}", parts=[str(pipe), "it is a pipe"])

    def test_it_ends_at_once_while_it_loads(self):
        source = "synthetic:tokens,vocabulary=50,items=1000000?sequence-length=256"
        for arguments in (("--preload", source), ()):
            process = self.server(*arguments)
            if not arguments:
                address = self.address(process)
                config = CONFIG.format(source=source.split("?")[0]).replace(
                    "micro-batch-size = 2", "micro-batch-size = 2\nsequence-length = 256")
                job = self.start("--dry-run", "--hostio-address", address, config=config,
                                 environment={"POPRUN_EMU_TOKEN": ""})
                self.addCleanup(job.process.kill)
            time.sleep(0.5)
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(10), 0)

    def test_no_command_line_shows_the_token(self):
        job = self.start("-n", 2)
        seen = set()
        while job.process.poll() is None:
            for pid in job.pids():
                try:
                    seen.add(pathlib.Path(f"/proc/{pid}/cmdline").read_text(errors="replace"))
                except OSError:
                    pass
            time.sleep(0.01)
        self.assertEqual(job.process.returncode, 0, job.stderr)
        self.assertTrue(any("poprun-emu-hostio" in line for line in seen), seen)
        self.assertTrue(any("poprun-emu-replica" in line for line in seen), seen)
        for line in seen:
            self.assertNotIn(job.token, line)


TRAINING = """
[model]
name = mlp
hidden = 8
[data]
source = {source}
micro-batch-size = 4
[training]
epochs = 2
schedule = constant
learning-rate = 0.05
"""


class Data(ServerTest):
    """Files that change, and a job's messages about its data."""

    def setUp(self):
        super().setUp()
        self.place = self.folder / "files"
        self.place.mkdir()

    def write(self, name, **arrays):
        """Writes an .npz file and puts it in place by renaming, as users do."""
        path = self.place / name
        new = self.place / "new"
        with zipfile.ZipFile(new, "w") as archive:
            for array, content in arrays.items():
                archive.writestr(f"{array}.npy", content)
        os.replace(new, path)
        return path

    def draw(self, name, seed, items=16, classes=3):
        draw = random.Random(seed)
        def part(count):
            return (npy_file.floats((count, 4), [draw.random() for _ in range(4 * count)]),
                    npy_file.content("<i4", (count,), struct.pack(f"<{count}i", *(i % classes for i in range(count)))))
        x, y = part(items)
        x_test, y_test = part(6)
        return self.write(name, x_train=x, y_train=y, x_test=x_test, y_test=y_test)

    def train(self, source, *arguments, code=0, config=TRAINING, n=2):
        return self.run_job("-n", n, "--overwrite", *arguments, code=code, config=config.format(source=source),
                            environment={"POPRUN_EMU_TOKEN": ""})

    def test_a_shared_server_trains_each_job_on_the_data_that_was_described_to_it(self):
        address = self.address(self.server("--root", self.place))
        link = self.place / "link.npz"
        for name in ("d.npz", "link.npz"):
            with self.subTest(name):
                first = self.draw("a.npz" if name == "link.npz" else name, seed=1)
                if name == "link.npz":
                    link.symlink_to(first)
                source = f"npz:{self.place / name}"
                shared = ("--hostio-address", address)
                old = self.train(source, *shared).weights_hash()
                if name == "link.npz":
                    link.unlink()
                    link.symlink_to(self.draw("b.npz", seed=2))
                else:
                    self.draw(name, seed=2)
                new = self.train(source, *shared).weights_hash()
                self.assertNotEqual(new, old)
                self.assertEqual(new, self.train(source).weights_hash(), "as from a server of its own")
        source = f"npz:{self.place / 'd.npz'}"
        self.draw("d.npz", seed=2, items=32)
        self.assertEqual(self.train(source, *shared).weights_hash(), self.train(source).weights_hash())
        self.draw("d.npz", seed=2, classes=2)
        self.assertEqual(self.train(source, *shared).weights_hash(), self.train(source).weights_hash())
        (self.place / "d.npz").unlink()
        self.assert_first_line(self.train(source, *shared, code=65), "d.npz", "No such file")

    def test_a_restarted_server_with_other_data_ends_the_job(self):
        self.draw("d.npz", seed=1)
        server = self.server("--root", self.place)
        address = self.address(server)
        job = self.start("-n", 2, "--hostio-address", address, environment={"POPRUN_EMU_TOKEN": ""},
                         config=TRAINING.format(source=f"npz:{self.place / 'd.npz'}").replace(
                             "epochs = 2", "epochs = 1000000"))
        self.addCleanup(job.process.kill)
        job.wait_for_step(3)
        server.kill()
        server.wait()
        self.draw("d.npz", seed=2)
        self.address(self.server("--root", self.place, port=address.split(":")[1]))
        self.assertEqual(job.wait(60), 65, job.stderr)
        self.assert_first_line(job, "d.npz", "the files changed after the job began")

    def test_a_server_that_loads_counts_as_alive(self):
        config = CONFIG.format(source="synthetic:tokens,vocabulary=50,items=2500000").replace(
            "name = mlp", "name = gpt2\nlayers = 1\nhidden = 8\nheads = 2\nvocabulary = 64\nsequence-length = 64"
        ).replace("micro-batch-size = 2", "micro-batch-size = 2\nsequence-length = 64")
        self.run_job("-n", 1, "--hostio-timeout", 2, config=config)

    def test_messages_name_what_is_wrong(self):
        x = npy_file.floats((4, 2), [0.5] * 8)
        y = npy_file.content("<i8", (4,), struct.pack("<4q", 0, 1, 2, 0))
        types = self.write("types.npz", x_train=x, y_train=y, x_test=x, y_test=npy_file.floats((4,), [0] * 4))
        self.assert_first_line(self.train(f"npz:{types}", code=65), "that of the training part, int64",
                               "it is float32")
        large = self.write("large.npz", x_train=x,
                           y_train=npy_file.content("<i8", (4,), struct.pack("<4q", 0, 1, 2**31 - 1, 0)))
        self.assert_first_line(self.train(f"npz:{large}", code=65),
                               "label 2,147,483,647 of item 2 would need 2,147,483,648 classes")
        (self.place / "a?b").mkdir()
        odd = self.write("a?b/d.npz", x_train=x, y_train=y, x_val=x, y_val=y)
        job = self.train(f"npz:{odd}", "--data.micro-batch-size", 2)
        self.assertIn("x_val, y_val are not read", job.stdout + job.stderr)

    def test_notes_say_what_of_the_data_is_not_used_as_it_seems(self):
        tokens = npy_file.content("<i4", (4, 4), struct.pack("<16i", *range(16)))
        ignored = npy_file.content("<i4", (4, 4), struct.pack("<16i", *[-100] * 16))
        gpt2 = TRAINING.replace("name = mlp\nhidden = 8", "name = gpt2\nlayers = 1\nhidden = 8\nheads = 2\n"
                                "vocabulary = 64\nsequence-length = 4").replace("size = 4", "size = 2")
        job = self.train(f"npz:{self.write('p.npz', input_ids=tokens, labels=tokens, position_ids=tokens)}",
                         config=gpt2)
        self.assertIn("the data has position_ids, which gpt2 does not read", job.stdout + job.stderr)
        none = self.write("n.npz", input_ids=tokens, labels=ignored)
        self.assert_first_line(self.train(f"npz:{none}", config=gpt2, code=65), "every label is below 0",
                               "nothing would be learned")
        pixels = npy_file.floats((4, 2, 2), [0, 64, 128, 255] * 4)
        labels = npy_file.content("<i4", (4,), struct.pack("<4i", 0, 1, 2, 0))
        job = self.train(f"npz:{self.write('f.npz', x=pixels, y=labels)}", "--data.micro-batch-size", 2)
        self.assertRegex(job.stdout + job.stderr, "go up to 255 .*data.mean = 127.5")

    def test_a_nan_of_the_data_is_not_blamed_on_the_learning_rate(self):
        labels = npy_file.content("<i4", (4,), struct.pack("<4i", 0, 1, 2, 0))
        for shape in ((4, 2, 2), (4, 4)):
            pixels = npy_file.floats(shape, [0.5] * 9 + [float("nan")] + [0.5] * 6)
            job = self.train(f"npz:{self.write('nan.npz', x=pixels, y=labels)}", "--data.micro-batch-size", 2,
                             code=65)
            self.assert_first_line(job, "NaN in element", "the value comes from the data; fix data.source")

    def test_the_header_of_llm_c_is_not_read_as_tokens(self):
        tokens = struct.pack("<400H", *range(400))
        (self.place / "t.bin").write_bytes(struct.pack("<3i", 20240520, 1, 400).ljust(1024, b"\0") + tokens)
        (self.place / "raw.bin").write_bytes(tokens)
        gpt2 = TRAINING.replace("name = mlp\nhidden = 8", "name = gpt2\nlayers = 1\nhidden = 8\nheads = 2\n"
                                "vocabulary = 512\nsequence-length = 4").replace("size = 4", "size = 2\n"
                                                                                 "sequence-length = 4")
        with_header = self.train(f"tokens:{self.place / 't.bin'}", config=gpt2).weights_hash()
        self.assertEqual(with_header, self.train(f"tokens:{self.place / 'raw.bin'}", config=gpt2).weights_hash())


class Certificates(ServerTest):
    """A user's own certificates, on one host."""

    def openssl(self, *arguments):
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, cwd=self.folder)

    def setUp(self):
        super().setUp()
        if shutil.which("openssl") is None:
            self.skipTest("openssl not installed; run deploy/setup")
        new = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
        for name in ("ca", "other"):
            self.openssl(*new, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem")
        (self.folder / "names").write_text("subjectAltName=DNS:train.example\n")
        self.openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=job",
                     "-keyout", "job.key", "-out", "job.csr")
        self.openssl("x509", "-req", "-in", "job.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                     "-days", "2", "-extfile", "names", "-out", "job.pem")

    def files(self, certificate="job.pem", key="job.key", authorities="ca.pem"):
        return ("--tls-cert", self.folder / certificate, "--tls-key", self.folder / key,
                "--tls-ca", self.folder / authorities)

    def test_guard_all_connections_of_a_job(self):
        reference = self.run_job("-n", 2)
        job = self.run_job("-n", 2, *self.files())
        self.assertEqual(job.weights_hash(), reference.weights_hash())
        self.assertNotIn("warning", job.stderr)
        (self.folder / "job.key").chmod(0o644)
        self.assert_first_line(self.run_job("-n", 1, *self.files()), "job.key can be read by users other", "chmod 600")

    def test_guard_a_server_of_the_users_own(self):
        token = "c41f6e0b9d7a258390e2b4fd61a7c835"
        address = self.address(self.server(*self.files(), "--source", "fashion-mnist", token=token))
        given = {"environment": {"POPRUN_EMU_TOKEN": token}}
        self.run_job("-n", 2, *self.files(), "--hostio-address", address, **given)
        for stranger in ((), self.files("other.pem", "other.key", "other.pem")):
            job = self.run_job("-n", 1, *stranger, "--hostio-address", address, "--hostio-timeout", 2, code=69, **given)
            self.assert_first_line(job, f"the data server at {address} did not answer for 2 s")

    def test_that_do_not_fit_are_refused_in_a_line(self):
        (self.folder / "text").write_text("no PEM\n")
        for files, code, part in ((self.files("none.pem"), 64, "none.pem: cannot be read: No such file"),
                                  (self.files(key="other.key"), 64, "other.key is not the key of --tls-cert"),
                                  (self.files(authorities="other.pem"), 64, "other.pem does not vouch for --tls-cert"),
                                  (self.files()[:4], 64, "--tls-ca is missing"),
                                  (self.files("text"), 65, "expected certificates as PEM"),
                                  (self.files(key="text"), 65, "expected a PEM private key")):
            with self.subTest(part):
                job = self.run_job("-n", 1, *files, code=code)
                self.assert_first_line(job, part)
                process = self.server(*files)
                _, errors = process.communicate(timeout=20)
                self.assertEqual(process.returncode, code, errors)
                self.assertIn(part, errors)


class Attacked(ServerTest):
    """Attacks on a server by a client without a token."""

    def connect(self, address):
        host, port = address.rsplit(":", 1)
        client = socket.create_connection((host, int(port)), timeout=20)
        self.addCleanup(client.close)
        return client

    def describe(self, address):
        config = CONFIG.format(source="synthetic:images=1x4x4,classes=2,items=16")
        job = self.start("--dry-run", "--hostio-address", address, config=config, environment={"POPRUN_EMU_TOKEN": ""})
        self.assertEqual(job.wait(60), 0, job.stderr)

    def test_by_a_flood_of_connections_it_serves_on(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard < 1500:
            self.skipTest(f"needs 1,500 files, but only {hard} are allowed")
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
        process = self.server()
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1500), hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        address = self.address(process)
        flood = [self.connect(address) for _ in range(1100)]
        self.describe(address)
        for client in flood:
            client.close()
        self.describe(address)
        probe = subprocess.run([BIN / "poprun-emu-hostio", "--probe", "--port", address.rsplit(":", 1)[1]], timeout=20,
                               check=False)
        self.assertEqual(probe.returncode, 0)

    def test_by_a_header_of_any_size_it_closes_the_connection(self):
        address = self.address(self.server())
        for _ in range(4):
            client = self.connect(address)
            def frame(kind, size):
                return struct.pack(">I", size)[1:] + bytes([kind, 0]) + struct.pack(">I", kind and 1) + bytes(size)
            sent = 0
            with self.assertRaises(OSError):
                client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0)[:5] + bytes(4) + frame(1, 4096))
                while sent < 15 << 20:
                    client.sendall(frame(9, 16384))
                    sent += 16384
            self.assertLess(sent, 4 << 20)
        self.describe(address)

    def test_a_probe_says_that_nobody_is_serving(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        probe = subprocess.run([BIN / "poprun-emu-hostio", "--probe", "--port", str(port)], timeout=20, check=False,
                               capture_output=True, text=True)
        self.assertEqual(probe.returncode, 69)
        self.assertIn(f"the data server at 127.0.0.1:{port} is not serving", probe.stderr)


class Listening(JobTest):
    def test_a_job_on_one_host_listens_on_loopback_alone(self):
        for arguments in ((), ("--mpi-global-args=--mca btl self,tcp",)):
            with self.subTest(arguments):
                job = self.start("-n", 2, *arguments, config=QUICK.replace("steps = 5", "steps = 100000"))
                job.wait_for_step(2)
                pids = set(job.pids())
                listening = subprocess.run(["ss", "-ltnpH"], capture_output=True, text=True, check=True).stdout.splitlines()
                ours = [line for line in listening if pids & {int(pid) for pid in re.findall(r"pid=(\d+)", line)}]
                self.assertTrue(any("mpirun" in line for line in ours), listening)
                for line in ours:
                    self.assertRegex(line.split()[3], r"^(127\.\d+\.\d+\.\d+|\[::1\]):", "\n".join(ours))
                job.end()


if __name__ == "__main__":
    unittest.main()
