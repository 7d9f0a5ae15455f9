#include "replica/ops/builder/builder.h"

#include <fmt/format.h>

#include "replica/machine/stream_in.h"

namespace poprun {
Builder::Builder(Graph& graph, Place place, std::string prefix)
    : graph_(graph), place_(place), prefix_(std::move(prefix)) {}

const std::vector<Operation>& Builder::operations() const {
  return graph_.at(place_).operations;
}

void Builder::append(Operation operation) {
  graph_.at(place_).operations.push_back(std::move(operation));
}

bool Builder::is_taken(const std::string& name) const {
  return graph_.has(prefix_ + name) || graph_.has_below(prefix_ + name + ".");
}

void Builder::refuse(Error error) {
  if (status_) {
    status_ = tl::unexpected<Error>{std::move(error)};
  }
}

std::vector<TensorId> Builder::add(std::string kind, std::vector<TensorId> inputs,
                                   Attributes attributes, const std::vector<std::string>& names) {
  std::vector<TensorId> outputs(names.size(), TensorId{0});
  if (!status_) {
    return outputs;
  }
  const Operator* op = find_operator(kind);
  POPRUN_CHECK(op != nullptr);
  Signature signature{{}, {}, attributes};
  for (const TensorId id : inputs) {
    signature.inputs.push_back(type(id));
  }
  const auto types = op->shape(signature);
  if (!types) {
    refuse({types.error().code,
            fmt::format("{}{}: {}", prefix_, names.front(), types.error().message)});
    return outputs;
  }
  POPRUN_CHECK(types->size() == names.size());
  for (std::size_t k = 0; k < names.size(); ++k) {
    outputs[k] = graph_.add_tensor({prefix_ + names[k], (*types)[k], Role::kActivation});
  }
  append({std::move(kind), std::move(inputs), outputs, std::move(attributes)});
  return outputs;
}

TensorId Builder::add_one(std::string kind, std::vector<TensorId> inputs, Attributes attributes,
                          const std::string& name) {
  return add(std::move(kind), std::move(inputs), std::move(attributes), {name})[0];
}

void Builder::update(std::string kind, std::vector<TensorId> inputs, Attributes attributes,
                     std::vector<TensorId> updated) {
  if (status_) {
    append({std::move(kind), std::move(inputs), std::move(updated), std::move(attributes)});
  }
}

TensorId Builder::variable(const std::string& name, TensorType type, Role role,
                           Initialiser initialiser) {
  if (!status_) {
    return TensorId{0};
  }
  if (graph_.has(name)) {
    const TensorId id = graph_.find(name);
    POPRUN_CHECK(graph_.tensor(id).type == type && graph_.tensor(id).role == role);
    return id;
  }
  const TensorId id = graph_.add_tensor({name, std::move(type), role});
  graph_.at(graph_.load()).operations.push_back(Initialise{id, initialiser}.operation());
  return id;
}

std::vector<TensorId> Builder::stream_in(const std::string& stream,
                                         const std::vector<std::string>& names,
                                         const std::vector<TensorType>& types) {
  std::vector<TensorId> outputs;
  for (std::size_t k = 0; k < names.size(); ++k) {
    outputs.push_back(graph_.add_tensor({prefix_ + names[k], types[k], Role::kStream}));
  }
  append(StreamIn{stream, outputs}.operation());
  return outputs;
}

}  // namespace poprun
