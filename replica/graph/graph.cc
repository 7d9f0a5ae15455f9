#include "replica/graph/graph.h"

#include <algorithm>

namespace poprun {
namespace {

constexpr std::string_view kLoad = "load";

/// Placeholder for a tensor that may be added later.
constexpr TensorId kReserved{~std::uint32_t{0}};

std::string salt_name(std::size_t number) {
  return "salt" + std::to_string(number);
}

}  // namespace

std::vector<Place> Graph::add_function(std::string name, const std::vector<std::int64_t>& repeats) {
  Function function{std::move(name), {}};
  std::vector<Place> places;
  for (const std::int64_t repeat : repeats) {
    places.push_back({functions.size(), function.regions.size()});
    function.regions.push_back({repeat, {}});
  }
  functions.push_back(std::move(function));
  return places;
}

Region& Graph::at(Place place) {
  return functions.at(place.function).regions.at(place.region);
}

const Region& Graph::at(Place place) const {
  return functions.at(place.function).regions.at(place.region);
}

Place Graph::load() const {
  const auto found = std::ranges::find(functions, kLoad, &Function::name);
  POPRUN_CHECK(found != functions.end() && found->regions.size() == 1);
  return {static_cast<std::size_t>(found - functions.begin()), 0};
}

Bytes Graph::bytes(const std::vector<TensorId>& ids) const {
  Bytes total;
  for (const TensorId id : ids) {
    total += tensor(id).type.bytes();
  }
  return total;
}

void Graph::reserve(const std::set<std::string>& names) {
  for (const std::string& name : names) {
    by_name_.emplace(name, kReserved);
  }
}

void Graph::release(const std::string& name) {
  if (is_reserved(name)) {
    by_name_.erase(name);
  }
}

bool Graph::is_reserved(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found != by_name_.end() && found->second == kReserved;
}

std::set<std::string> Graph::reserved() const {
  std::set<std::string> names;
  for (const auto& [name, tensor] : by_name_) {
    if (tensor == kReserved) {
      names.insert(name);
    }
  }
  return names;
}

std::string Graph::free_name(const std::string& name) const {
  std::string free = name;
  for (std::size_t number = 1; by_name_.contains(free); ++number) {
    free = name + "." + std::to_string(number);
  }
  return free;
}

TensorId Graph::add_tensor(Tensor tensor) {
  tensor.name = free_name(tensor.name);
  return add_given(std::move(tensor));
}

TensorId Graph::add_given(Tensor tensor) {
  const auto id = static_cast<TensorId>(tensors_.size());
  POPRUN_CHECK(!has(tensor.name));
  by_name_[tensor.name] = id;
  tensors_.push_back(std::move(tensor));
  return id;
}

bool Graph::has_below(std::string_view beginning) const {
  const auto below = std::ranges::find_if(by_name_.lower_bound(beginning), by_name_.end(), [&](const auto& named) {
    return named.second != kReserved || !named.first.starts_with(beginning);
  });
  return below != by_name_.end() && below->first.starts_with(beginning);
}

bool Graph::has(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found != by_name_.end() && found->second != kReserved;
}

void Graph::swap_names(TensorId a, TensorId b) {
  std::swap(tensors_.at(index_of(a)).name, tensors_.at(index_of(b)).name);
  by_name_[tensor(a).name] = a;
  by_name_[tensor(b).name] = b;
}

TensorId Graph::find(std::string_view name) const {
  POPRUN_CHECK(has(name));
  return by_name_.find(name)->second;
}

Operation Call::operation() const {
  Operation operation{std::string{kKind}, {}, {}, {{"function", function}, {"micro_batch", micro_batch}}};
  if (entry != 0) {
    operation.attributes.set("entry", entry);
  }
  for (std::size_t k = 0; k < salts.size(); ++k) {
    operation.attributes.set(salt_name(k), salts[k]);
  }
  return operation;
}

std::optional<Call> Call::from(const Operation& operation) {
  const auto& values = operation.attributes.values();
  const auto function = values.find("function");
  const auto index = values.find("micro_batch");
  const auto entry = values.find("entry");
  if (operation.kind != kKind || function == values.end() || index == values.end() ||
      !std::holds_alternative<std::string>(function->second) || !std::holds_alternative<std::int64_t>(index->second) ||
      (entry != values.end() && !std::holds_alternative<std::int64_t>(entry->second))) {
    return std::nullopt;
  }
  Call call{std::get<std::string>(function->second), std::get<std::int64_t>(index->second),
            entry == values.end() ? 0 : std::get<std::int64_t>(entry->second)};
  for (auto salt = values.find(salt_name(0)); salt != values.end(); salt = values.find(salt_name(call.salts.size()))) {
    if (!std::holds_alternative<std::string>(salt->second)) {
      return std::nullopt;
    }
    call.salts.push_back(std::get<std::string>(salt->second));
  }
  return call;
}

const Function* find_function(const Graph& graph, std::string_view name) {
  const auto found = std::ranges::find(graph.functions, name, &Function::name);
  return found != graph.functions.end() ? &*found : nullptr;
}

std::set<std::string> called_functions(const Graph& graph) {
  std::set<std::string> names;
  for (const Function& function : graph.functions) {
    for (const Region& region : function.regions) {
      for (const Operation& operation : region.operations) {
        if (const std::optional<Call> call = Call::from(operation)) {
          names.insert(call->function);
        }
      }
    }
  }
  return names;
}

bool names(const std::vector<TensorId>& tensors, TensorId id) {
  return std::ranges::find(tensors, id) != tensors.end();
}

}  // namespace poprun
