#!/usr/bin/env python3
"""Out of memory, through the real command: the report, remedies with the stated effect, and running anyway."""
import re
import time
import unittest

from emulated_job import ROOT, JobTest

# small-cnn needs about 10 MiB: a lot for 24 tiles.
SMALL = ("--device.tiles", 24, "--device.bytes-per-tile", 480_000)
LARGE = ("--device.tiles", 24, "--device.bytes-per-tile", 4 << 20)

CNN = """
[model]
name = small-cnn
[data]
source = synthetic:images=1x28x28,classes=10,items=256
micro-batch-size = 32
[training]
steps = 3
evaluate = false
"""

GPT2 = f"""
[model]
name = gpt2
layers = 4
hidden = 64
heads = 4
vocabulary = 257
sequence-length = 32
[data]
source = text:{ROOT}/ARCHITECTURE.md
sequence-length = 32
micro-batch-size = 8
[training]
steps = 2
optimizer = adamw
evaluate = false
"""

# Six layers of 12.6 million parameters on one IPU, with two states of 4 B per parameter, take 605 MB of 940 MB.
HALF_OF_BERT_LARGE = """
[model]
name = bert-large
layers = 12
precision = half
[data]
source = synthetic:tokens,vocabulary=30522
task = masked-lm
sequence-length = 128
micro-batch-size = 2
[training]
steps = 2
optimizer = lamb
gradient-accumulation = 16
evaluate = false
"""

ROW = re.compile(r"^ +([\d,]+) B +(fits|[\d,]+ B) +(\S+ \S+) +(?:[+-]\d+ %  (.+)|as it is)$")


def number(text):
    return int(text.replace(",", ""))


def remedies_of(text):
    """Returns the rows of the table of remedies: options (None: the unchanged job), bytes, whether it fits, device
    time."""
    lines = text.splitlines()
    begin = lines.index("remedies, each compiled:") + 2
    rows = []
    for line in lines[begin:]:
        row = ROW.match(line)
        if not row:
            break
        rows.append((row[4], number(row[1]), row[2] == "fits", row[3]))
    return rows


def arguments_of(options):
    """Converts remedies, as they are named, to arguments for a command line: "model.precision half and
    --ipus-per-replica 2"."""
    arguments = []
    for option in re.split(", | and ", options):
        name, value = option.split(" ", 1)
        arguments += [name if name.startswith("--") else f"--{name}", value]
    return arguments


def fullest_tile(plan):
    return max(number(peak) for peak in re.findall(r"\n  tiles +tile \d+ is the fullest, ([\d,]+) of ", plan))


def device_step(plan):
    return re.search(r"\ndevice step    (\S+ \S+), ", plan)[1]


class Report(JobTest):
    def test_names_tile_and_step_and_fits_a_screen(self):
        job = self.run_job(*SMALL, config=CNN, code=86)
        self.assert_first_line(job, "out of memory: model small-cnn needs ", " B on tile ", " of IPU 0, ",
                               " B more than the 480,000 B of a tile, at step ", " of the Program (",
                               "; it fits with ")
        text = job.stderr[job.stderr.index("out of memory: "):]
        first, table = text.split("\n", 1)
        needs, lacks = map(number, re.match(r".* needs ([\d,]+) B on .*, ([\d,]+) B more ", first).groups())
        self.assertEqual(needs - lacks, 480_000)
        screen = table[:table.index("remedies, each compiled:")].splitlines()
        self.assertLessEqual(len(screen) + -(-len(first) // 80), 24, job.stderr)
        self.assertLessEqual(max(map(len, screen)), 80)
        # The listed bytes add up: kinds to the two halves, and halves and gaps to the tile.
        sums, kinds = [], {}
        for line in screen:
            if row := re.match(r"^( +)(\S.*?) +([\d,]+) B ", line):
                if row[1] == "  ":
                    sums.append(number(row[3]))
                    kinds[len(sums)] = 0
                else:
                    kinds[len(sums)] += number(row[3])
        always, not_always, gaps, needed = sums
        self.assertEqual(needed, needs)
        self.assertEqual(always + not_always + gaps, needed)
        self.assertEqual([kinds[1], kinds[2]], [always, not_always])
        self.assertRegex(table, r"\nmostly .* \(\d+ %\)")
        self.assertRegex(table, r"\nIPU 0 as a whole: \S+ \S+ peak of \S+ \S+: (it would fit|too much even) if spread ")

    def test_of_several_ipus_has_a_line_for_each(self):
        job = self.run_job("--device.tiles", 24, "--device.bytes-per-tile", 100_000, "--ipus-per-replica", 2,
                           config=GPT2, code=86)
        self.assertRegex(job.stderr, r"\nthe fullest tile of each IPU:\n"
                                     r"  IPU 0 +[\d,]+ of 100,000 B.*\n"
                                     r"  IPU 1 +[\d,]+ of 100,000 B.*\n")


class Remedies(JobTest):
    def compare_with_their_own_compiles(self, *arguments, config, most=None):
        """Compiles the job as it is and with each remedy, or only with the first `most` remedies: a command that does
        not fit searches for remedies again, which takes long."""
        job = self.run_job(*arguments, "--dry-run", config=config, code=86)
        rows = remedies_of(job.stderr)
        self.assertGreater(len(rows), 2, job.stderr)
        for options, predicted, fits, time in rows[1:most + 1] if most else rows:
            with self.subTest(options=options):
                own = self.run_job(*arguments, "--dry-run", *arguments_of(options or "--verbose 0"),
                                   config=config, code=0 if fits else 86)
                self.assertEqual(fullest_tile(own.stdout), predicted)
                self.assertEqual(device_step(own.stdout), time)
        return job, rows

    def test_need_what_the_table_says(self):
        job, rows = self.compare_with_their_own_compiles(*SMALL, config=CNN)
        self.assertTrue(any(fits for _, _, fits, _ in rows), job.stderr)
        options, _, fits, _ = rows[1]
        self.assertTrue(fits, "those that fit come first")
        self.assert_first_line(job, "out of memory", f"it fits with {options} (")

    def test_are_combined_where_none_fits_alone(self):
        job, rows = self.compare_with_their_own_compiles("--device.tiles", 24, "--device.bytes-per-tile", 150_000,
                                                         config=GPT2, most=3)
        (_, together), *alone = [(fits, options) for options, _, fits, _ in rows[1:]]
        self.assertFalse(any(fits for fits, _ in alone), job.stderr)
        self.assert_first_line(job, "out of memory", f"it fits with {together} together (")

    def test_of_bert_large_do_not_hide_that_its_optimiser_state_is_too_large(self):
        # Enough time for all remedies, even on a slow machine.
        job, rows = self.compare_with_their_own_compiles("--ipus-per-replica", 2, "--pipeline.recomputation", "layer",
                                                         "--collective-timeout", 440, config=HALF_OF_BERT_LARGE, most=2)
        self.assertIn("\nmostly optimiser state (", job.stderr)
        first = rows[1]
        self.assertTrue(first[2], job.stderr)
        self.assertIn("--ipus-per-replica ", first[0])

    def test_are_searched_for_longer_than_replicas_wait_for_each_other(self):
        begin = time.monotonic()
        job = self.run_job("-n", 3, "--device.tiles", 24, "--device.bytes-per-tile", 150_000, "--collective-timeout", 2,
                           config=GPT2, code=86)
        self.assert_first_line(job, "out of memory: model gpt2 needs ", "it fits with ")
        self.assertGreater(time.monotonic() - begin, 2, "the search is too short to show that")

    def test_that_fits_makes_the_job_run(self):
        job = self.run_job(*SMALL, config=CNN, code=86)
        options = next(options for options, _, fits, _ in remedies_of(job.stderr) if fits)
        self.run_job(*SMALL, *arguments_of(options), config=CNN)


class Allowed(JobTest):
    def test_runs_all_the_same_and_says_so_everywhere(self):
        for ways in ((), ("--memory.tiles", "exact")):
            with self.subTest(ways=ways):
                large = self.run_job("-n", 2, *LARGE, *ways, config=CNN)
                small = self.run_job("-n", 2, *SMALL, *ways, "--allow-out-of-memory", config=CNN)
                self.assertEqual(small.weights_hash(), large.weights_hash())
                self.assertEqual([row["loss"] for row in small.metrics()], [row["loss"] for row in large.metrics()])
                note = r"out of memory: model small-cnn needs .*; the job runs anyway \(--allow-out-of-memory\)"
                self.assertRegex(small.stderr, r"note: " + note)
                self.assertRegex(small.stdout, r"\nout of memory  the job does not fit, but ran anyway ")
                self.assertRegex(small.stdout, r"\n  tiles .* of 480,000 B, [\d,]+ B over; ")
                profile = small.profile()
                self.assertTrue(profile["outOfMemory"])
                [allowed] = [line for line in profile["notes"] if line["code"] == "memory.allowed"]
                self.assertRegex(allowed["text"], note)
                facts = {fact["name"]: int(fact["number"]) for fact in allowed["facts"]}
                self.assertEqual(facts["had"], 480_000)
                self.assertGreater(facts["needed"], facts["had"])
                self.assertFalse(large.profile()["outOfMemory"])
                self.assertNotIn("out of memory", large.stdout + large.stderr)

    def test_on_several_ipus_changes_no_result(self):
        ways = ("--ipus-per-replica", 2, "--training.gradient-accumulation", 3)
        large = self.run_job(*LARGE, *ways, config=GPT2)
        small = self.run_job("--device.tiles", 24, "--device.bytes-per-tile", 50_000, *ways, "--allow-out-of-memory",
                             config=GPT2)
        self.assertEqual(small.weights_hash(), large.weights_hash())

    def test_dry_run_has_the_report_and_ends_well(self):
        refused = self.run_job(*SMALL, "--dry-run", config=CNN, code=86)
        allowed = self.run_job(*SMALL, "--dry-run", "--allow-out-of-memory", config=CNN)
        report = refused.stderr[refused.stderr.index("out of memory: "):refused.stderr.index("the first as a command:")]
        self.assertIn("# " + report, allowed.stdout)
        self.assertRegex(allowed.stdout, r"\nnote +out of memory: .*; the job runs anyway ")
        self.assertIn("\nsteps          3 of 32 samples", allowed.stdout)

    def test_says_nothing_where_the_job_fits(self):
        job = self.run_job(*LARGE, "--allow-out-of-memory", config=CNN)
        self.assertNotIn("out of memory", job.stdout + job.stderr)
        self.assertFalse(job.profile()["outOfMemory"])


if __name__ == "__main__":
    unittest.main()
