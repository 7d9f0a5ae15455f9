#include "replica/compilation/expert_weights.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "replica/base/text.h"

namespace poprun {
namespace {

constexpr std::string_view kExperts = "experts.";

/// A tensor of one expert, as its name describes it.
struct ExpertName {
  std::string stack;         ///< Without the expert's number: "block_sparse_moe.experts.w1.weight".
  std::uint32_t expert = 0;  ///< Its number.
};

std::optional<ExpertName> expert_name(const std::string& name) {
  const std::size_t begin = name.rfind(kExperts);
  if (begin == std::string::npos || (begin > 0 && name[begin - 1] != '.')) {
    return std::nullopt;
  }
  const std::size_t number = begin + kExperts.size();
  ExpertName found;
  const auto [end, error] = std::from_chars(name.data() + number, name.data() + name.size(), found.expert);
  if (error != std::errc{} || end == name.data() + name.size() || *end != '.') {
    return std::nullopt;
  }
  found.stack = name.substr(0, number) + std::string(end + 1);
  return found;
}

using Experts = std::map<std::uint32_t, std::string>;  // Names in the file, keyed by number.

tl::unexpected<Error> wrong(const std::string& what) {
  return fail(ErrorCode::kData, "model.initial-weights: " + what);
}

Status check(const std::string& stack, const Experts& experts, const FileTensors& file) {
  const FileTensor& first = file.find(experts.begin()->second)->second;
  std::uint32_t next = 0;
  for (const auto& [number, name] : experts) {
    if (number != next) {
      return wrong(fmt::format("the file has '{}', but not that tensor of expert {}; '{}' needs all experts from 0 on",
                               name, next, stack));
    }
    const FileTensor& tensor = file.find(name)->second;
    if (tensor.shape != first.shape || tensor.type != first.type) {
      return wrong(fmt::format(
          "'{}' is {}[{}], but '{}' is {}[{}]; all experts of a layer must have the same type and shape", name,
          tensor.type, fmt::join(tensor.shape, ","), experts.begin()->second, first.type, fmt::join(first.shape, ",")));
    }
    ++next;
  }
  return {};
}

/// Takes the experts out of the file and returns their stack.
FileTensor stacked(const Experts& experts, FileTensors& file) {
  FileTensor stack;
  for (const auto& [number, name] : experts) {
    const auto found = file.find(name);
    FileTensor& expert = found->second;
    if (number == 0) {
      stack.type = expert.type;
      stack.shape = expert.shape;
      stack.shape.insert(stack.shape.begin(), std::ssize(experts));
      stack.data.reserve(expert.data.size() * experts.size());
    }
    stack.digest = stack.digest * 0x9E3779B97F4A7C15U + expert.digest;
    stack.data += expert.data;
    file.erase(found);
  }
  return stack;
}

}  // namespace

Result<std::optional<Note>> stack_experts(const std::vector<WantedWeight>& wanted, FileTensors& file) {
  std::map<std::string, Experts> stacks;
  for (const auto& [name, tensor] : file) {
    if (const auto expert = expert_name(name)) {
      stacks[expert->stack].emplace(expert->expert, name);
    }
  }
  std::set<std::string> names;
  for (const WantedWeight& weight : wanted) {
    names.insert(weight.name);
  }
  // A file may lack a prefix of the model's names, or have one more.
  const auto wants = [&names](const std::string& stack) {
    return std::ranges::any_of(names,
                               [&](const std::string& name) { return name.ends_with(stack) || stack.ends_with(name); });
  };
  std::size_t count = 0;
  std::string example;
  for (const auto& [stack, experts] : stacks) {
    if (names.contains(experts.begin()->second) || file.contains(stack) || !wants(stack)) {
      continue;
    }
    POPRUN_TRY(check(stack, experts, file));
    count += experts.size();
    example = example.empty() ? stack : example;
    file[stack] = stacked(experts, file);
  }
  if (count == 0) {
    return std::optional<Note>{};
  }
  return std::optional<Note>{{"weights.experts",
                              fmt::format("model.initial-weights: {} of single experts stacked, for example to '{}'",
                                          counted(count, "tensor"), example),
                              {{"tensors", count}}}};
}

}  // namespace poprun
