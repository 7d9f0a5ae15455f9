#include "replica/ops/builder/builder.h"

#include <algorithm>

#include <fmt/format.h>

#include "replica/base/text.h"

namespace poprun {
namespace {

/// Returns "; did you mean gelu?", or nothing if no operator has a similar name.
std::string guess(const std::string& kind) {
  std::vector<std::string> kinds;
  for (const Operator& op : all_operators()) {
    kinds.push_back(op.kind);
  }
  const std::string close = nearest(kind, kinds);
  return close.empty() ? "" : fmt::format("; did you mean {}?", close);
}

}  // namespace

Builder::Builder(Graph& graph, Place place, std::string prefix, Naming naming)
    : graph_(graph), place_(place), prefix_(std::move(prefix)), naming_(naming) {}

const std::vector<Operation>& Builder::operations() const {
  return graph_.at(place_).operations;
}

void Builder::append(Operation operation) {
  graph_.at(place_).operations.push_back(std::move(operation));
}

void Builder::layer(const std::string& name, bool counted) {
  std::vector<Layer>& layers = graph_.layers;
  const auto found = std::ranges::find(layers, name, &Layer::name);
  origin_ = {.layer = static_cast<std::int32_t>(found - layers.begin())};
  if (found == layers.end()) {
    layers.push_back({name, counted});
  } else if (found->counted != counted) {
    blame(name, "is a counted layer in one place and an uncounted one in another");
  }
}

void Builder::layer_from(std::size_t first, const std::string& name) {
  layer(name);
  std::vector<Operation>& operations = graph_.at(place_).operations;
  for (std::size_t k = first; k < operations.size(); ++k) {
    operations[k].origin = origin_;
  }
}

bool Builder::is_taken(const std::string& name) const {
  return graph_.has(prefix_ + name) || graph_.has_below(prefix_ + name + ".");
}

void Builder::refuse(Error error) {
  if (status_) {
    status_ = tl::unexpected<Error>{std::move(error)};
  }
}

void Builder::restate(Error error) {
  status_ = tl::unexpected<Error>{std::move(error)};
}

void Builder::blame(const std::string& name, const std::string& what) {
  refuse({ErrorCode::kBug, fmt::format("{}: {}", name, what)});
}

std::optional<std::vector<TensorType>> Builder::checked(const std::string& kind, const std::vector<TensorId>& inputs,
                                                        const Attributes& attributes, const std::string& name) {
  if (!status_) {
    return std::nullopt;
  }
  const Operator* op = find_operator(kind);
  if (op == nullptr) {
    blame(name, fmt::format("operator '{}' is not supported{}", kind, guess(kind)));
    return std::nullopt;
  }
  Signature signature{{}, {}, attributes};
  for (const TensorId id : inputs) {
    signature.inputs.push_back(type(id));
  }
  auto types = op->shape(signature);
  if (!types) {
    refuse({types.error().code, fmt::format("{}: {}", name, types.error().message)});
    return std::nullopt;
  }
  return std::move(*types);
}

std::vector<TensorId> Builder::add(std::string kind, std::vector<TensorId> inputs, Attributes attributes,
                                   const std::vector<std::string>& names) {
  std::vector<TensorId> outputs(names.size(), TensorId{0});
  const auto types = checked(kind, inputs, attributes, prefix_ + names.front());
  if (!types) {
    return outputs;
  }
  if (types->size() != names.size()) {
    blame(prefix_ + names.front(), fmt::format("operator '{}' has {}, but the model names {}", kind,
                                               counted(types->size(), "output"), names.size()));
    return outputs;
  }
  for (std::size_t k = 0; k < names.size(); ++k) {
    const std::string name = prefix_ + names[k];
    if (naming_ == Naming::kModel && graph_.has(name)) {
      blame(name, fmt::format("this name is taken; operator '{}' would create a second tensor with this name", kind));
      return outputs;
    }
    outputs[k] = graph_.add_tensor({name, (*types)[k], Role::kActivation});
  }
  append({std::move(kind), std::move(inputs), outputs, std::move(attributes), origin_});
  return outputs;
}

TensorId Builder::add_one(std::string kind, std::vector<TensorId> inputs, Attributes attributes,
                          const std::string& name) {
  return add(std::move(kind), std::move(inputs), std::move(attributes), {name})[0];
}

void Builder::update(std::string kind, std::vector<TensorId> inputs, Attributes attributes,
                     std::vector<TensorId> updated) {
  const std::string name = status_ ? graph_.tensor(updated.front()).name : "";
  if (checked(kind, inputs, attributes, name)) {
    append({std::move(kind), std::move(inputs), std::move(updated), std::move(attributes), origin_});
  }
}

std::optional<TensorId> Builder::existing(const std::string& name, const TensorType& type, Role role) {
  if (!graph_.has(name)) {
    return std::nullopt;
  }
  const TensorId id = graph_.find(name);
  const Tensor& had = graph_.tensor(id);
  if (had.type != type || had.role != role) {
    blame(name, fmt::format("already exists as {} {}; cannot redefine it as {} {}", to_text(had.type),
                            to_text(had.role), to_text(type), to_text(role)));
  }
  return id;
}

TensorId Builder::variable(const std::string& name, TensorType type, Role role, Initialiser initialiser) {
  if (!status_) {
    return TensorId{0};
  }
  if (const auto id = existing(name, type, role)) {
    return *id;
  }
  const TensorId id = graph_.add_given({name, std::move(type), role});
  graph_.at(graph_.load()).operations.push_back(Initialise{id, initialiser}.operation());
  return id;
}

TensorId Builder::constant(const std::string& name, Shape shape, std::vector<double> values) {
  Attributes attributes{{"shape", std::move(shape)}, {"values", std::move(values)}};
  const auto types = checked("constant", {}, attributes, name);
  if (!types) {
    return TensorId{0};
  }
  if (const auto id = existing(name, types->front(), Role::kConstant)) {
    return *id;
  }
  const TensorId id = graph_.add_given({name, types->front(), Role::kConstant});
  graph_.at(graph_.load()).operations.push_back({"constant", {}, {id}, std::move(attributes)});
  return id;
}

void Builder::keep_f32(TensorId id) {
  if (status_) {
    graph_.keep_f32(id);
  }
}

template <typename Rows>
TensorId Builder::add_rows(TensorId operand, std::int64_t multiplier, std::int64_t divisor, const std::string& name) {
  if (!status_) {
    return TensorId{0};
  }
  if (naming_ == Naming::kModel && graph_.has(prefix_ + name)) {
    blame(prefix_ + name, "this name is taken by another tensor");
    return TensorId{0};
  }
  Tensor added{prefix_ + name, type(operand), graph_.tensor(operand).role};
  added.type.shape.at(0) = added.type.shape.at(0) * multiplier / divisor;
  added.role = added.role == Role::kActivation ? Role::kActivation : Role::kMetric;
  added.keeps_f32 = graph_.tensor(operand).keeps_f32;
  const TensorId result = graph_.add_tensor(std::move(added));
  append(Rows{operand, result}.operation());
  graph_.at(place_).operations.back().origin = origin_;
  return result;
}

TensorId Builder::gather_rows(TensorId own, std::int64_t replicas, const std::string& name) {
  return add_rows<GatherRows>(own, replicas, 1, name);
}

TensorId Builder::scatter_rows(TensorId all, std::int64_t replicas, const std::string& name) {
  return add_rows<ScatterRows>(all, 1, replicas, name);
}

TensorId Builder::own_rows(TensorId all, std::int64_t replicas, const std::string& name) {
  return add_rows<OwnRows>(all, 1, replicas, name);
}

std::vector<TensorId> Builder::stream_in(const std::string& stream, const std::vector<std::string>& names,
                                         const std::vector<TensorType>& types) {
  std::vector<TensorId> outputs;
  for (std::size_t k = 0; k < names.size(); ++k) {
    outputs.push_back(graph_.add_tensor({prefix_ + names[k], types[k], Role::kStream}));
  }
  append(StreamIn{stream, outputs}.operation());
  return outputs;
}

}  // namespace poprun
