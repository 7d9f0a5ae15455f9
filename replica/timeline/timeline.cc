#include "replica/timeline/timeline.h"

#include <algorithm>

namespace poprun {
namespace {

constexpr Cycles cycles(std::uint64_t count) {
  return Cycles{static_cast<std::int64_t>(count)};
}

class Walk {
 public:
  explicit Walk(const StretchVisitor& visit) : visit_(visit) {}

  void steps(const google::protobuf::RepeatedPtrField<proto::Step>& steps) {
    for (const proto::Step& step : steps) {
      if (step.has_repeat()) {
        for (std::uint32_t round = 0; round < step.repeat().count(); ++round) {
          micro_batch_ = round;
          this->steps(step.repeat().steps());
        }
        micro_batch_ = 0;
      } else {
        one(step);
      }
    }
  }

  [[nodiscard]] const proto::Cost& total() const { return total_; }

 private:
  void one(const proto::Step& step) {
    const proto::Cost& cost = step.cost();
    total_.set_flops(total_.flops() + cost.flops());
    total_.set_sync_cycles(total_.sync_cycles() + on_tiles(step, Doing::kSync, cost.sync_cycles()));
    total_.set_exchange_cycles(total_.exchange_cycles() +
                               on_tiles(step, Doing::kExchange, cost.exchange_cycles()));
    total_.set_compute_cycles(total_.compute_cycles() +
                              on_tiles(step, Doing::kCompute, cost.compute_cycles()));
    total_.set_host_cycles(total_.host_cycles() + on_tiles(step, Doing::kHost, cost.host_cycles()));
    links(step);
  }

  void links(const proto::Step& step) {
    std::uint64_t length = step.cost().link_cycles();
    if (step.links() == proto::LINKS_BACKGROUND) {
      links_free_ = std::max(now_, links_free_);
      show(step, Lane::kLinks, Doing::kLink, links_free_, cycles(length));
      links_free_ += cycles(length);
      total_.set_background_cycles(total_.background_cycles() + length);
      return;
    }
    if (step.links() == proto::LINKS_AWAITED) {
      length = static_cast<std::uint64_t>((std::max(now_, links_free_) - now_).count());
    }
    total_.set_link_cycles(total_.link_cycles() + on_tiles(step, Doing::kLink, length));
  }

  /// Keeps the tiles busy for `length` cycles and returns `length`.
  std::uint64_t on_tiles(const proto::Step& step, Doing doing, std::uint64_t length) {
    show(step, Lane::kTiles, doing, now_, cycles(length));
    now_ += cycles(length);
    return length;
  }

  void show(const proto::Step& step, Lane lane, Doing doing, Cycles begin, Cycles length) const {
    if (visit_ && length > Cycles{0}) {
      visit_({step, lane, doing, begin, length, micro_batch_});
    }
  }

  const StretchVisitor& visit_;
  proto::Cost total_;
  Cycles now_;         ///< The tiles' clock.
  Cycles links_free_;  ///< When the links will have finished what was begun.
  std::uint32_t micro_batch_ = 0;
};

}  // namespace

proto::Cost walk(const proto::Function& function, const StretchVisitor& visit) {
  Walk walk(visit);
  walk.steps(function.steps());
  return walk.total();
}

void add_cost(proto::Cost& total, const proto::Cost& cost) {
  total.set_compute_cycles(total.compute_cycles() + cost.compute_cycles());
  total.set_exchange_cycles(total.exchange_cycles() + cost.exchange_cycles());
  total.set_link_cycles(total.link_cycles() + cost.link_cycles());
  total.set_host_cycles(total.host_cycles() + cost.host_cycles());
  total.set_sync_cycles(total.sync_cycles() + cost.sync_cycles());
  total.set_flops(total.flops() + cost.flops());
  total.set_background_cycles(total.background_cycles() + cost.background_cycles());
}

Cycles total_cycles(const proto::Cost& cost) {
  return cycles(cost.compute_cycles() + cost.exchange_cycles() + cost.link_cycles() +
                cost.host_cycles() + cost.sync_cycles());
}

double device_seconds(const Program& program, const proto::Cost& cost) {
  return static_cast<double>(total_cycles(cost).count()) / program.device().clock_hz();
}

}  // namespace poprun
