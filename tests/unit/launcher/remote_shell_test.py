#!/usr/bin/env python3
"""launcher/mpi/remote_shell.sh: what the remote shell is called with, and what the daemon finds in its environment."""
import os
import pathlib
import subprocess
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "launcher/mpi/remote_shell.sh"
TOKEN = "it's $HOME `secret` \"\\"
# As mpirun gives them: options, the host, settings of paths with the daemon behind, quoted arguments.
COMMAND = ["-F", "/config", "node1", "  PATH=/usr/bin:$PATH ; export PATH ;   {orted}", "--daemonize", "-mca", "ess",
           '"env"', "-mca", "orte_node_regex", '"node[1:0-1]@0(2)"', "-mca", "plm_rsh_agent",
           '"/opt/bin/poprun-emu-remote-shell"']


class RemoteShell(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        # Plays ssh: what follows the host is a line for a shell, in an environment of its own.
        self.program("ssh-like", 'echo "$0 $1 $2" > "$(dirname "$0")/called"\n'
                                 'while [ "$1" != node1 ]; do shift; done; shift\nexec env -i PATH="$PATH" sh -c "$*"\n')
        self.orted = self.program("orted", 'printf "%s\\n" "$POPRUN_EMU_TOKEN" "$POPRUN_EMU_TLS" "$@"\n')

    def program(self, name, text):
        path = self.folder / name
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o755)
        return path

    def run_script(self, shell):
        command = [word.replace("{orted}", str(self.orted)) for word in COMMAND]
        return subprocess.run([SCRIPT, *command], capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL,
                              env={"PATH": os.environ["PATH"], "POPRUN_EMU_TOKEN": TOKEN, "POPRUN_EMU_TLS": "token",
                                   "POPRUN_EMU_REMOTE_SHELL": str(shell)})

    def test_gives_the_daemon_the_secrets_and_leaves_its_arguments(self):
        done = self.run_script(self.folder / "ssh-like")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.splitlines(),
                         [TOKEN, "token", "-mca", "ess", "env", "-mca", "orte_node_regex", "node[1:0-1]@0(2)", "-mca",
                          "plm_rsh_agent", str(self.folder / "ssh-like")])

    def test_takes_the_first_shell_there_is_with_its_options(self):
        done = self.run_script(f"/nowhere/ssh : {self.folder}/ssh-like -q : rsh")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((self.folder / "called").read_text(), f"{self.folder}/ssh-like -q -F\n")

    def test_says_that_there_is_none(self):
        done = self.run_script("/nowhere/ssh : /nowhere/rsh")
        self.assertEqual(done.returncode, 127)
        self.assertEqual(done.stderr, "poprun-emu: none of these remote shells is here: /nowhere/ssh : /nowhere/rsh\n")

    def test_names_a_shell_that_does_not_hand_its_input_on(self):
        silent = self.program("silent", f'exec "{self.folder}/ssh-like" "$@" < /dev/null\n')
        done = self.run_script(silent)
        self.assertEqual(done.returncode, 127)
        self.assertEqual(done.stdout, "")
        self.assertRegex(done.stderr, r"\Apoprun-emu: on \S+ nothing came on standard input; .*\n\Z")

    def test_shows_no_secret_on_a_command_line(self):
        self.program("ssh-like", 'echo "$*" >&2\n')
        done = self.run_script(self.folder / "ssh-like")
        self.assertIn("orted", done.stderr)
        self.assertNotIn("secret` ", done.stderr)


if __name__ == "__main__":
    unittest.main()
