#include "launcher/report/perfetto_writer.h"

namespace poprun::launcher {

using proto::perfetto::TracePacket;
using proto::perfetto::TrackEvent;

PerfettoWriter::PerfettoWriter(std::uint32_t sequence, std::uint32_t clock) : sequence_(sequence), clock_(clock) {
  packet_.set_sequence_flags(TracePacket::SEQ_INCREMENTAL_STATE_CLEARED);
  if (clock_ != kTraceClock) {
    for (const std::uint32_t id : {clock_, kTraceClock}) {
      auto& reading = *packet_.mutable_clock_snapshot()->add_clocks();
      reading.set_clock_id(id);
      reading.set_timestamp(0);
    }
    packet_.mutable_clock_snapshot()->set_primary_trace_clock(kTraceClock);
  }
  add_packet();
}

void PerfettoWriter::add_process(std::uint64_t uuid, std::int32_t pid, const std::string& name) {
  packet_.mutable_track_descriptor()->set_uuid(uuid);
  packet_.mutable_track_descriptor()->mutable_process()->set_pid(pid);
  packet_.mutable_track_descriptor()->mutable_process()->set_process_name(name);
  add_packet();
}

void PerfettoWriter::add_track(std::uint64_t uuid, std::uint64_t process, const std::string& name) {
  packet_.mutable_track_descriptor()->set_uuid(uuid);
  packet_.mutable_track_descriptor()->set_parent_uuid(process);
  packet_.mutable_track_descriptor()->set_name(name);
  add_packet();
}

template <typename Add>
std::uint64_t PerfettoWriter::intern(Interned& known, std::string_view text, Add add) {
  const auto found = known.find(text);
  if (found != known.end()) {
    return found->second;
  }
  const std::uint64_t number = known.size() + 1;
  known.emplace(text, number);
  auto& interned = *add(*packet_.mutable_interned_data());
  interned.set_iid(number);
  interned.set_name(std::string(text));
  packet_.set_sequence_flags(TracePacket::SEQ_NEEDS_INCREMENTAL_STATE);
  add_packet();
  return number;
}

std::uint64_t PerfettoWriter::name(std::string_view text) {
  return intern(names_, text, [](auto& data) { return data.add_event_names(); });
}

std::uint64_t PerfettoWriter::category(std::string_view text) {
  return intern(categories_, text, [](auto& data) { return data.add_event_categories(); });
}

std::uint64_t PerfettoWriter::annotation(std::string_view text) {
  return intern(annotations_, text, [](auto& data) { return data.add_debug_annotation_names(); });
}

void PerfettoWriter::begin(const Slice& slice, std::uint64_t ns) {
  TrackEvent& begun = event(TrackEvent::TYPE_SLICE_BEGIN, slice.track, ns);
  begun.set_name_iid(slice.name);
  if (slice.category != 0) {
    begun.add_category_iids(slice.category);
  }
  if (slice.annotation.first != 0) {
    auto& annotation = *begun.add_debug_annotations();
    annotation.set_name_iid(slice.annotation.first);
    annotation.set_uint_value(slice.annotation.second);
  }
  if (slice.flow != 0) {
    begun.add_flow_ids(slice.flow);
  }
  add_packet();
}

void PerfettoWriter::end(std::uint64_t track, std::uint64_t ns) {
  event(TrackEvent::TYPE_SLICE_END, track, ns);
  add_packet();
}

TrackEvent& PerfettoWriter::event(TrackEvent::Type type, std::uint64_t track, std::uint64_t ns) {
  packet_.set_timestamp(ns);
  if (clock_ != kTraceClock) {
    packet_.set_timestamp_clock_id(clock_);
  }
  packet_.set_sequence_flags(TracePacket::SEQ_NEEDS_INCREMENTAL_STATE);
  TrackEvent& event = *packet_.mutable_track_event();
  event.set_type(type);
  event.set_track_uuid(track);
  return event;
}

/// Appends the packet as an element of Trace.packet, so that a trace never exists as one message in memory.
void PerfettoWriter::add_packet() {
  packet_.set_trusted_packet_sequence_id(sequence_);
  proto::perfetto::Trace trace;
  trace.add_packet()->Swap(&packet_);
  trace.AppendToString(&bytes_);
  packet_.Swap(trace.mutable_packet(0));
  packet_.Clear();
}

}  // namespace poprun::launcher
