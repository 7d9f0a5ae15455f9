#pragma once

#include <array>
#include <bitset>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/local/call.h"
#include "collectives/local/call_log.h"
#include "replica/base/error.h"
#include "replica/base/units.h"

namespace poprun::collectives {

/// An Error in a fixed number of bytes, so that it can travel between processes, in shared memory and in messages. A
/// longer message is truncated. The address fact is dropped, because no exchange sets it.
class FlatError {
 public:
  FlatError() = default;
  /// Requires: missing replicas have numbers below kReplicasMax.
  explicit FlatError(const Error& error);

  [[nodiscard]] Error error() const;

 private:
  static constexpr std::size_t kReplicasMax = 4096;

  ErrorCode code_{};
  bool is_short_ = false;
  Shortage shortage_{};
  std::bitset<kReplicasMax> missing_{};  ///< Indexed by replica number.
  std::array<char, 1000> message_{};     ///< 0-terminated.
};

/// Returns the last time that a replica of the job had an excuse for being late, such as a data server that does not
/// answer. Deadlines count from that time. The function must be thread-safe. It is empty if no replica ever has an
/// excuse.
using LastExcuse = std::function<std::chrono::steady_clock::time_point()>;

/// The place where peers find a replica's contribution to a call. Different replicas may have different places.
struct Place {
  std::int64_t owner = -1;  ///< Number of a region of allocated memory, or of a process; -1: not in shared memory.
  std::int64_t where = 0;   ///< Offset in the region, or descriptor.

  friend bool operator==(Place, Place) = default;
};

/// One replica's handle on the meeting point of all replicas that share some memory: a barrier whose waiters sleep, and
/// which detects missing replicas and calls that differ.
///
///   open(call)   announce, wait for all, check that all announced the same call
///   wait()       wait for all again; called as often as the algorithm needs
///
/// The memory holds a counter and a generation word (futex) for the barrier, the message of the first failure, and one
/// slot per replica for its announcement. It works for threads and for processes.
///
/// Errors of all calls. After the first error of any replica, all replicas get that error from all calls:
///   kInfrastructure   "all-reduce 17: replica 5 did not arrive within 120 s".
///   kBug              replicas made different calls; the message names them.
///
/// Threads: a handle belongs to one thread. Cost: one futex wake per barrier; waiters poll for some microseconds first.
class Rendezvous {
 public:
  struct Options {
    std::byte* memory = nullptr;            ///< `bytes_needed` bytes, prepared by `initialise`.
    std::vector<std::size_t> numbers;       ///< Numbers of the replicas that meet here, for messages.
    std::string among;                      ///< Follows a call's number in messages; may be empty.
    std::size_t self = 0;                   ///< Index of this replica among them.
    std::chrono::milliseconds deadline{0};  ///< Limit of each wait.
    LastExcuse last_excuse{};               ///< The deadline counts from the last excuse during a wait.
    std::shared_ptr<CallLog> log{};         ///< Records every call.
    /// Decides whether a call may begin; needed if more replicas take part than meet here. Every replica calls it with
    /// the announcements of all replicas that meet here. If empty, all announcements must be identical.
    std::function<Status(std::span<const Call>)> agree;
  };

  static Bytes bytes_needed(std::size_t replicas);

  /// Prepares zeroed, 64-byte aligned memory. Call once, before creating any handle.
  static void initialise(std::byte* memory, std::size_t replicas);

  explicit Rendezvous(const Options& options);

  /// Enters a collective. After success, all replicas have entered the same `call`, and `place_of` returns the places
  /// that they passed.
  Status open(const Call& call, Place place = {});

  /// Waits for all replicas inside a call. If missing replicas are on their way, it waits up to `patience` longer
  /// than the deadline.
  Status wait(std::chrono::milliseconds patience = std::chrono::milliseconds{0});

  /// Reports that this replica is on its way. Call it regularly while waiting for something other than this rendezvous:
  /// a replica that has not reported for a quarter of the deadline counts as missing.
  void on_the_way();

  /// Returns the place that `index` announced for the current call. Valid until the call's last `wait` returns.
  [[nodiscard]] Place place_of(std::size_t index) const;

  /// Makes `error` the failure of all replicas, unless there already is one, and returns the failure that counts.
  Status give_up(Error error);

  /// The current call's name in messages: "all-reduce 17", "all-reduce 17 of replicas 0, 4 ('conv1')".
  [[nodiscard]] std::string call_name() const { return titled(name_of(call_.kind)) + names_of(call_); }

  /// The current call's name when replicas made different calls: "call 17".
  [[nodiscard]] std::string any_call_name() const { return titled("call"); }

  /// Returns the number of collectives opened so far, which is also the number of the current one.
  [[nodiscard]] std::uint64_t sequence() const { return sequence_; }

 private:
  struct Board;
  struct Slot;

  [[nodiscard]] Slot& slot(std::size_t index) const;
  [[nodiscard]] std::string titled(const char* call) const;
  Status pass_barrier(std::chrono::milliseconds patience);
  Status sleep_while(std::uint32_t word, std::chrono::milliseconds patience);
  Status time_out(std::uint32_t word, std::chrono::milliseconds waited);
  [[nodiscard]] bool is_on_the_way(std::size_t index) const;
  [[nodiscard]] std::vector<std::size_t> missing() const;
  Status adopt_failure();

  Options options_;
  std::size_t replicas_;
  Board* board_;
  Call call_;
  std::uint64_t sequence_ = 0;
  std::uint64_t arrivals_ = 0;
  std::uint64_t logged_ = 0;  ///< The current call's number in the log.
  std::optional<Error> failure_;
  std::vector<Call> calls_;
};

}  // namespace poprun::collectives
