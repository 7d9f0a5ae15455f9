#include "replica/program/program.h"

#include <fmt/format.h>

namespace poprun {
namespace {

void add_steps(proto::Cost& total, const google::protobuf::RepeatedPtrField<proto::Step>& steps,
               std::uint64_t times) {
  for (const proto::Step& step : steps) {
    if (step.has_repeat()) {
      add_steps(total, step.repeat().steps(), times * step.repeat().count());
    }
    add_cost(total, step.cost(), times);
  }
}

std::string with_commas(std::int64_t value) {
  const std::string digits = std::to_string(value);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) {
      text += ',';
    }
    text += digits[i];
  }
  return text;
}

}  // namespace

const proto::Function* find_function(const Program& program, const std::string& name) {
  for (const proto::Function& function : program.functions()) {
    if (function.name() == name) {
      return &function;
    }
  }
  return nullptr;
}

void add_cost(proto::Cost& total, const proto::Cost& cost, std::uint64_t times) {
  total.set_compute_cycles(total.compute_cycles() + times * cost.compute_cycles());
  total.set_exchange_cycles(total.exchange_cycles() + times * cost.exchange_cycles());
  total.set_link_cycles(total.link_cycles() + times * cost.link_cycles());
  total.set_host_cycles(total.host_cycles() + times * cost.host_cycles());
  total.set_sync_cycles(total.sync_cycles() + times * cost.sync_cycles());
  total.set_flops(total.flops() + times * cost.flops());
  total.set_background_cycles(total.background_cycles() + times * cost.background_cycles());
}

std::vector<std::uint32_t> tensors_of(const proto::Step& step) {
  std::vector<std::uint32_t> tensors;
  const auto take = [&tensors](const google::protobuf::RepeatedField<std::uint32_t>& ids) {
    tensors.insert(tensors.end(), ids.begin(), ids.end());
  };
  take(step.execute().inputs());
  take(step.execute().outputs());
  take(step.stream_in().tensors());
  take(step.stream_out().tensors());
  take(step.all_reduce().tensors());
  take(step.await_all_reduces().tensors());
  if (step.has_initialise()) {
    tensors.push_back(step.initialise().tensor());
  }
  return tensors;
}

proto::Cost cost_of(const proto::Function& function) {
  proto::Cost total;
  add_steps(total, function.steps(), 1);
  return total;
}

Cycles total_cycles(const proto::Cost& cost) {
  return Cycles{static_cast<std::int64_t>(cost.compute_cycles() + cost.exchange_cycles() +
                                          cost.link_cycles() + cost.host_cycles() +
                                          cost.sync_cycles())};
}

double device_seconds(const Program& program, const proto::Cost& cost) {
  return static_cast<double>(total_cycles(cost).count()) / program.device().clock_hz();
}

std::string bytes_text(std::int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes >= 1'000'000'000) {
    return fmt::format("{:.2f} GB ({} B)", value / 1e9, with_commas(bytes));
  }
  if (bytes >= 1'000'000) {
    return fmt::format("{:.1f} MB ({} B)", value / 1e6, with_commas(bytes));
  }
  if (bytes >= 1'000) {
    return fmt::format("{:.1f} kB ({} B)", value / 1e3, with_commas(bytes));
  }
  return fmt::format("{} B", bytes);
}

}  // namespace poprun
