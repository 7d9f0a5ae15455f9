#!/usr/bin/env python3
"""Tests launcher/mpi/remote_shell.sh: the arguments of the remote shell, and the environment of the daemon."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[4] / "launcher/mpi/remote_shell.sh"
TOKEN = "it's $HOME `secret` \"\\"
# The arguments, as mpirun passes them: options, the host, path settings followed by the daemon, quoted arguments.
COMMAND = ["-F", "/config", "node1", "  PATH=/usr/bin:$PATH ; export PATH ;   {orted}", "--daemonize", "-mca", "ess",
           '"env"', "-mca", "orte_node_regex", '"node[1:0-1]@0(2)"', "-mca", "plm_rsh_agent",
           '"/opt/bin/poprun-emu-remote-shell"', "-mca", "orte_tmpdir_base", '"{launchers}"']


def comes_true(condition):
    for _ in range(1000):
        if condition():
            return True
        time.sleep(0.01)
    return False


class RemoteShell(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        # Stands in for ssh: runs the words after the host as a shell command, in a separate environment.
        self.program("ssh-like", 'echo "$0 $1 $2" > "$(dirname "$0")/called"\n'
                                 'while [ "$1" != node1 ]; do shift; done; shift\nexec env -i PATH="$PATH" '
                     f'TMPDIR="{self.folder}/tmp" sh -c "$*"\n')
        (self.folder / "tmp").mkdir()
        self.orted = self.program("orted", 'printf "%s\\n" "$POPRUN_EMU_TOKEN" "$POPRUN_EMU_TLS" "$TMPDIR" "$@"\n')

    def program(self, name, text):
        path = self.folder / name
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o755)
        return path

    def run_script(self, shell, launchers_base=None, path="PATH=/usr/bin:$PATH"):
        """`launchers_base` is the value of Open MPI's own variable, which mpirun turns into an argument."""
        command = [word.replace("PATH=/usr/bin:$PATH", path).replace("{orted}", str(self.orted))
                   .replace("{launchers}", str(launchers_base))
                   for word in (COMMAND if launchers_base else COMMAND[:-3])]
        return subprocess.run([SCRIPT, *command], capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL,
                              env={"PATH": os.environ["PATH"], "POPRUN_EMU_TOKEN": TOKEN, "POPRUN_EMU_TLS": "token",
                                   "POPRUN_EMU_REMOTE_SHELL": str(shell)})

    def test_gives_the_daemon_the_secrets_and_leaves_its_arguments(self):
        done = self.run_script(self.folder / "ssh-like")
        self.assertEqual(done.returncode, 0, done.stderr)
        words = done.stdout.splitlines()
        folder = words.pop(2)
        self.assertEqual(words,
                         [TOKEN, "token", "-mca", "ess", "env", "-mca", "orte_node_regex", "node[1:0-1]@0(2)", "-mca",
                          "plm_rsh_agent", str(self.folder / "ssh-like")])
        self.assertRegex(folder, rf"^{self.folder}/tmp/poprun-emu\.{os.geteuid()}\.\w+$")

    def test_gives_the_daemon_a_folder_that_only_a_crash_leaves(self):
        for crashes in (False, True):
            with self.subTest(crashes=crashes):
                self.program("orted", 'flock -n "$TMPDIR" true; echo $?; mkdir "$TMPDIR/session"; ls -d "$TMPDIR"\n'
                                      + ("kill -9 $$\n" if crashes else 'rmdir "$TMPDIR/session"\nexit 3\n'))
                done = self.run_script(self.folder / "ssh-like")
                self.assertEqual(done.returncode, 137 if crashes else 3, done.stderr)
                locked, folder = done.stdout.splitlines()
                self.assertEqual(locked, "1")
                self.assertTrue(comes_true(lambda: pathlib.Path(folder).is_dir() == crashes))

    def test_makes_the_folder_beside_the_launchers(self):
        launchers = self.folder / "base" / f"poprun-emu.{os.geteuid()}.abcdef"
        done = self.run_script(self.folder / "ssh-like", launchers)
        self.assertEqual(done.returncode, 0, done.stderr)
        words = done.stdout.splitlines()
        self.assertEqual(words[-2:], ["orte_tmpdir_base", words[2]])
        self.assertEqual(pathlib.Path(words[2]).parent, launchers.parent)

    def test_makes_another_folder_if_a_different_job_removes_the_first(self):
        self.program("mktemp", f'folder=$(/usr/bin/mktemp "$@") || exit\n'
                               f'[ -e "{self.folder}/removed" ] || {{ touch "{self.folder}/removed"; rmdir "$folder"; }}\n'
                               'echo "$folder"\n')
        self.program("orted", 'flock -n "$TMPDIR" true; echo $?\n')
        done = self.run_script(self.folder / "ssh-like", path=f"PATH={self.folder}:$PATH")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, "1\n", "the daemon has a folder, and its lock")
        self.assertTrue((self.folder / "removed").exists())
        self.assertEqual(done.stderr, "")

    def test_says_that_there_can_be_no_folder(self):
        (self.folder / "tmp").rmdir()
        (self.folder / "tmp").write_text("")
        done = self.run_script(self.folder / "ssh-like")
        self.assertEqual(done.returncode, 127)
        self.assertIn(f"{self.folder}/tmp", done.stderr)

    def test_takes_the_first_shell_there_is_with_its_options(self):
        done = self.run_script(f"/nowhere/ssh : {self.folder}/ssh-like -q : rsh")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((self.folder / "called").read_text(), f"{self.folder}/ssh-like -q -F\n")

    def test_says_that_there_is_none(self):
        done = self.run_script("/nowhere/ssh : /nowhere/rsh")
        self.assertEqual(done.returncode, 127)
        self.assertEqual(done.stderr, "poprun-emu: none of these remote shells is installed on this host: "
                                      "/nowhere/ssh : /nowhere/rsh\n")

    def test_names_a_shell_that_does_not_hand_its_input_on(self):
        silent = self.program("silent", f'exec "{self.folder}/ssh-like" "$@" < /dev/null\n')
        done = self.run_script(silent)
        self.assertEqual(done.returncode, 127)
        self.assertEqual(done.stdout, "")
        self.assertRegex(done.stderr, r"\Apoprun-emu: no start on host node1: nothing arrived on standard input, .*\n\Z")

    def test_names_the_host_whose_start_file_reads_the_secrets(self):
        done = self.run_script(self.program("reads", f'exec "{self.folder}/ssh-like" "$1" "$2" node1 \'read x;\' "$4"\n'))
        self.assertEqual(done.returncode, 127)
        self.assertRegex(done.stderr, r"\Apoprun-emu: no start on host node1: nothing arrived on standard input, .*bashrc")

    def test_names_the_host_whose_shell_ends_before_the_daemon(self):
        for ends, said in (("exit 0", "it printed nothing; a startup file there, such as ~/.bashrc, may end or replace"),
                           ("echo 'sh: command not found' >&2; exit 127", "sh: command not found")):
            with self.subTest(ends):
                done = self.run_script(self.program("ends", ends + "\n"))
                last = done.stderr.splitlines()[-1]
                self.assertTrue(last.startswith(
                    f"poprun-emu: no start on host node1: the remote shell ({self.folder}/ends) ended before it started "
                    f"Open MPI's daemon: {said}"), done.stderr)

    def test_names_the_host_whose_shell_breaks_off_after_the_daemons_start(self):
        error = "[node1:00010] [[INVALID],INVALID] ORTE_ERROR_LOG: Error in file orted_main.c"
        for said, end, broke_off in (("Broken pipe", "exit 255", 255), ("Killed", "kill -9 $$", 137), ("", "exit 0", None),
                                     ("", "exit 3", None), (error, "exit 255", None)):
            with self.subTest(end=end, said=said):
                self.program("orted", f"echo '{said}' >&2; {end}\n")
                done = self.run_script(self.folder / "ssh-like")
                named = (f"poprun-emu: no start on host node1: the remote shell ({self.folder}/ssh-like) ended with code "
                         f"{broke_off} after it started Open MPI's daemon: {said}")
                self.assertEqual([line for line in done.stderr.splitlines() if "no start" in line],
                                 [named] if broke_off else [])

    def test_blames_no_host_whose_shell_mpirun_ends(self):
        """If one remote shell fails, mpirun kills those of the other hosts."""
        lives = self.folder / "lives"
        shell = self.program("lives-on", f'echo $$ > "{lives}.new"; mv "{lives}.new" "{lives}"; exec sleep 60\n')
        script = subprocess.Popen([SCRIPT, "node1", "orted"], stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL,
                                  env={"PATH": os.environ["PATH"], "POPRUN_EMU_REMOTE_SHELL": str(shell)})
        self.assertTrue(comes_true(lives.exists))
        script.kill()
        self.assertEqual(script.communicate(timeout=20)[1], "")
        self.assertTrue(comes_true(lambda: not pathlib.Path("/proc", lives.read_text().strip()).exists()))

    def test_names_the_host_without_a_tool_or_without_open_mpi(self):
        tools = self.folder / "tools"
        tools.mkdir()
        for tool in ("sh", "env", "id", "mkdir", "rmdir", "flock", "dirname"):
            (tools / tool).symlink_to(shutil.which(tool))
        shell = self.program("bare", f'while [ "$1" != node1 ]; do shift; done; shift\nexec env -i PATH="{tools}" sh -c "$*"\n')
        done = self.run_script(shell, path=":")
        self.assertIn("no start on host node1: there is no program mktemp in the PATH of non-interactive shells", done.stderr)
        self.orted.unlink()
        done = self.run_script(shell, path=":")
        self.assertIn("no start on host node1: there is no Open MPI in the PATH of non-interactive shells", done.stderr)

    def test_hands_on_what_the_host_says_with_its_name(self):
        self.program("orted", 'echo "a warning" >&2; exit 4\n')
        done = self.run_script(self.folder / "ssh-like")
        self.assertEqual((done.returncode, done.stderr), (4, "poprun-emu: host node1 says: a warning\n"))

    def test_refuses_the_daemon_of_open_mpi_5(self):
        done = subprocess.run([SCRIPT, "node1", "prted", "--prtemca", "ess", '"env"'], capture_output=True, text=True)
        self.assertEqual(done.returncode, 127)
        self.assertRegex(done.stderr, r"no start on host node1: mpirun is from Open MPI 5 .* needs Open MPI 4\.1")

    def test_gives_srun_no_secret_but_on_standard_input(self):
        srun = self.program("srun", 'for name in POPRUN_EMU_TOKEN POPRUN_EMU_TLS; do ! printenv $name >&2; done; echo "$*" >&2\n'
                                    'while [ "$1" != node1 ]; do shift; done; shift; exec "$@"\n')
        done = self.run_script(f"{srun} --nodes=1 --nodelist")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("host node1 says: --nodes=1 --nodelist node1 sh -c ", done.stderr)
        self.assertNotIn("secret` ", done.stderr)
        self.assertEqual(done.stdout.splitlines()[:2], [TOKEN, "token"])

    def test_shows_no_secret_on_a_command_line(self):
        self.program("ssh-like", 'echo "$*" >&2\n')
        done = self.run_script(self.folder / "ssh-like")
        self.assertIn("orted", done.stderr)
        self.assertNotIn("secret` ", done.stderr)


if __name__ == "__main__":
    unittest.main()
