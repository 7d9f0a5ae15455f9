#include "replica/compiler/techniques/pipeline/parts.h"

#include <algorithm>

#include <fmt/format.h>

namespace poprun {

std::optional<std::uint32_t> Homes::of(TensorId tensor) const {
  return homes_.at(index_of(tensor));
}

void Homes::settle(TensorId tensor, std::uint32_t ipu) {
  std::optional<std::uint32_t>& home = homes_.at(index_of(tensor));
  if (!home) {
    home = ipu;
    graph_.set_ipu(tensor, ipu);
  }
}

TensorId Homes::on(TensorId variable, std::uint32_t ipu) {
  settle(variable, ipu);
  if (of(variable) == ipu) {
    return variable;
  }
  const auto [entry, absent] = replica_on_.try_emplace({variable, ipu}, variable);
  if (absent) {
    const Tensor& tensor = graph_.tensor(variable);
    entry->second = add(fmt::format("{}@ipu{}", tensor.name, ipu), tensor.type, variable, ipu);
    replicas_.push_back({variable, entry->second});
  }
  return entry->second;
}

TensorId Homes::add(const std::string& name, TensorType type, TensorId like, std::uint32_t ipu) {
  // Only the original parameters and buffers are saved and trained.
  const Role role = graph_.tensor(like).role == Role::kStream ? Role::kStream : Role::kActivation;
  const TensorId original = graph_.tensor(like).copy_of.value_or(like);
  const TensorId id = graph_.add_tensor({name, std::move(type), role, graph_.tensor(like).keeps_f32, ipu, original});
  homes_.emplace_back(ipu);
  return id;
}

Status Parts::take(const std::vector<Operation>& operations) {
  for (const Operation& operation : operations) {
    if (const std::optional<StreamIn> stream = StreamIn::from(operation)) {
      take_stream(*stream);
    } else {
      POPRUN_TRY(take_operation(operation));
    }
  }
  finish_streams();
  return {};
}

std::vector<Operation> Parts::operations_of(std::size_t part) const {
  std::vector<Operation> all;
  if (part < stages() && !streams_[part].tensors.empty()) {
    const Streams& streams = streams_[part];
    StreamIn stream{streams.name, {}};
    for (const auto& [field, tensor] : streams.tensors) {
      stream.tensors.push_back(tensor);
      stream.fields.push_back(field);
    }
    if (stream.fields.size() == fields_.size()) {
      stream.fields.clear();  // An empty list means the whole batch.
    }
    all.push_back(stream.operation());
    all.back().origin = origin_of(part);
  }
  const Part& p = parts_[part];
  for (std::size_t i = 0; i <= p.operations.size(); ++i) {
    if (const auto stashes = p.stashes.find(i); stashes != p.stashes.end()) {
      all.insert(all.end(), stashes->second.begin(), stashes->second.end());
    }
    if (i < p.operations.size()) {
      all.push_back(p.operations[i]);
    }
  }
  return all;
}

std::vector<Operation> Parts::bringing(std::size_t part) const {
  const Part& p = parts_[part];
  std::vector<Operation> all = p.before;
  if (!p.brought.from_tensors.empty()) {
    all.push_back(p.brought.operation());
  }
  all.insert(all.end(), p.behind.begin(), p.behind.end());
  return all;
}

std::size_t Parts::part_of(const Operation& operation) const {
  const std::size_t stage = operation.origin.stage;
  return operation.origin.direction == Direction::kForward ? stage : 2 * stages() - 1 - stage;
}

Origin Parts::origin_of(std::size_t part) const {
  return {kNoLayer, static_cast<std::uint32_t>(stage_of(part)),
          part < stages() ? Direction::kForward : Direction::kBackward};
}

void Parts::take_stream(const StreamIn& stream) {
  for (std::size_t k = 0; k < stream.tensors.size(); ++k) {
    fields_[stream.tensors[k]] = {stream.stream, static_cast<std::int64_t>(k)};
  }
}

Status Parts::take_operation(const Operation& operation) {
  const std::size_t part = part_of(operation);
  Operation local_operation = operation;
  for (TensorId& input : local_operation.inputs) {
    POPRUN_ASSIGN(input, local(input, part));
  }
  Part& p = parts_.at(part);
  for (const TensorId output : operation.outputs) {
    const bool updates = std::ranges::find(operation.inputs, output) != operation.inputs.end();
    homes_.settle(output, ipu_of(part));
    if (homes_.of(output) != ipu_of(part)) {
      return fail(ErrorCode::kUsage,
                  fmt::format("'{}' is updated by stage {} on IPU {}, but is stored on IPU {}; put all "
                              "operations that update it into one stage",
                              graph_.tensor(output).name, stage_of(part), ipu_of(part), *homes_.of(output)));
    }
    if (!updates) {
      made_in_[output] = part;
      locals_[{output, part}] = {output, p.operations.size() + 1};
    }
  }
  p.operations.push_back(std::move(local_operation));
  return {};
}

Result<TensorId> Parts::local(TensorId tensor, std::size_t part) {
  if (const auto known = locals_.find({tensor, part}); known != locals_.end()) {
    return known->second.tensor;
  }
  if (phased_ > 0 && (fields_.contains(tensor) ? part >= stages() : made_in_.contains(tensor))) {
    return carried(tensor, part).tensor;
  }
  if (fields_.contains(tensor)) {
    return (part < stages() ? streamed(tensor, part) : kept(tensor, part)).tensor;
  }
  const auto made = made_in_.find(tensor);
  if (made == made_in_.end()) {
    return homes_.on(tensor, ipu_of(part));
  }
  if (made->second > part) {
    return fail(ErrorCode::kBug, fmt::format("stage {} reads '{}', which stage {} computes later", stage_of(part),
                                             graph_.tensor(tensor).name, stage_of(made->second)));
  }
  if (part < stages() || made->second >= stages()) {
    return moved(tensor, part).tensor;
  }
  // A forward tensor that a backward part reads is kept in its own stage or the reader's, whichever is later, and then
  // moved.
  const std::size_t keeper = 2 * stages() - 1 - std::max(stage_of(made->second), stage_of(part));
  if (!locals_.contains({tensor, keeper})) {
    kept(tensor, keeper);
  }
  return moved(tensor, part).tensor;
}

Parts::Local Parts::streamed(TensorId tensor, std::size_t part) {
  const auto& [stream, field] = fields_.at(tensor);
  Local local{tensor};
  const bool first =
      std::ranges::none_of(streams_, [field = field](const Streams& s) { return s.tensors.contains(field); });
  if (first) {
    homes_.settle(tensor, ipu_of(part));
  } else {
    local.tensor = homes_.add(fmt::format("{}@stage{}", graph_.tensor(tensor).name, part), graph_.tensor(tensor).type,
                              tensor, ipu_of(part));
  }
  streams_[part].name = stream;
  streams_[part].tensors[field] = local.tensor;
  return locals_[{tensor, part}] = local;
}

/// Copies a tensor from part to part, beginning at the nearest earlier part in the same direction that has it.
Parts::Local Parts::moved(TensorId tensor, std::size_t part) {
  if (const auto known = locals_.find({tensor, part}); known != locals_.end()) {
    return known->second;
  }
  const Local before = moved(tensor, part - 1);
  const TensorId copy = homes_.add(fmt::format("{}@stage{}", graph_.tensor(tensor).name, stage_of(part)),
                                   graph_.tensor(tensor).type, tensor, ipu_of(part));
  parts_[part - 1].crossing.from_tensors.push_back(before.tensor);
  parts_[part - 1].crossing.to_tensors.push_back(copy);
  return locals_[{tensor, part}] = {copy};
}

/// Keeps a tensor of a stage's forward part for its backward part.
Parts::Local Parts::kept(TensorId tensor, std::size_t part) {
  const std::size_t stage = stage_of(part);
  Local local{};
  if (const auto known = locals_.find({tensor, stage}); known != locals_.end()) {
    local = known->second;
  } else {
    local = fields_.contains(tensor) ? streamed(tensor, stage) : moved(tensor, stage);
  }
  if (lengths_.at(stage) == 1) {
    return locals_[{tensor, part}] = {local.tensor};
  }
  const std::string name = graph_.tensor(local.tensor).name;
  const TensorType type = graph_.tensor(local.tensor).type;
  const TensorId stash = homes_.add(name + ".stash", stash_type(type, lengths_[stage]), local.tensor, ipu_of(part));
  const TensorId restored = homes_.add(name + ".restored", type, local.tensor, ipu_of(part));
  Operation stashes = Stash{stash, local.tensor}.operation();
  stashes.origin = origin_of(stage);
  parts_[stage].stashes[local.behind].push_back(std::move(stashes));
  Operation restores = Restore{stash, restored}.operation();
  restores.origin = origin_of(part);
  parts_[part].operations.push_back(std::move(restores));
  return locals_[{tensor, part}] = {restored, parts_[part].operations.size()};
}

/// In phases, carries a tensor to a later part. A streamed tensor comes from the forward part of the same stage.
Parts::Local Parts::carried(TensorId tensor, std::size_t part) {
  const std::size_t stage = stage_of(part);
  const auto forward = locals_.find({tensor, stage});
  if (part == stages() && forward != locals_.end()) {  // The last stage's parts are one phase.
    return locals_[{tensor, part}] = {forward->second.tensor};
  }
  const bool is_streamed = fields_.contains(tensor);
  const std::size_t maker = is_streamed ? stage : made_in_.at(tensor);
  const auto known = locals_.find({tensor, maker});
  const Local made = known == locals_.end() ? streamed(tensor, maker) : known->second;
  if (part == stages() && maker == stage) {
    return locals_[{tensor, part}] = {made.tensor};
  }
  const TensorId from = held(made, maker, part);
  if (phased_ == 1) {
    return locals_[{tensor, part}] = {from};
  }
  const Tensor& original = graph_.tensor(made.tensor);
  const std::string name = part < stages() || maker >= stages() ? fmt::format("{}@stage{}", original.name, stage)
                                                                : original.name + ".restored";
  const TensorId restored = homes_.add(name, original.type, made.tensor, ipu_of(part));
  Operation restores = Restore{from, restored}.operation();
  restores.origin = origin_of(part);
  parts_[part].operations.push_back(std::move(restores));
  return locals_[{tensor, part}] = {restored, parts_[part].operations.size()};
}

/// Returns the tensor that holds, on the IPU of part `reader`, a tensor computed by part `maker`.
TensorId Parts::held(const Local& made, std::size_t maker, std::size_t reader) {
  const auto on_own = std::pair{made.tensor, ipu_of(maker)};
  if (!held_.contains(on_own)) {
    held_[on_own] = made.tensor;
    if (phased_ > 1) {
      const Tensor original = graph_.tensor(made.tensor);
      const TensorId stash =
          homes_.add(original.name + ".stash", stash_type(original.type, phased_), made.tensor, ipu_of(maker));
      Operation stashes = Stash{stash, made.tensor}.operation();
      stashes.origin = origin_of(maker);
      parts_[maker].stashes[made.behind].push_back(std::move(stashes));
      held_[on_own] = stash;
    }
  }
  const auto on_readers = std::pair{made.tensor, ipu_of(reader)};
  if (!held_.contains(on_readers)) {
    held_[on_readers] = brought(made.tensor, held_.at(on_own), reader);
  }
  return held_.at(on_readers);
}

/// Adds, before part `reader`, a copy of a tensor from its holder on another IPU. Returns the tensor's new holder.
TensorId Parts::brought(TensorId tensor, TensorId held, std::size_t reader) {
  const std::uint32_t ipu = ipu_of(reader);
  const std::string name = graph_.tensor(tensor).name;
  const TensorType type = graph_.tensor(tensor).type;
  Part& p = parts_[reader];
  if (phased_ == 1) {
    p.brought.from_tensors.push_back(held);
    p.brought.to_tensors.push_back(homes_.add(fmt::format("{}@ipu{}", name, ipu), type, tensor, ipu));
    return p.brought.to_tensors.back();
  }
  const TensorId sent = homes_.add(name + ".sent", type, tensor, graph_.tensor(held).ipu);
  const TensorId arrived = homes_.add(name + ".arrived", type, tensor, ipu);
  const TensorId stash = homes_.add(fmt::format("{}.stash@ipu{}", name, ipu), stash_type(type, phased_), tensor, ipu);
  p.before.push_back(Restore{held, sent}.operation());
  p.brought.from_tensors.push_back(sent);
  p.brought.to_tensors.push_back(arrived);
  p.behind.push_back(Stash{stash, arrived}.operation());
  return stash;
}

/// Streams unread fields to the first stage, because the host streams whole batches.
void Parts::finish_streams() {
  for (const auto& [tensor, field] : fields_) {
    const bool read =
        std::ranges::any_of(streams_, [place = field.second](const Streams& s) { return s.tensors.contains(place); });
    if (!read) {
      streamed(tensor, 0);
    }
  }
}

}  // namespace poprun
