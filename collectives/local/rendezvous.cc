#include "collectives/local/rendezvous.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <new>
#include <string_view>
#include <type_traits>

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace poprun::collectives {
namespace {

using Clock = std::chrono::steady_clock;
using Word = std::atomic<std::uint32_t>;
static_assert(Word::is_always_lock_free && sizeof(Word) == sizeof(std::uint32_t));

// Bits of the word on which waiters sleep. Bit 0 is set if the communicator has failed; the other bits count completed
// barriers. A single word ensures that no waiter sleeps through a failure that happens between its check and its sleep.
constexpr std::uint32_t kFailed = 1;
constexpr std::uint32_t kGeneration = 2;

// Before it sleeps, a waiter polls a few times and yields its core in between to replicas that have not arrived. That
// is cheaper than being woken up, and replicas with their own cores seldom sleep.
constexpr int kYields = 16;
constexpr auto kYieldTime = std::chrono::microseconds{50};

/// Interval at which a waiter checks whether the replicas that it waits for are still on their way.
constexpr auto kLook = std::chrono::milliseconds{50};

bool passed(std::uint32_t before, std::uint32_t now) {
  return ((before ^ now) & ~kFailed) != 0;
}

void wake_all(Word& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

/// Sleeps while the word is `expected`, but may wake early. Returns false at `limit` (steady_clock is CLOCK_MONOTONIC).
bool sleep_on(Word& word, std::uint32_t expected, Clock::time_point limit) {
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(limit.time_since_epoch()).count();
  const std::timespec until{ns / 1'000'000'000, ns % 1'000'000'000};
  const long status = ::syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, expected, &until, nullptr, FUTEX_BITSET_MATCH_ANY);
  return status == 0 || errno != ETIMEDOUT;
}

enum FailureState : std::uint32_t { kNone, kBeingWritten, kWritten };

}  // namespace

static_assert(std::is_trivially_copyable_v<FlatError>);

FlatError::FlatError(const Error& error)
    : code_(error.code),
      is_short_(error.facts.shortage.has_value()),
      shortage_(error.facts.shortage.value_or(Shortage{})) {
  for (const std::uint32_t replica : error.facts.missing) {
    POPRUN_CHECK(replica < kReplicasMax);
    missing_.set(replica);
  }
  const std::string_view message = cut_to(error.message, message_.size() - 1);
  message.copy(message_.data(), message.size());
}

Error FlatError::error() const {
  Error error{code_, message_.data()};
  for (std::uint32_t replica = 0; replica < kReplicasMax; ++replica) {
    if (missing_.test(replica)) {
      error.facts.missing.push_back(replica);
    }
  }
  if (is_short_) {
    error.facts.shortage = shortage_;
  }
  return error;
}

struct alignas(64) Rendezvous::Board {
  alignas(64) Word word{0};
  alignas(64) Word arrived{0};
  alignas(64) Word failure_state{kNone};
  FlatError failure;
};

// Each slot has two announcements, used in turn: a fast replica may announce the next call while a slow replica still
// reads the current announcement. The fast one gets no further ahead, because the next call waits for the slow one.
struct alignas(64) Rendezvous::Slot {
  std::atomic<std::uint64_t> arrivals{0};  ///< Number of barriers reached since the beginning.
  std::atomic<Clock::rep> on_the_way{0};   ///< Time of the replica's last on_the_way(); all processes share its clock.
  std::array<Call, 2> calls{};
  std::array<Place, 2> places{};
};

Bytes Rendezvous::bytes_needed(std::size_t replicas) {
  return Bytes{static_cast<std::int64_t>(sizeof(Board) + replicas * sizeof(Slot))};
}

void Rendezvous::initialise(std::byte* memory, std::size_t replicas) {
  new (memory) Board;
  for (std::size_t i = 0; i < replicas; ++i) {
    new (memory + sizeof(Board) + i * sizeof(Slot)) Slot;
  }
}

Rendezvous::Rendezvous(const Options& options)
    : options_(options),
      replicas_(options.numbers.size()),
      board_(std::launder(reinterpret_cast<Board*>(options.memory))),
      calls_(replicas_) {
  POPRUN_CHECK(options.self < replicas_ && options.log != nullptr);
}

Rendezvous::Slot& Rendezvous::slot(std::size_t index) const {
  return *std::launder(reinterpret_cast<Slot*>(options_.memory + sizeof(Board) + index * sizeof(Slot)));
}

std::string Rendezvous::titled(const char* call) const {
  return std::string(call) + " " + std::to_string(sequence_) + options_.among;
}

Place Rendezvous::place_of(std::size_t index) const {
  return slot(index).places[sequence_ % 2];
}

Status Rendezvous::open(const Call& call, Place place) {
  if (failure_) {  // The call ends early, because slow peers may still read the last announcement.
    return tl::unexpected<Error>{*failure_};
  }
  ++sequence_;
  call_ = call;
  logged_ = options_.log->begin(sequence_, call_, options_.among);
  Slot& mine = slot(options_.self);
  mine.calls[sequence_ % 2] = call;
  mine.places[sequence_ % 2] = place;
  POPRUN_TRY(wait());
  bool alike = !options_.agree;
  for (std::size_t i = 0; alike && i < replicas_; ++i) {
    alike = slot(i).calls[sequence_ % 2] == call;
  }
  if (alike) {
    return {};
  }
  for (std::size_t i = 0; i < replicas_; ++i) {
    calls_[i] = slot(i).calls[sequence_ % 2];
  }
  if (options_.agree) {
    return options_.agree(calls_);
  }
  return give_up({ErrorCode::kBug, *disagreement(any_call_name(), options_.numbers, calls_)});
}

Status Rendezvous::wait(std::chrono::milliseconds patience) {
  Status status = pass_barrier(patience);
  if (status) {
    options_.log->done(logged_);
  }
  return status;
}

Status Rendezvous::pass_barrier(std::chrono::milliseconds patience) {
  if (failure_) {
    return tl::unexpected<Error>{*failure_};
  }
  const std::uint32_t before = board_->word.load(std::memory_order_acquire);
  if ((before & kFailed) != 0) {
    return adopt_failure();
  }
  ++arrivals_;
  const bool last = board_->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == replicas_;
  if (last) {
    board_->arrived.store(0, std::memory_order_relaxed);
    board_->word.fetch_add(kGeneration, std::memory_order_acq_rel);
    wake_all(board_->word);
  }
  // The arrivals are stored last, so that a replica that sees all of them also sees that the barrier is complete.
  slot(options_.self).arrivals.store(arrivals_, std::memory_order_release);
  return last ? Status{} : sleep_while(before, patience);
}

void Rendezvous::on_the_way() {
  slot(options_.self).on_the_way.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
}

bool Rendezvous::is_on_the_way(std::size_t index) const {
  const Clock::duration said{slot(index).on_the_way.load(std::memory_order_relaxed)};
  return Clock::now().time_since_epoch() - said < options_.deadline / 4;
}

/// Returns the indices of the replicas that have not arrived at the current barrier.
std::vector<std::size_t> Rendezvous::missing() const {
  std::vector<std::size_t> missing;
  for (std::size_t i = 0; i < replicas_; ++i) {
    if (slot(i).arrivals.load(std::memory_order_acquire) < arrivals_) {
      missing.push_back(i);
    }
  }
  return missing;
}

Status Rendezvous::sleep_while(std::uint32_t word, std::chrono::milliseconds patience) {
  Clock::time_point start = Clock::now();
  const Clock::time_point yield_until = start + kYieldTime;
  std::chrono::milliseconds limit = options_.deadline;
  for (int look = 0;; ++look) {
    const std::uint32_t now = board_->word.load(std::memory_order_acquire);
    if (passed(word, now)) {
      return {};
    }
    if ((now & kFailed) != 0) {
      return adopt_failure();
    }
    if (look < kYields && Clock::now() < yield_until) {
      ::sched_yield();
      continue;
    }
    if (sleep_on(board_->word, now, start + limit)) {
      continue;
    }
    if (const auto excused = options_.last_excuse ? options_.last_excuse() : start; excused > start) {
      start = excused;
      limit = options_.deadline;
      continue;
    }
    if (limit >= options_.deadline + patience ||
        !std::ranges::all_of(missing(), [this](std::size_t i) { return is_on_the_way(i); })) {
      return time_out(word, limit);
    }
    limit += kLook;
  }
}

Status Rendezvous::time_out(std::uint32_t word, std::chrono::milliseconds waited) {
  // Replicas on their way are themselves waiting for peers, so they are named only if no other replica is missing.
  std::vector<std::size_t> late;
  std::vector<std::size_t> lost;
  for (const std::size_t index : missing()) {
    (is_on_the_way(index) ? late : lost).push_back(options_.numbers[index]);
  }
  if (passed(word, board_->word.load(std::memory_order_acquire))) {
    return {};
  }
  return give_up(late_error(call_name(), lost.empty() ? late : lost, waited));
}

Status Rendezvous::give_up(Error error) {
  options_.log->broken(logged_);
  std::uint32_t state = kNone;
  if (board_->failure_state.compare_exchange_strong(state, kBeingWritten)) {
    board_->failure = FlatError(error);
    board_->failure_state.store(kWritten, std::memory_order_release);
    board_->word.fetch_or(kFailed, std::memory_order_acq_rel);
    wake_all(board_->word);
  } else if (state == kWritten) {
    return adopt_failure();
  }
  failure_ = std::move(error);
  return tl::unexpected<Error>{*failure_};
}

Status Rendezvous::adopt_failure() {
  POPRUN_CHECK(board_->failure_state.load(std::memory_order_acquire) == kWritten);
  options_.log->broken(logged_);
  failure_ = board_->failure.error();
  return tl::unexpected<Error>{*failure_};
}

}  // namespace poprun::collectives
