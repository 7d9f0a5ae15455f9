#!/usr/bin/env python3
"""poprun-emu profile --chakra, replayed: no simulator is needed to see that every exchange meets its peers."""
import collections
import json
import os
import unittest

from emulated_job import QUICK, JobTest

COMP, SEND, RECV, COLL = 4, 5, 6, 7
ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = 0, 2, 7


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def fields(data):
    """Yields (number, value) of a protobuf message; the value is an integer or bytes."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        elif key & 7 == 2:
            size, at = varint(data, at)
            value, at = data[at:at + size], at + size
        else:
            raise AssertionError(f"wire type {key & 7}")
        yield key >> 3, value


def integers(value):
    at, numbers = 0, []
    while at < len(value):
        number, at = varint(value, at)
        numbers.append(number)
    return numbers


def read(path):
    """Returns the nodes of a file as dictionaries, by the numbers of Chakra's published schema."""
    data, at, messages = path.read_bytes(), 0, []
    while at < len(data):
        size, at = varint(data, at)
        messages.append(data[at:at + size])
        at += size
    assert dict(fields(messages[0]))[1], "the first message is the metadata, with a version"
    nodes = []
    for message in messages[1:]:
        node = {"id": 0, "deps": [], "micros": 0, "attr": {}}
        for number, value in fields(message):
            if number == 1:
                node["id"] = value
            elif number == 2:
                node["name"] = value.decode()
            elif number == 3:
                node["type"] = value
            elif number in (4, 5):
                node["deps"] += integers(value)
            elif number == 7:
                node["micros"] = value
            elif number == 10:
                inner = dict(fields(value))
                name = inner.pop(1).decode()
                (kind, content), = inner.items()
                node["attr"][name] = content.decode() if kind == 29 else content
        nodes.append(node)
    return nodes


def replay(npus, groups):
    """Runs all nodes on a network that takes no time. Returns when each NPU ends, in microseconds."""
    ends = [{} for _ in npus]
    waiting = collections.deque((n, node) for n, nodes in enumerate(npus) for node in nodes)
    sends, arrivals, collectives = {}, collections.defaultdict(dict), collections.defaultdict(int)
    turns = {}
    stuck = 0
    while waiting:
        assert stuck <= len(waiting), f"{len(waiting)} nodes wait for ever, such as {waiting[0]}"
        n, node = waiting.popleft()
        ready = all(dep in ends[n] for dep in node["deps"])
        begin = max((ends[n][dep] for dep in node["deps"]), default=0) if ready else None
        attr, done = node["attr"], None
        if ready and node["type"] == COMP:
            done = begin + node["micros"]
        elif ready and node["type"] == SEND:
            assert attr["comm_src"] == n, node
            sends[n, attr["comm_dst"], attr["comm_tag"]] = (begin, attr["comm_size"])
            done = begin
        elif ready and node["type"] == RECV:
            assert attr["comm_dst"] == n, node
            sent = sends.get((attr["comm_src"], n, attr["comm_tag"]))
            if sent:
                assert sent[1] == attr["comm_size"], node
                done = max(begin, sent[0])
        elif ready:
            if (n, node["id"]) not in turns:  # The members' k-th collectives of a group are one.
                turns[n, node["id"]] = collectives[n, attr["pg_name"]]
                collectives[n, attr["pg_name"]] += 1
            key = attr["pg_name"], turns[n, node["id"]]
            arrivals[key][n] = (begin, attr["comm_type"], attr["comm_size"])
            if len(arrivals[key]) == len(groups[attr["pg_name"]]):
                assert len({what[1:] for what in arrivals[key].values()}) == 1, arrivals[key]
                done = max(what[0] for what in arrivals[key].values())
        if done is None:
            waiting.append((n, node))
            stuck += 1
        else:
            ends[n][node["id"]] = done
            stuck = 0
    return [max(times.values(), default=0) for times in ends]


class Chakra(JobTest):
    def traces(self, *words):
        folder = self.folder / "chakra"
        job = self.run_job("profile", "--no-run", "--overwrite", "--chakra", folder, *words, config=QUICK)
        files = sorted(folder.glob("step.*.et"), key=lambda path: int(path.name.split(".")[1]))
        self.assertEqual([path.name for path in files], [f"step.{n}.et" for n in range(len(files))])
        profile = json.loads((job.output_dir / "profile.json").read_text())
        groups = json.loads((folder / "comm_groups.json").read_text())
        return [read(path) for path in files], groups, profile, folder

    def cycles(self, profile, *kinds):
        return sum(int(profile["device"]["stepCost"].get(kind, 0)) for kind in kinds)

    def test_one_replica_computes_for_as_long_as_the_device_clock_says(self):
        npus, groups, profile, _ = self.traces("-n", 1, "--training.gradient-accumulation", 3)
        self.assertEqual([node["type"] for node in npus[0]], [COMP])
        self.assertEqual(groups, {})
        self.assertAlmostEqual(npus[0][0]["micros"], profile["device"]["stepSeconds"] * 1e6, delta=1)
        self.assertEqual(npus[0][0]["attr"]["num_ops"], self.cycles(profile, "flops"))

    def test_replicas_share_a_file_and_reduce_their_gradients(self):
        npus, groups, profile, folder = self.traces("-n", 4)
        self.assertEqual(groups, {"1": [0, 1, 2, 3]})
        self.assertEqual(os.readlink(folder / "step.3.et"), "step.0.et")
        reduced = [node for node in npus[0] if node["type"] == COLL]
        self.assertEqual({node["attr"]["comm_type"] for node in reduced}, {ALL_REDUCE})
        self.assertGreaterEqual(sum(node["attr"]["comm_size"] for node in reduced), 4 * int(profile["parameterCount"]))
        self.assertLess(sum(node["attr"]["comm_size"] for node in reduced), 4 * int(profile["parameterCount"]) + 4096)
        replay(npus, groups)

    def test_the_stages_of_pipelines_meet(self):
        npus, groups, profile, _ = self.traces("-n", 2, "--ipus-per-replica", 2, "--training.gradient-accumulation", 6)
        self.assertEqual(groups, {"1": [0, 2], "2": [1, 3]})
        ends = replay(npus, groups)
        sent = [node for node in npus[0] if node["type"] == SEND]
        self.assertGreaterEqual(len(sent), 6, "activations of each micro-batch")
        seconds = profile["device"]["stepSeconds"]
        self.assertLess(max(ends), seconds * 1e6, "the network takes no time")
        self.assertGreater(max(ends), 0.5 * seconds * 1e6)
        for own, other in ((0, 2), (1, 3)):  # The second replica does the same with peers that are two higher.
            for a, b in zip(npus[own], npus[other], strict=True):
                for key in ("comm_src", "comm_dst"):
                    self.assertEqual(b["attr"].get(key, 2), a["attr"].get(key, 0) + 2)

    def test_exchanges_in_the_background_do_not_hold_the_work_up(self):
        npus, groups, _, _ = self.traces("-n", 2, "--training.gradient-bucket", "0.1")
        collectives = [node["id"] for node in npus[0] if node["type"] == COLL]
        self.assertGreater(len(collectives), 1)
        awaited = [node for node in npus[0] if set(node["deps"]) >= set(collectives[:2])]
        self.assertTrue(awaited, "a node depends on several collectives")
        by_id = {node["id"]: node for node in npus[0]}

        def follows(node):
            return collectives[0] in node["deps"] or any(follows(by_id[dep]) for dep in node["deps"])

        beside = [node for node in npus[0] if node["type"] == COMP and node["id"] > collectives[0] and not follows(node)]
        self.assertTrue(beside, "work goes on beside the first collective")
        replay(npus, groups)

    SHARDED = ("-n", 4, "--training.optimizer", "adam", "--memory.replicated-tensor-sharding", "optimizer-state",
               "--memory.sharding-min-elements", 1, "--memory.optimizer-state", "off-chip")

    def sizes(self, nodes):
        """Returns the bytes of a member before the exchanges, by type and group."""
        sizes = collections.Counter()
        for node in nodes:
            if node["type"] == COLL:
                sizes[node["attr"]["comm_type"], node["attr"]["pg_name"]] += node["attr"]["comm_size"]
        return sizes

    def test_shards_are_gathered_and_scattered(self):
        npus, groups, profile, _ = self.traces(*self.SHARDED)
        sizes = self.sizes(npus[0])
        gradients = 4 * int(profile["parameterCount"])
        self.assertEqual(sizes[REDUCE_SCATTER, "1"], gradients, "whole gradients before the scatter")
        self.assertGreaterEqual(sizes[ALL_GATHER, "1"], gradients / 4, "shards of weights before the gather")
        self.assertLess(sizes[ALL_GATHER, "1"], gradients / 4 + 4096)
        replay(npus, groups)

    def test_groups_gather_their_own_shards(self):
        npus, groups, profile, _ = self.traces(*self.SHARDED, "--memory.sharding-group", 2)
        pairs = {number for number, members in groups.items() if members in ([0, 1], [2, 3])}
        self.assertEqual(len(pairs), 2)
        used = [{group for kind, group in self.sizes(nodes) if kind == ALL_GATHER} for nodes in npus]
        self.assertEqual(used[0], used[1])
        self.assertEqual(used[2], used[3])
        self.assertEqual(used[0] | used[2], pairs)
        replay(npus, groups)

    def test_more_npus_than_files_are_refused(self):
        job = self.run_job("profile", "--no-run", "--chakra", self.folder / "chakra", "-n", 2048, config=QUICK, code=64)
        self.assertIn("at most 1,024, but the job has 2,048", job.stderr)


if __name__ == "__main__":
    unittest.main()
