#!/usr/bin/env python3
"""Runs deploy/setup on a fake machine; checks the packages that it installs, its use of sudo, and its messages."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SETUP = pathlib.Path(__file__).resolve().parents[3] / "deploy/setup"

# apt-get and sudo record their calls. The file `installed` lists the packages; apt-get install adds its arguments.
TOOLS = {
    "dpkg-query": """
for package in "${@:3}"; do
  grep -qx "$package" installed && echo "installed $package" || missing=1
done
exit "${missing:-0}"
""",
    "apt-get": """
echo "apt-get $*" >>calls
if [[ " $* " == *" update "* ]]; then touch fetched; exit; fi
echo 'noise of apt-get'
[[ -e stale && ! -e fetched ]] && exit 100
[[ -e broken ]] && { echo 'E: disk full'; exit 100; }
printf '%s\\n' "${@##-*}" >>installed
""",
    "id": "cat uid",
    "sudo": """
echo "sudo $1" >>calls
[[ -e sudo-works ]] || exit 1
shift
exec "$@"
""",
}
INSTALL = "apt-get -y -q -o DPkg::Lock::Timeout=300 install --no-install-recommends"


class Setup(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.machine = pathlib.Path(temporary.name)
        (self.machine / "bin").mkdir()
        for name, body in TOOLS.items():
            tool = self.machine / "bin" / name
            tool.write_text(f"#!/bin/bash\ncd '{self.machine}'\n{body}")
            tool.chmod(0o755)
        (self.machine / "uid").write_text("0\n")
        (self.machine / "installed").write_text("\n".join(self.wanted()) + "\n")

    def wanted(self):
        """Returns the packages that setup lists, read from the script itself."""
        lines = SETUP.read_text().split("packages=(\n")[1].split("\n)")[0].splitlines()
        return [word for line in lines if not line.strip().startswith("#") for word in line.split()]

    def uninstall(self, *packages):
        left = [package for package in self.wanted() if package not in packages]
        (self.machine / "installed").write_text("\n".join(left) + "\n")

    def run_setup(self):
        environment = {**os.environ, "PATH": f"{self.machine}/bin:{os.environ['PATH']}", "TMPDIR": str(self.machine)}
        return subprocess.run([SETUP], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=30)

    def calls(self):
        path = self.machine / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def test_does_and_says_nothing_where_all_is_there(self):
        done = self.run_setup()
        self.assertEqual((done.returncode, done.stdout, done.stderr, self.calls()), (0, "", "", []))

    def test_installs_all_that_is_missing_at_once_and_quietly(self):
        self.uninstall("g++", "cmake", "dataset-fashion-mnist")
        done = self.run_setup()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.calls(), [f"{INSTALL} g++ cmake dataset-fashion-mnist"])
        self.assertNotIn("noise", done.stderr)
        self.assertEqual(self.run_setup().stderr, "")

    def test_fetches_package_lists_only_where_the_ones_at_hand_do_not_do(self):
        self.uninstall("procps")
        (self.machine / "stale").touch()
        done = self.run_setup()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.calls(), [f"{INSTALL} procps", "apt-get -y -q -o DPkg::Lock::Timeout=300 update",
                                        f"{INSTALL} procps"])

    def test_shows_what_apt_said_when_it_fails(self):
        self.uninstall("procps")
        (self.machine / "broken").touch()
        done = self.run_setup()
        self.assertEqual(done.returncode, 1)
        self.assertIn("E: disk full", done.stderr)

    def test_uses_sudo_without_root(self):
        self.uninstall("procps")
        (self.machine / "uid").write_text("1000\n")
        (self.machine / "sudo-works").touch()
        done = self.run_setup()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.calls(), ["sudo -n", "sudo -n", f"{INSTALL} procps"])

    def test_prints_the_one_apt_line_without_root_and_sudo(self):
        self.uninstall("procps", "ccache")
        (self.machine / "uid").write_text("1000\n")
        done = self.run_setup()
        self.assertEqual(done.returncode, 1)
        self.assertEqual(len(done.stderr.splitlines()), 1)
        self.assertIn("apt-get update && apt-get install -y --no-install-recommends ccache procps", done.stderr)
        self.assertNotIn("apt-get", "".join(self.calls()))


if __name__ == "__main__":
    if subprocess.run("source /etc/os-release && [[ $ID $VERSION_ID == 'debian 12' ]]", shell=True,
                      executable="/bin/bash", stderr=subprocess.DEVNULL).returncode != 0:
        print("setup_test: skipped, deploy/setup is for Debian 12 and this is a different system")
        sys.exit(77)
    unittest.main()
