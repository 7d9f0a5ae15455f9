#include "replica/program/timeline.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "replica/machine/machine.h"
#include "replica/program/lanes.h"

namespace poprun {
namespace {

using Steps = google::protobuf::RepeatedPtrField<proto::Step>;
using Entries = google::protobuf::RepeatedField<std::int32_t>;

constexpr Cycles cycles(std::uint64_t count) {
  return Cycles{static_cast<std::int64_t>(count)};
}

/// Returns whether steps call parts on several IPUs, all for the same micro-batch.
bool call_parts_of_one_micro_batch(const Program& program, const Steps& steps) {
  std::optional<std::uint32_t> micro_batch;
  std::set<std::uint32_t> ipus;
  for (const proto::Step& step : steps) {
    const proto::Function* callee = find_function(program, step.call().function());
    if (!step.has_call() || callee == nullptr || !callee->has_part()) {
      continue;
    }
    if (micro_batch.value_or(step.call().micro_batch()) != step.call().micro_batch()) {
      return false;
    }
    micro_batch = step.call().micro_batch();
    ipus.insert(callee->part().ipu());
  }
  return ipus.size() > 1;
}

struct Clock {
  Cycles tiles;
  Cycles links;  ///< Time at which the links finish the exchanges begun so far.
  IoLane io;
  proto::Cost busy;
  bool took_part = false;  ///< Whether the IPU took part in the current round.

  /// Returns the time at which the links can begin the next exchange.
  [[nodiscard]] Cycles links_ready() const { return std::max(tiles, links); }
};

class Walk {
 public:
  Walk(const Program& program, const StretchVisitor& visit, Pace pace)
      : program_(program), visit_(visit), pace_(pace), clocks_(std::max(program.ipus(), 1U)) {}

  void function(const proto::Function& function) {
    const proto::Function* caller = std::exchange(function_, &function);
    steps(function.steps());
    function_ = caller;
  }

  [[nodiscard]] CallTime result() const {
    CallTime time;
    for (const Clock& clock : clocks_) {
      time.length = std::max({time.length, clock.tiles, clock.io.out_end()});
      time.busy.push_back(clock.busy);
    }
    return time;
  }

 private:
  void steps(const Steps& steps) {
    for (const proto::Step& step : steps) {
      if (step.has_repeat()) {
        repeat(step.repeat());
      } else if (step.has_call()) {
        call(step.call());
      } else {
        one(step);
      }
    }
  }

  void call(const proto::Call& call) {
    const proto::Function* callee = find_function(program_, call.function());
    POPRUN_CHECK(callee != nullptr);
    micro_batch_ += call.micro_batch();
    entry_ += call.entry();
    function(*callee);
    micro_batch_ -= call.micro_batch();
    entry_ -= call.entry();
  }

  /// Walks a repeat. A round depends only on the distances between the clocks. If one round advances
  /// the clocks of all its IPUs by the same amount, so does every later round.
  void repeat(const proto::Repeat& repeat) {
    const std::uint64_t first = micro_batch_;
    const Round one{repeat.steps(), call_parts_of_one_micro_batch(program_, repeat.steps())};
    for (std::uint32_t round = 0; round < repeat.count(); ++round) {
      const std::optional<Cycles> advance = one_round(one);
      ++micro_batch_;
      if (advance && count_ == 1 && round + 1 < repeat.count()) {
        equal_rounds(one, repeat.count() - round - 1, *advance);
        break;
      }
    }
    micro_batch_ = first;
  }

  struct Round {
    const Steps& steps;
    bool alone;  ///< Whether the round does not overlap with other rounds.
  };

  void run(const Round& round) {
    if (round.alone) {
      const Cycles ready = std::ranges::max_element(clocks_, {}, &Clock::tiles)->tiles;
      for (Clock& clock : clocks_) {
        clock.tiles = ready;
        clock.took_part = true;
      }
    }
    steps(round.steps);
  }

  /// Walks one round. Returns the time by which it moved the clocks of its IPUs, if that is the same for all.
  std::optional<Cycles> one_round(const Round& round) {
    const std::vector<Clock> before = clocks_;
    for (Clock& clock : clocks_) {
      clock.took_part = false;
    }
    run(round);
    std::optional<Cycles> advance;
    bool same = true;
    for (std::size_t ipu = 0; ipu < clocks_.size(); ++ipu) {
      if (clocks_[ipu].took_part) {
        const Cycles tiles = clocks_[ipu].tiles - before[ipu].tiles;
        const Cycles links = clocks_[ipu].links_ready() - before[ipu].links_ready();
        same = same && links == tiles && advance.value_or(tiles) == tiles &&
               clocks_[ipu].io.moved_by(before[ipu].io, tiles);
        advance = tiles;
      }
      clocks_[ipu].took_part |= before[ipu].took_part;
    }
    return same ? advance : std::nullopt;
  }

  /// Walks `count` rounds as one. Each round moves the clocks by `advance`.
  void equal_rounds(const Round& round, std::uint32_t count, Cycles advance) {
    const std::vector<Clock> before = clocks_;
    count_ = count;
    distance_ = advance;
    run(round);
    count_ = 1;
    distance_ = Cycles{};
    for (std::size_t ipu = 0; ipu < clocks_.size(); ++ipu) {
      if (clocks_[ipu].tiles != before[ipu].tiles) {
        clocks_[ipu].tiles += advance * (count - 1);
        clocks_[ipu].links += advance * (count - 1);
        clocks_[ipu].io.move(before[ipu].io, advance * (count - 1));
      }
    }
  }

  void one(const proto::Step& step) {
    const std::vector<std::uint32_t> ipus = ipus_of(program_, step);
    Cycles ready;
    for (const std::uint32_t ipu : ipus) {
      ready = std::max(ready, clocks_.at(ipu).tiles);
    }
    for (const std::uint32_t ipu : ipus) {
      clocks_[ipu].tiles = ready;
      clocks_[ipu].took_part = true;
      on_ipu(step, ipu);
    }
  }

  /// Returns the cost of a step of own work at the replica's pace.
  [[nodiscard]] proto::Cost slowed(proto::Cost cost) const {
    const auto paced = [this](std::uint64_t length) { return (length * pace_ + kUsualPace - 1) / kUsualPace; };
    cost.set_sync_cycles(paced(cost.sync_cycles()));
    cost.set_exchange_cycles(paced(cost.exchange_cycles()));
    cost.set_compute_cycles(paced(cost.compute_cycles()));
    cost.set_link_cycles(paced(cost.link_cycles()));
    cost.set_host_cycles(paced(cost.host_cycles()));
    cost.set_streaming_cycles(paced(cost.streaming_cycles()));
    return cost;
  }

  void on_ipu(const proto::Step& step, std::uint32_t ipu) {
    const bool is_usual = pace_ == kUsualPace || is_between_replicas(step);
    is_usual ? on_ipu(step, step.cost(), ipu) : on_ipu(step, slowed(step.cost()), ipu);
  }

  void on_ipu(const proto::Step& step, const proto::Cost& cost, std::uint32_t ipu) {
    const bool by_io_tiles = step.transfer() != proto::TRANSFER_IN_ORDER;
    proto::Cost spent = by_io_tiles ? before_exchange(step, cost, ipu) : proto::Cost{};
    spent.set_flops(cost.flops());
    spent.set_sync_cycles(on_tiles(step, ipu, Doing::kSync, cost.sync_cycles()));
    spent.set_exchange_cycles(on_tiles(step, ipu, Doing::kExchange, cost.exchange_cycles()));
    spent.set_compute_cycles(on_tiles(step, ipu, Doing::kCompute, cost.compute_cycles()));
    if (by_io_tiles) {
      after_exchange(step, cost, ipu);
    } else {
      spent.set_host_cycles(on_tiles(step, ipu, Doing::kHost, cost.host_cycles()));
      spent.set_streaming_cycles(on_tiles(step, ipu, Doing::kStreaming, cost.streaming_cycles()));
    }
    Clock& clock = clocks_[ipu];
    if (step.links() == proto::LINKS_BACKGROUND) {
      show(step, ipu, Lane::kLinks, Doing::kLink, clock.links_ready(), cycles(cost.link_cycles()));
      clock.links = clock.links_ready() + cycles(cost.link_cycles());
      spent.set_background_cycles(cost.link_cycles());
    } else {
      const Cycles length =
          step.links() == proto::LINKS_AWAITED ? clock.links_ready() - clock.tiles : cycles(cost.link_cycles());
      spent.set_link_cycles(on_tiles(step, ipu, Doing::kLink, static_cast<std::uint64_t>(length.count())));
    }
    add_cost(clock.busy, spent, count_);
  }

  /// Models how the I/O tiles load data, or empty a buffer, before the other tiles exchange data with them.
  proto::Cost before_exchange(const proto::Step& step, const proto::Cost& cost, std::uint32_t ipu) {
    const Clock& clock = clocks_[ipu];
    const Cycles length = io_cycles(cost);
    Cycles ready = clock.io.out_end();
    if (step.transfer() == proto::TRANSFER_IN) {
      const Cycles begin = clock.io.begin_of_in(length, remote_entries(step));
      show(step, ipu, Lane::kIo, doing_io(step), begin, length);
      ready = begin + length;
    }
    proto::Cost spent;
    spent.set_io_cycles(static_cast<std::uint64_t>(length.count()));
    const auto wait = static_cast<std::uint64_t>(std::max(ready - clock.tiles, Cycles{}).count());
    on_tiles(step, ipu, doing_io(step), wait);
    doing_io(step) == Doing::kHost ? spent.set_host_cycles(wait) : spent.set_streaming_cycles(wait);
    return spent;
  }

  void after_exchange(const proto::Step& step, const proto::Cost& cost, std::uint32_t ipu) {
    Clock& clock = clocks_[ipu];
    if (step.transfer() == proto::TRANSFER_IN) {
      clock.io.take(clock.tiles);
      return;
    }
    show(step, ipu, Lane::kIo, doing_io(step), clock.tiles, io_cycles(cost));
    clock.io.give(clock.tiles, io_cycles(cost), remote_entries(step));
  }

  static Doing doing_io(const proto::Step& step) {
    return step.cost().host_cycles() > 0 ? Doing::kHost : Doing::kStreaming;
  }

  static Cycles io_cycles(const proto::Cost& cost) {
    const Cycles length = cycles(cost.host_cycles() + cost.streaming_cycles());
    POPRUN_CHECK(length > Cycles{});
    return length;
  }

  /// Returns the entries that a transfer loads or stores.
  [[nodiscard]] IoLane::Entries remote_entries(const proto::Step& step) const {
    IoLane::Entries all;
    const auto add = [&](const std::vector<std::uint32_t>& tensors, const Entries& entries) {
      for (std::size_t k = 0; k < tensors.size(); ++k) {
        const int at = static_cast<int>(k);
        if (is_remote(program_.tensors(static_cast<int>(tensors[k])))) {
          all.emplace(tensors[k], at < entries.size() ? entries[at] + std::int64_t{entry_} : -1);
        }
      }
    };
    const StepTensors tensors = tensors_of(step);
    add(tensors.reads, step.copy().from_entries());
    add(tensors.writes, step.copy().to_entries());
    return all;
  }

  /// Keeps the tiles busy for `length` cycles and returns `length`.
  std::uint64_t on_tiles(const proto::Step& step, std::uint32_t ipu, Doing doing, std::uint64_t length) {
    show(step, ipu, Lane::kTiles, doing, clocks_[ipu].tiles, cycles(length));
    clocks_[ipu].tiles += cycles(length);
    return length;
  }

  void show(const proto::Step& step, std::uint32_t ipu, Lane lane, Doing doing, Cycles begin, Cycles length) const {
    if (visit_ && length > Cycles{0}) {
      visit_({*function_, step, ipu, lane, doing, begin, length, micro_batch_, count_, distance_});
    }
  }

  const Program& program_;
  const StretchVisitor& visit_;
  Pace pace_;
  std::vector<Clock> clocks_;  ///< Indexed by IPU.
  const proto::Function* function_ = nullptr;
  std::uint64_t micro_batch_ = 0;
  std::uint32_t entry_ = 0;  ///< Offset of the entries that the function names.
  std::uint32_t count_ = 1;  ///< Number of rounds walked as one.
  Cycles distance_;          ///< Length of each of these rounds.
};

}  // namespace

Cycles CallTime::busy_cycles(std::size_t ipu) const {
  return total_cycles(busy.at(ipu));
}

Cycles CallTime::idle_cycles(std::size_t ipu) const {
  return length - busy_cycles(ipu);
}

double CallTime::utilisation() const {
  const Cycles all = length * static_cast<std::int64_t>(busy.size());
  Cycles used;
  for (const proto::Cost& cost : busy) {
    used += total_cycles(cost);
  }
  return all > Cycles{} ? static_cast<double>(used.count()) / static_cast<double>(all.count()) : 1;
}

std::vector<std::uint32_t> ipus_of(const Program& program, const proto::Step& step) {
  std::vector<std::uint32_t> ipus;
  const StepTensors tensors = tensors_of(step);
  for (const auto* list : {&tensors.reads, &tensors.writes, &tensors.begins_exchange, &tensors.ends_exchange}) {
    for (const std::uint32_t tensor : *list) {
      ipus.push_back(program.tensors(static_cast<int>(tensor)).placement().ipu());
    }
  }
  std::ranges::sort(ipus);
  ipus.erase(std::ranges::unique(ipus).begin(), ipus.end());
  return ipus.empty() ? std::vector<std::uint32_t>{0} : ipus;
}

bool is_between_replicas(const proto::Step& step) {
  const MachineOperation* operation = find_machine_operation(step);
  return operation != nullptr && operation->spends == Spends::kWaitingForReplicas;
}

CallTime walk(const Program& program, const proto::Function& function, const StretchVisitor& visit, Pace pace) {
  Walk walk(program, visit, pace);
  walk.function(function);
  return walk.result();
}

void add_cost(proto::Cost& total, const proto::Cost& cost, std::uint64_t times) {
  total.set_compute_cycles(total.compute_cycles() + cost.compute_cycles() * times);
  total.set_exchange_cycles(total.exchange_cycles() + cost.exchange_cycles() * times);
  total.set_link_cycles(total.link_cycles() + cost.link_cycles() * times);
  total.set_host_cycles(total.host_cycles() + cost.host_cycles() * times);
  total.set_sync_cycles(total.sync_cycles() + cost.sync_cycles() * times);
  total.set_flops(total.flops() + cost.flops() * times);
  total.set_streaming_cycles(total.streaming_cycles() + cost.streaming_cycles() * times);
  total.set_background_cycles(total.background_cycles() + cost.background_cycles() * times);
  total.set_io_cycles(total.io_cycles() + cost.io_cycles() * times);
}

Cycles total_cycles(const proto::Cost& cost) {
  return cycles(cost.compute_cycles() + cost.exchange_cycles() + cost.link_cycles() + cost.host_cycles() +
                cost.streaming_cycles() + cost.sync_cycles());
}

double device_seconds(const Program& program, Cycles cycles) {
  return static_cast<double>(cycles.count()) / program.device().clock_hz();
}

}  // namespace poprun
