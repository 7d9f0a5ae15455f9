#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "proto/perfetto.pb.h"

namespace poprun::launcher {

/// Writes one packet sequence of a Perfetto trace: tracks, and slices on them. A file may contain several sequences,
/// one after the other, if their numbers and the uuids of their tracks differ.
class PerfettoWriter {
 public:
  static constexpr std::uint32_t kTraceClock = 6;    ///< Perfetto's BUILTIN_CLOCK_BOOTTIME, the clock of the file.
  static constexpr std::uint32_t kDeviceClock = 64;  ///< A clock of the sequence's own, which begins with the trace.

  /// Begins the sequence. Times are read from `clock`.
  PerfettoWriter(std::uint32_t sequence, std::uint32_t clock);

  void add_process(std::uint64_t uuid, std::int32_t pid, const std::string& name);
  void add_track(std::uint64_t uuid, std::uint64_t process, const std::string& name);

  /// Return the ID of an interned string, whose text is written only once.
  std::uint64_t name(std::string_view text);
  std::uint64_t category(std::string_view text);
  std::uint64_t annotation(std::string_view text);

  struct Slice {
    std::uint64_t track = 0;
    std::uint64_t name = 0;
    std::uint64_t category = 0;                               ///< 0: none.
    std::pair<std::uint64_t, std::uint64_t> annotation = {};  ///< Name and value; name 0: none.
    std::uint64_t flow = 0;                                   ///< An arrow joins slices of the same flow; 0: none.
  };
  /// Begins a slice, inside of those that have begun on the track and not ended. Times are in ns.
  void begin(const Slice& slice, std::uint64_t ns);
  /// Ends the innermost slice of the track.
  void end(std::uint64_t track, std::uint64_t ns);

  [[nodiscard]] std::string take() { return std::move(bytes_); }

 private:
  using Interned = std::map<std::string, std::uint64_t, std::less<>>;

  template <typename Add>
  std::uint64_t intern(Interned& known, std::string_view text, Add add);
  proto::perfetto::TrackEvent& event(proto::perfetto::TrackEvent::Type type, std::uint64_t track, std::uint64_t ns);
  void add_packet();

  std::uint32_t sequence_;
  std::uint32_t clock_;
  Interned names_;
  Interned categories_;
  Interned annotations_;
  proto::perfetto::TracePacket packet_;  ///< Reused.
  std::string bytes_;
};

}  // namespace poprun::launcher
