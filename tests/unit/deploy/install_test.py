#!/usr/bin/env python3
"""The files that `cmake --install` installs, and the messages of the installed poprun-emu about them."""
import argparse
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

SECONDS_MAX = 20


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory(prefix="poprun-emu-install-")
        cls.addClassCleanup(temporary.cleanup)
        cls.prefix = pathlib.Path(temporary.name) / "moved"
        first = cls.prefix.with_name("installed")
        subprocess.run(["cmake", "--install", BUILD, "--prefix", first], check=True, stdout=subprocess.DEVNULL)
        first.rename(cls.prefix)
        cls.empty = cls.prefix.with_name("empty")
        cls.empty.mkdir()

    def run_emu(self, *arguments):
        done = subprocess.run([self.prefix / "bin/poprun-emu", *map(str, arguments)], cwd=self.empty, text=True,
                              capture_output=True, timeout=SECONDS_MAX)
        return done.returncode, done.stdout + done.stderr


class Files(Installed):
    def test_are_all_there(self):
        for name in ("bin/poprun-emu", "bin/poprun-emu-replica", "bin/poprun-emu-hostio", "bin/poprun-emu-onnx-check",
                     "bin/poprun-emu-remote-shell",
                     "share/poprun-emu/train.cfg", "share/poprun-emu/examples/mlp.cfg", "share/doc/poprun-emu/README.md",
                     "share/doc/poprun-emu/LICENSE", "share/man/man1/poprun-emu.1",
                     "share/bash-completion/completions/poprun-emu",
                     "share/fish/vendor_completions.d/poprun-emu.fish", "share/zsh/site-functions/_poprun-emu",
                     "share/zsh/vendor-completions/_poprun-emu"):
            self.assertTrue((self.prefix / name).is_file(), name)

    def test_have_no_broken_link_between_pages(self):
        pages = self.prefix / "share/doc/poprun-emu"
        for page in pages.rglob("*.md"):
            for link in re.findall(r"\]\(([^)#:]*README\.md)[^)]*\)", page.read_text()):
                self.assertTrue((page.parent / link).is_file(), f"{page.relative_to(pages)}: {link}")

    def test_are_named_by_help(self):
        code, text = self.run_emu("--help")
        self.assertEqual(code, 0)
        self.assertIn(f"Default job:  {self.prefix}/share/poprun-emu/train.cfg\n", text)
        self.assertIn(f"Example jobs: {self.prefix}/share/poprun-emu/examples\n", text)

    def test_are_named_where_a_job_is_missing(self):
        share = self.prefix / "share/poprun-emu"
        for arguments, line in (
                (["train.cfg"], f"train.cfg: no such file; the default job is {share}/train.cfg"),
                (["x/own.cfg"], f"x/own.cfg: no such file; the default job is {share}/train.cfg"),
                (["mlp.cfg"], f"mlp.cfg: no such file; an example of that name is {share}/examples/mlp.cfg"),
                (["-n", 4], f"no train.cfg was given; the default job is {share}/train.cfg; usage: ")):
            code, text = self.run_emu(*arguments)
            self.assertEqual(code, 64, text)
            self.assertIn(line, text)

    def test_hold_a_job_that_the_programs_know(self):
        code, text = self.run_emu("--dry-run", self.prefix / "share/poprun-emu/train.cfg")
        self.assertEqual(code, 0, text)


class Topology(Installed):
    def test_is_printed_without_a_job(self):
        code, text = self.run_emu("-n", 4, "--num-instances", 2, "--print-topology")
        self.assertEqual(code, 0, text)
        self.assertIn("| replicas  | 0 | 1 | 2 | 3 |", text)
        self.assertEqual(list(self.empty.iterdir()), [])


class ManualPage(Installed):
    def test_has_no_warnings_and_every_section(self):
        if shutil.which("man") is None:
            self.skipTest("man is not installed")
        page = self.prefix / "share/man/man1/poprun-emu.1"
        shown = subprocess.run(["man", "--warnings", "-l", page], capture_output=True, text=True, timeout=SECONDS_MAX,
                               env={**os.environ, "MANWIDTH": "80", "LC_ALL": "C.UTF-8", "MANPAGER": "cat"})
        self.assertEqual((shown.returncode, shown.stderr), (0, ""))
        for text in ("POPRUN_EMU_OUTPUT_DIR", "-n, --num-replicas N", "--help [SECTION]", "--training.seed N", "EXIT STATUS", "130"):
            self.assertIn(text, shown.stdout)


class Completion(Installed):
    """Runs an interactive bash. ESC * writes all completions into the line, which a stub of poprun-emu prints."""

    def setUp(self):
        (self.empty / "job.cfg").touch()
        (self.empty / "job.txt").touch()
        (self.empty / "models").mkdir(exist_ok=True)
        (self.empty / "models/m.onnx").touch()
        script = f"""PATH={self.prefix}/bin:$PATH
PS1=
complete -r
source {self.prefix}/share/bash-completion/completions/poprun-emu
poprun-emu() {{ if [[ $1 == --list-models ]]; then command poprun-emu "$@"; else printf '<%s>\\n' "$*"; fi; }}
"""
        (self.prefix / "rc").write_text(script)
        self.child, self.terminal = pty.fork()
        if self.child == 0:
            os.chdir(self.empty)
            os.environ.update(TERM="dumb", INPUTRC="/dev/null", LC_ALL="C", HISTFILE="")
            os.execvp("bash", ["bash", "--noprofile", "--rcfile", str(self.prefix / "rc"), "-i"])
        self.addCleanup(self.end)

    def end(self):
        os.close(self.terminal)
        os.waitpid(self.child, 0)

    def completions(self, typed):
        """Returns the line that ESC * produces from `poprun-emu TYPED`, without the command."""
        os.write(self.terminal, f"poprun-emu {typed}\x1b*\n".encode())
        output, deadline = "", time.monotonic() + SECONDS_MAX
        while "<" not in output or ">\r\n" not in output[output.index("<"):]:
            ready, _, _ = select.select([self.terminal], [], [], max(0, deadline - time.monotonic()))
            self.assertTrue(ready, f"bash said nothing more than {output!r}")
            output += os.read(self.terminal, 65536).decode(errors="replace")
        begin = output.rindex("\n<") if "\n<" in output else output.index("<") - 1
        return output[begin + 2:output.index(">\r\n", begin)].split()

    def test_offers_options(self):
        self.assertEqual(self.completions("--num-"), ["--num-ilds", "--num-instances", "--num-replicas"])
        self.assertIn("--training.learning-rate", self.completions("--training.l"))

    def test_offers_the_values_of_an_option(self):
        self.assertEqual(self.completions("--device.ipu "), ["--device.ipu", "bow", "mk1", "mk2"])
        self.assertEqual(self.completions("--device.ipu=m"), ["--device.ipu=mk1", "mk2"])
        self.assertEqual(self.completions("--training.optimizer adam"), ["--training.optimizer", "adam", "adamw"])
        self.assertEqual(self.completions("--help mo"), ["--help", "model"])
        self.assertEqual(self.completions("--training.nesterov t"), ["--training.nesterov", "true"])

    def test_offers_models(self):
        self.assertEqual(self.completions("--model.name resnet1"), ["--model.name", "resnet101", "resnet18"])
        self.assertEqual(self.completions("--model small"), ["--model", "small-cnn"])

    def test_offers_files_where_an_option_takes_one(self):
        self.assertEqual(self.completions("--model.onnx models/"), ["--model.onnx", "models/m.onnx"])
        self.assertEqual(self.completions("--model.onnx=models/m"), ["--model.onnx=models/m.onnx"])
        self.assertEqual(self.completions("--check-onnx m"), ["--check-onnx", "models"])
        self.assertEqual(self.completions("--hostfile job"), ["--hostfile", "job.cfg", "job.txt"])

    def test_offers_datasets_and_their_files(self):
        self.assertEqual(self.completions("--data.source te"), ["--data.source", "text:"])
        _, told = self.run_emu("--help", "data")
        forms = re.search(r"Dataset: (.*?) \(default: ", " ".join(told.split()))[1]
        self.assertEqual(set(self.completions("--data.source ")[1:]),
                         {"fashion-mnist", *re.findall(r"([a-z0-9-]+:)[A-Za-z]", forms)})
        self.assertEqual(self.completions("--data.source text:job.t"), ["--data.source", "text:job.txt"])

    def test_offers_jobs(self):
        self.assertEqual(self.completions("-n 4 j"), ["-n", "4", "job.cfg"])
        self.assertEqual(self.completions("--dry-run j"), ["--dry-run", "job.cfg"])


class FishCompletion(Installed):
    def setUp(self):
        if shutil.which("fish") is None:
            self.skipTest("fish is not installed")

    def completions(self, typed):
        script = self.prefix / "share/fish/vendor_completions.d/poprun-emu.fish"
        environment = {**os.environ, "HOME": str(self.empty), "PATH": f"{self.prefix}/bin:{os.environ['PATH']}"}
        done = subprocess.run(["fish", "--no-config", "-c", f"source {script}; complete -C 'poprun-emu {typed}'"],
                              cwd=self.empty, text=True, capture_output=True, timeout=SECONDS_MAX, env=environment)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return [line.split("\t")[0] for line in done.stdout.splitlines()]

    def test_offers_what_that_of_bash_offers(self):
        self.assertEqual(self.completions("--device.ipu "), ["bow", "mk1", "mk2"])
        self.assertEqual(self.completions("--training.optimizer ad"), ["adam", "adamw"])
        self.assertEqual(self.completions("--model small"), ["small-cnn"])
        self.assertEqual(self.completions("--num-rep"), ["--num-replicas"])
        self.assertEqual(self.completions("che"), ["check"])
        self.assertEqual(self.completions("help tra"), ["training"])


class ZshCompletion(Installed):
    """Runs an interactive zsh, in which TAB completes what is unique."""

    def setUp(self):
        if shutil.which("zsh") is None:
            self.skipTest("zsh is not installed")
        (self.empty / "job.cfg").touch()
        (self.prefix / ".zshrc").write_text(
            f"PATH={self.prefix}/bin:$PATH\nfpath=({self.prefix}/share/zsh/site-functions $fpath)\n"
            "autoload -U compinit\ncompinit -u -D\nPS1=\nunsetopt zle_bracketed_paste prompt_sp\n"
            "poprun-emu() { [[ $1 == --list-models ]] && command poprun-emu \"$@\" || print -r \"<$*>\"; }\n"
            "print ready\n")
        self.child, self.terminal = pty.fork()
        if self.child == 0:
            os.chdir(self.empty)
            os.environ.update(TERM="dumb", ZDOTDIR=str(self.prefix), LC_ALL="C")
            os.execvp("zsh", ["zsh", "--no-globalrcs", "-i"])
        self.addCleanup(self.end)
        self.read_until("ready")

    def end(self):
        os.close(self.terminal)
        os.waitpid(self.child, 0)

    def read_until(self, pattern):
        output, deadline = "", time.monotonic() + SECONDS_MAX
        while not re.search(pattern, output):
            ready, _, _ = select.select([self.terminal], [], [], max(0, deadline - time.monotonic()))
            self.assertTrue(ready, f"zsh said nothing more than {output!r}")
            output += os.read(self.terminal, 65536).decode(errors="replace")
        return output

    def completed(self, typed):
        os.write(self.terminal, f"poprun-emu {typed}\t\n".encode())
        return re.search(r"<(.*?) *>\r", self.read_until(r"<.*>\r"))[1]

    def test_offers_what_that_of_bash_offers(self):
        for typed, completed in (("--device.ipu b", "--device.ipu bow"), ("--device.ipu=b", "--device.ipu=bow"),
                                 ("--training.optimizer mom", "--training.optimizer momentum"),
                                 ("--model small", "--model small-cnn"), ("--dry-r", "--dry-run"),
                                 ("est", "estimate"), ("help train", "help training"),
                                 ("-n 4 j", "-n 4 job.cfg")):
            with self.subTest(typed):
                self.assertEqual(self.completed(typed), completed)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    options, rest = parser.parse_known_args()
    BUILD = options.build
    unittest.main(argv=[sys.argv[0], *rest])
