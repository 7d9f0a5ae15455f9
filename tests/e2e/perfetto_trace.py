"""Reads trace.pftrace with protoc, and checks that every track is monotone and that every slice ends."""
import collections
import dataclasses
import re
import subprocess

from emulated_job import ROOT


@dataclasses.dataclass
class Slice:
    process: str
    track: str
    name: str
    begin: int  # ns
    end: int
    flow: str
    values: dict


def read_trace(path):
    decoded = subprocess.run(
        ["protoc", "--decode=poprun.proto.perfetto.Trace", f"-I{ROOT}", "proto/perfetto.proto"], cwd=ROOT,
        input=path.read_bytes(), capture_output=True, check=True).stdout.decode()
    names, annotations, tracks, now = {}, {}, {}, collections.defaultdict(int)
    slices, open_slices = [], collections.defaultdict(list)
    for packet in re.split(r"^packet \{", decoded, flags=re.M):
        sequence = (re.search(r"trusted_packet_sequence_id: (\d+)", packet) or [None, ""])[1]
        for kind, iid, name in re.findall(r"(event_names|debug_annotation_names) \{\s*iid: (\d+)\s*name: \"(.*)\"", packet):
            (names if kind == "event_names" else annotations)[sequence, iid] = name.replace("\\'", "'")
        if "track_descriptor" in packet:
            uuid = re.search(r"uuid: (\d+)", packet)[1]
            parent = re.search(r"parent_uuid: (\d+)", packet)
            assert uuid not in tracks, f"two tracks have the number {uuid}"
            name = re.search(r"name: \"(.*)\"", packet)[1]
            tracks[uuid] = (tracks[parent[1]][0], name) if parent else (name, "")
        if "track_event" not in packet:
            continue
        track = re.search(r"track_uuid: (\d+)", packet)[1]
        time = int(re.search(r"timestamp: (\d+)", packet)[1])
        assert time >= now[track], f"{tracks[track]}: time goes back from {now[track]} to {time}"
        now[track] = time
        if "TYPE_SLICE_BEGIN" in packet:
            flow = re.search(r"flow_ids: (\d+)", packet)
            values = {annotations[sequence, iid]: int(value)
                      for iid, value in re.findall(r"name_iid: (\d+)\s*uint_value: (\d+)", packet)}
            name = names[sequence, re.search(r"^    name_iid: (\d+)", packet, re.M)[1]]
            slices.append(Slice(*tracks[track], name, time, -1, flow[1] if flow else "", values))
            open_slices[track].append(slices[-1])
        else:
            open_slices[track].pop().end = time
    assert not any(open_slices.values()), "slices do not end"
    return slices
