#!/usr/bin/env python3
"""report.html and the files that other tools open, as written by the real command."""
import base64
import collections
import gzip
import importlib.util
import json
import pathlib
import pickle
import re
import shutil
import unittest

from emulated_job import BIN, JobTest
from perfetto_trace import read_trace

PIPELINE = ("--ipus-per-replica", 2, "--training.gradient-accumulation", 4)


def page_data(file):
    """Returns what the page reads."""
    text = pathlib.Path(file).read_text()
    return json.loads(gzip.decompress(base64.b64decode(re.search(r'id="data">([^<]*)<', text).group(1))))


def live_bytes(report, ipu, step):
    return sum(variable["bytes"] for variable in report["variables"]
               if variable["ipu"] == ipu and any(life["first"] <= step <= life["last"] for life in variable["lives"]))


HAS_PAGE = (BIN.parent / "share/report.html").exists() or (BIN.parent / "share/poprun-emu/report.html").exists()


@unittest.skipUnless(HAS_PAGE, "this build has no page: esbuild or npm was missing")
class Report(JobTest):
    def test_of_a_profile_holds_its_data_and_needs_no_network(self):
        job = self.run_job("profile", "--no-run", *PIPELINE)
        self.assertIn("report.html (for a browser)", job.stdout)
        page = (job.output_dir / "report.html").read_text()
        self.assertNotRegex(page, r'(src|href)="[^#]')
        self.assertIn("default-src 'none'", page)
        data = page_data(job.output_dir / "report.html")
        self.assertEqual(data["schema"], 1)
        written = json.loads((job.output_dir / "profile.json").read_text())
        shown = data["jobs"][0]["profile"]
        self.assertEqual(shown["report"]["variables"], written["report"]["variables"])
        self.assertEqual(shown["device"], written["device"])

    def test_of_a_run_holds_metrics_and_replicas(self):
        job = self.run_job("-n", 2, "--report", "--training.steps", 800)  # Long enough for a few heartbeats.
        self.assertIn(f"report in {job.output_dir}/report.html", job.stderr)
        shown = page_data(job.output_dir / "report.html")["jobs"][0]
        self.assertEqual(shown["metrics"]["step"], [str(step) for step in range(1, 801)])
        self.assertEqual(set(shown["replicas"]["replica"]), {"0", "1"})
        self.assertEqual(shown["profile"]["outcome"]["steps"], 800)

    def test_of_several_folders_shows_all_jobs(self):
        first = self.run_job("profile", "--no-run")
        kept = first.folder / "kept"
        shutil.copytree(first.output_dir, kept)
        second = self.run_job("-n", 2, "--overwrite")
        self.run_job("report", kept, second.output_dir, "--output-dir", kept.parent / "both", config=None)
        names = [job["name"] for job in page_data(kept.parent / "both/report.html")["jobs"]]
        self.assertEqual(names, ["kept", "out"])

    def test_refuses_what_it_cannot_show(self):
        job = self.run_job("report", config=None, code=64)
        self.assert_first_line(job, "report needs the output folder of a job")
        job = self.run_job("report", self.folder, config=None, code=65)
        self.assert_first_line(job, "contains no results of a job")
        job = self.run_job("--dry-run", "--report", code=64)
        self.assert_first_line(job, "--report cannot be combined with --dry-run", "profile --no-run writes report.html")

    def test_of_an_estimate_holds_the_text(self):
        job = self.run_job("estimate", "--report")
        self.assertEqual(page_data(job.output_dir / "report.html")["jobs"][0]["text"].strip(), job.stdout.strip())

    def test_of_a_job_that_does_not_fit_holds_remedies_that_work(self):
        job = self.run_job("profile", "--no-run", "--device.bytes-per-tile", 65536, code=86)
        report = page_data(job.output_dir / "report.html")["jobs"][0]["profile"]["report"]
        self.assertIn("does not fit", job.stdout)
        self.assertTrue(report["shortage"])
        best = report["remedies"][0]
        self.assertTrue(best["fits"], best)
        options = [word for option in best["options"] for word in f"--{option}".replace("----", "--").split(" ", 1)]
        answer = json.loads(self.run_job("--dry-run", "--format", "json", "--device.bytes-per-tile", 65536,
                                         *options).stdout)
        self.assertTrue(answer["fits"])
        self.assertEqual(answer["fullest_tile_bytes"], best["fullestTileBytes"])
        self.assertAlmostEqual(answer["device_step_seconds"], best["stepSeconds"], places=9)


class Contents(JobTest):
    """What the views sum up."""

    def test_of_tiles_sum_to_the_live_bytes_of_every_step(self):
        for options in ((), PIPELINE):
            report = self.run_job("profile", "--no-run", "--overwrite", *options).profile()["report"]
            for index, ipu in enumerate(report["ipus"]):
                liveness = ipu["liveness"]
                by_variable = collections.Counter()
                for one in ipu["classes"]:
                    tiles = sum(span["last"] - span["first"] + 1 for span in one["tiles"])
                    for variable, size in zip(one["variables"], one["bytes"]):
                        by_variable[variable] += tiles * size
                for variable, size in by_variable.items():
                    self.assertEqual(report["variables"][variable]["bytes"], size)
                for step, not_always in enumerate(liveness["notAlwaysLive"]):
                    self.assertEqual(live_bytes(report, index, step), liveness["alwaysLive"] + not_always)

    def test_of_a_tile_do_not_overlap_while_they_live(self):
        report = self.run_job("profile", "--no-run").profile()["report"]
        for one in report["ipus"][0]["classes"]:
            held = list(zip(one["variables"], one["offsets"], one["bytes"]))
            for step in {report["ipus"][0]["liveness"]["worstStep"], one["worstStep"], 0, report["steps"] - 1}:
                live = sorted((offset, size) for variable, offset, size in held
                              if any(life["first"] <= step <= life["last"]
                                     for life in report["variables"][variable]["lives"]))
                for (offset, size), (following, _) in zip(live, live[1:]):
                    self.assertLessEqual(offset + size, following)
                self.assertLessEqual(max(offset + size for offset, size in live), one["peak"])

    def test_of_the_timeline_sum_to_the_step(self):
        profile = self.run_job("profile", "--no-run", *PIPELINE).profile()
        timeline = profile["report"]["timeline"]
        sums = collections.Counter()
        for lane, doing, length, count in zip(timeline["lane"], timeline["doing"], timeline["length"],
                                              timeline["count"]):
            if lane == "LANE_TILES":
                sums[doing] += length * count
        cost = profile["device"]["stepCost"]
        self.assertEqual(sums["DOING_COMPUTE"], cost["computeCycles"])
        self.assertEqual(sums["DOING_EXCHANGE"], cost["exchangeCycles"])
        self.assertEqual(sums["DOING_SYNC"], cost["syncCycles"])
        self.assertEqual(sums["DOING_LINK"], cost["linkCycles"])
        self.assertEqual(sums["DOING_HOST"], cost["hostCycles"])
        self.assertEqual(timeline["leftOut"], 0)
        self.assertEqual(sum(timeline["busy"]), sum(sums.values()))
        self.assertTrue(profile["report"]["schedule"]["sequences"])

    def test_say_which_steps_use_a_variable(self):
        report = self.run_job("profile", "--no-run").profile()["report"]
        rows = {row["step"]: row for row in report["operators"]}
        weight = next(v for v in report["variables"] if v["name"] == "conv2.weight")
        self.assertIn("conv2d", {rows[step]["operation"] for step in weight["readAt"] if step in rows})
        self.assertIn("momentum", {rows[step]["operation"] for step in weight["writtenAt"] if step in rows})


class Traces(JobTest):
    def test_of_perfetto_is_monotone_balanced_and_exact(self):
        job = self.run_job("profile", "--no-run", *PIPELINE)
        slices = read_trace(job.output_dir / "trace.pftrace")
        cycles = sum(slice.values.get("cycles", 0) for slice in slices)
        cost = job.profile()["device"]["stepCost"]
        kinds = ("computeCycles", "exchangeCycles", "syncCycles", "linkCycles", "hostCycles", "streamingCycles",
                 "backgroundCycles", "ioCycles")
        self.assertEqual(cycles, sum(cost[kind] for kind in kinds))
        self.assertAlmostEqual(max(slice.end for slice in slices) / 1e9, job.profile()["report"]["timeline"]["cycles"]
                               / job.profile()["report"]["timeline"]["clockHz"], places=8)

    def test_of_memory_are_read_by_pytorchs_script(self):
        job = self.run_job("profile", "--no-run", *PIPELINE)
        report = job.profile()["report"]
        for file, over_tiles in (("memory.pickle", True), ("memory-tiles.pickle", False)):
            snapshot = pickle.loads((job.output_dir / file).read_bytes())
            for index, ipu in enumerate(report["ipus"]):
                liveness = ipu["liveness"] if over_tiles else ipu["fullestTile"]["liveness"]
                sizes, at = {}, 0
                for event in [*snapshot["device_traces"][index], {"time_us": report["steps"], "action": "end"}]:
                    for step in range(at, event["time_us"]):
                        self.assertEqual(sum(sizes.values()), liveness["alwaysLive"] + liveness["notAlwaysLive"][step])
                    at = event["time_us"]
                    if event["action"] == "alloc":
                        self.assertNotIn(event["addr"], sizes)
                        sizes[event["addr"]] = event["size"]
                    elif event["action"] == "free_completed":
                        self.assertEqual(sizes.pop(event["addr"]), event["size"])
                segment = snapshot["segments"][index]
                self.assertEqual(sum(block["size"] for block in segment["blocks"]), segment["total_size"])
                self.assertEqual(segment["active_size"],
                                 liveness["alwaysLive"] + liveness["notAlwaysLive"][liveness["worstStep"]])
        script = pathlib.Path("/usr/lib/python3/dist-packages/torch/cuda/_memory_viz.py")
        if not script.exists():
            self.skipTest("Debian's python3-torch is not installed")
        spec = importlib.util.spec_from_file_location("memory_viz", script)
        memory_viz = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(memory_viz)
        segments = pickle.loads((job.output_dir / "memory.pickle").read_bytes())["segments"]
        self.assertEqual(memory_viz.stats(segments)["segments"], 2)
        self.assertIn("conv1", memory_viz.memory(segments, format_flamegraph=str))


BERT = """
[model]
name = bert-base
layers = 4
hidden = 128
heads = 2
vocabulary = 1024
[data]
source = synthetic:tokens,vocabulary=1024,items=1024
task = masked-lm
sequence-length = 64
micro-batch-size = 4
[training]
steps = 2
optimizer = adam
gradient-accumulation = 2
evaluate = false
"""


class Questions(JobTest):
    """The 17 questions that PyTorch's pull request 125323 says a memory tool must answer, in its order."""

    def answer(self, *options, config=BERT):
        job = self.start("--dry-run", "--format", "json", *options, config=config)
        self.assertIn(job.wait(), (0, 86), job.stderr)
        return json.loads(job.stdout)

    def peak(self, *options, **keywords):
        return self.answer(*options, **keywords)["peak_bytes"]

    def test_1_what_is_the_expected_peak(self):
        peak = self.peak()
        profile = self.run_job("profile", config=BERT).profile()
        self.assertEqual(peak, profile["report"]["ipus"][0]["peak"])
        self.assertGreater(profile["measuredPeakBytes"][0], 0)

    def test_2_what_does_another_split_change(self):
        one, two = self.peak(), self.peak("--ipus-per-replica", 2)
        self.assertLess(two, one)

    def test_3_and_4_what_is_the_largest_batch_and_the_longest_sequence(self):
        small = ("--device.bytes-per-tile", 163840)
        for option, values in (("--data.micro-batch-size", (1, 4, 128)), ("--data.sequence-length", (16, 64, 512))):
            fits = [self.answer(*small, option, value)["fits"] for value in values]
            self.assertEqual(fits, sorted(fits, reverse=True), option)
            self.assertTrue(fits[0] and not fits[-1], (option, fits))

    def test_5_12_and_13_how_do_the_number_of_replicas_and_the_group_change_the_peak(self):
        shard = ("--memory.replicated-tensor-sharding", "optimizer-state")
        two, eight = (self.peak("-n", n, *shard) for n in (2, 8))
        self.assertLess(eight, two)
        grouped = self.peak("-n", 8, *shard, "--memory.sharding-group", 2)
        self.assertEqual(grouped, two)

    def test_6_what_does_an_optimiser_off_the_chip_save(self):
        self.assertLess(self.peak("--memory.optimizer-state", "off-chip"), self.peak())

    def test_7_8_and_9_how_do_policies_of_recomputation_compare(self):
        batch = ("--data.micro-batch-size", 32, "--pipeline.recomputation")
        none, layer = (self.peak(*batch, mode) for mode in ("none", "layer"))
        some = self.peak(*batch, "layer", "--pipeline.recomputation-checkpoints", r"encoder\.layer\.0")
        self.assertLess(layer, none)
        self.assertLessEqual(layer, some)
        self.assertLessEqual(some, none)

    def test_10_and_11_what_do_types_change(self):
        half = self.peak("--model.precision", "half")
        self.assertLess(half, self.peak())
        self.assertGreater(self.peak("--model.precision", "half", "--training.accumulator-precision", "float"), half)

    def test_14_what_do_sharded_weights_save(self):
        shard = ("-n", 4, "--model.hidden", 512, "--memory.replicated-tensor-sharding")
        state, weights = (self.peak(*shard, kinds) for kinds in ("optimizer-state", "optimizer-state,weights"))
        self.assertLess(weights, state)

    def test_15_and_16_which_module_holds_most(self):
        report = self.run_job("profile", "--no-run", config=BERT).profile()["report"]
        for category in ("activations", "weights"):
            by_layer = collections.Counter()
            for variable in report["variables"]:
                if variable["category"] == category:
                    by_layer[variable["name"].split(".")[0]] += variable["bytes"]
            self.assertGreater(by_layer.most_common(1)[0][1], 0, category)

    def test_17_does_recomputation_release_memory(self):
        def held(mode):
            """Returns the most bytes of activations that live at one step."""
            report = self.run_job("profile", "--no-run", "--overwrite", "--data.micro-batch-size", 32,
                                  "--pipeline.recomputation", mode, config=BERT).profile()["report"]
            return max(sum(variable["bytes"] for variable in report["variables"]
                           if variable["category"] == "activations"
                           and any(life["first"] <= step <= life["last"] for life in variable["lives"]))
                       for step in range(report["steps"]))
        self.assertLess(held("layer"), held("none"))


if __name__ == "__main__":
    unittest.main()
