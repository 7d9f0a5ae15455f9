#include "replica/loops/tensor_dump.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "replica/base/pattern.h"
#include "replica/graph/types.h"
#include "replica/machine/machine.h"
#include "replica/program/host_contract.h"

namespace poprun {
namespace {

constexpr std::size_t kNearestNames = 5;

/// The steps in which a function reads and writes one tensor.
struct Uses {
  bool written = false;
  std::uint32_t last_write = 0;           ///< Step.number of the last write, by an operation or the host.
  std::optional<std::uint32_t> exchange;  ///< Step.number at which the exchange begins.
  std::uint32_t exchanged = 0;            ///< Step.number at which the exchange ends.
};

using UsesByTensor = std::map<std::uint32_t, Uses>;

void find_uses(const Program& program, const google::protobuf::RepeatedPtrField<proto::Step>& steps,
               UsesByTensor& uses) {
  for (const proto::Step& step : steps) {
    if (step.has_repeat()) {
      find_uses(program, step.repeat().steps(), uses);
    }
    if (step.has_call()) {
      find_uses(program, find_function(program, step.call().function())->steps(), uses);
    }
    const StepTensors tensors = tensors_of(step);
    for (const std::uint32_t tensor : tensors.reads) {
      uses.try_emplace(tensor);
    }
    for (const std::uint32_t tensor : tensors.writes) {
      uses[tensor].written = true;
      uses[tensor].last_write = step.number();
    }
    for (const std::uint32_t tensor : tensors.begins_exchange) {
      uses[tensor].exchange = step.number();
    }
    for (const std::uint32_t tensor : tensors.ends_exchange) {
      uses[tensor].exchanged = step.number();
    }
  }
}

/// Returns the length of the longest common substring.
std::size_t common_part(std::string_view a, std::string_view b) {
  std::size_t longest = 0;
  std::vector<std::size_t> row(b.size() + 1, 0);
  for (const char c : a) {
    std::size_t diagonal = 0;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t length = c == b[j] ? diagonal + 1 : 0;
      diagonal = row[j + 1];
      row[j + 1] = length;
      longest = std::max(longest, length);
    }
  }
  return longest;
}

/// Returns the names that share the longest substrings with the pattern, closest first.
std::vector<std::string> nearest_names(const Program& program, const UsesByTensor& uses, const std::string& pattern) {
  std::vector<std::string> names;
  for (const auto& [tensor, use] : uses) {
    names.push_back(program.tensors(static_cast<int>(tensor)).name());
  }
  std::ranges::stable_sort(names, std::ranges::greater{}, [&](const std::string& name) {
    const std::size_t common = common_part(name, pattern);
    // Among equally close names, the shortest comes first.
    return std::pair{common, -static_cast<std::ptrdiff_t>(name.size())};
  });
  names.resize(std::min(names.size(), kNearestNames));
  return names;
}

/// Returns the tensors of `uses` whose names match the request.
Result<std::set<std::uint32_t>> matches(const Program& program, const UsesByTensor& uses, const DumpRequest& request) {
  std::set<std::uint32_t> found;
  const Result<Pattern> pattern = Pattern::parse(request.pattern);
  if (!pattern) {
    return fail(ErrorCode::kUsage, fmt::format("report.dump-tensors: '{}' is not a valid regular expression: {}",
                                               request.pattern, pattern.error().message));
  }
  for (const auto& [tensor, use] : uses) {
    if (pattern->finds(program.tensors(static_cast<int>(tensor)).name())) {
      found.insert(tensor);
    }
  }
  if (found.empty()) {
    return fail(ErrorCode::kUsage, fmt::format("report.dump-tensors: no tensor of a training step of {} matches '{}'; "
                                               "did you mean {}?",
                                               program.model(), request.pattern,
                                               fmt::join(nearest_names(program, uses, request.pattern), " or ")));
  }
  return found;
}

/// Appends `what` to `name` as often as needed for a name that no tensor of the Program has.
std::string after(const Program& program, std::string name, std::string_view what) {
  name += what;
  while (std::ranges::any_of(program.tensors(), [&](const proto::Tensor& tensor) { return tensor.name() == name; })) {
    name += what;
  }
  return name;
}

void add_entries(const Program& program, std::uint32_t id, const Uses& use, DumpPlan& plan) {
  const proto::Tensor& tensor = program.tensors(static_cast<int>(id));
  if (tensor.always_live()) {
    plan.at_begin.push_back({id, tensor.name()});
    if (use.written) {
      plan.at_end.push_back({id, after(program, tensor.name(), ".updated")});
    }
  } else if (use.exchange) {
    plan.before[*use.exchange].push_back({id, tensor.name()});
    plan.after[use.exchanged].push_back({id, after(program, tensor.name(), ".exchanged")});
  } else {
    plan.after[use.last_write].push_back({id, tensor.name()});
  }
}

}  // namespace

Result<std::map<std::uint64_t, DumpPlan>> plan_dumps(const Program& program, const std::vector<DumpRequest>& requests,
                                                     std::uint64_t total_steps) {
  UsesByTensor uses;
  if (const proto::Function* train = find_function(program, name_of(JobFunction::kTrain)); train != nullptr) {
    find_uses(program, train->steps(), uses);
  }
  std::erase_if(uses,
                [&program](const auto& use) { return program.tensors(static_cast<int>(use.first)).has_copy_of(); });
  std::map<std::uint64_t, std::set<std::uint32_t>> tensors;
  for (const DumpRequest& request : requests) {
    if (request.step < 1 || request.step > total_steps) {
      return fail(ErrorCode::kUsage, fmt::format("report.dump-tensors: step {} of '{}' is not one of the job's steps, "
                                                 "1 to {}",
                                                 request.step, request.pattern, total_steps));
    }
    POPRUN_ASSIGN(std::set<std::uint32_t> found, matches(program, uses, request));
    tensors[request.step].merge(found);
  }
  std::map<std::uint64_t, DumpPlan> plans;
  for (const auto& [step, ids] : tensors) {
    for (const std::uint32_t id : ids) {
      add_entries(program, id, uses.at(id), plans[step]);
    }
  }
  return plans;
}

void TensorDump::begin(std::uint64_t step, Engine& engine) {
  const auto plan = plans_.find(step);
  if (plan == plans_.end()) {
    return;
  }
  step_ = step;
  reported_.clear();
  engine_ = &engine;
  plan_ = &plan->second;
  report(plan_->at_begin);
  engine.add_observer(*this);
}

void TensorDump::end(Engine& engine) {
  if (plan_ == nullptr) {
    return;
  }
  report(plan_->at_end);
  engine.remove_observer(*this);
  plan_ = nullptr;
}

void TensorDump::before(const proto::Step& step) {
  if (const auto entries = plan_->before.find(step.number()); entries != plan_->before.end()) {
    report(entries->second);
  }
}

void TensorDump::after(const proto::Step& step) {
  if (const auto entries = plan_->after.find(step.number()); entries != plan_->after.end()) {
    report(entries->second);
  }
}

void TensorDump::broken_off(const proto::Step& step) {
  // The result of the step may have overwritten an input whose live range ends there.
  const auto is_overwritten = [&](const DumpEntry& entry) {
    const std::vector<std::uint32_t> written = tensors_of(step).writes;
    return std::ranges::none_of(written, [&](auto id) { return id == entry.tensor; }) &&
           std::ranges::any_of(written, [&](std::uint32_t id) {
             return share_bytes(program_.tensors(static_cast<int>(id)),
                                program_.tensors(static_cast<int>(entry.tensor)));
           });
  };
  const auto report_living = [&](const DumpEntry& entry) {
    const proto::Tensor& tensor = program_.tensors(static_cast<int>(entry.tensor));
    if (lives_at(tensor, step.number()) && !is_overwritten(entry) && !reported_.contains(entry.name)) {
      report({entry});
    }
  };
  for (const auto& [exchange, entries] : plan_->before) {
    std::ranges::for_each(entries, report_living);
  }
  for (const auto& [number, entries] : plan_->after) {
    const bool is_exchange = plan_->before.contains(number);
    if (!is_exchange) {
      std::ranges::for_each(entries, report_living);
    }
  }
}

void TensorDump::report(const std::vector<DumpEntry>& entries) {
  for (const DumpEntry& entry : entries) {
    reported_.insert(entry.name);
    const Result<TensorType> type = parse_type(program_.tensors(static_cast<int>(entry.tensor)).type());
    POPRUN_CHECK(type.has_value());
    std::vector<std::byte> storage;
    reporter_.dump(step_, entry.name, element_name(type->data), type->shape,
                   row_major(*type, engine_->inspect(entry.tensor), storage));
  }
}

}  // namespace poprun
