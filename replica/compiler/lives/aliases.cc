#include "replica/compiler/lives/aliases.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <span>

#include "replica/ops/face/operator.h"

namespace poprun {
namespace {

constexpr std::int64_t kAlignment = 64;

bool is_live(const Life& life, std::uint32_t step) {
  const auto next = std::ranges::upper_bound(life.spans, step, {}, &Span::first);
  return next != life.spans.begin() && step <= std::prev(next)->last;
}

/// `to` begins `distance` bytes after `from`.
struct Link {
  std::uint32_t from;
  std::uint32_t to;
  std::int64_t distance;
};

struct Member {
  std::uint32_t tensor;
  std::int64_t offset;
};

class AliasAnalysis {
 public:
  AliasAnalysis(const Graph& graph, const Liveness& liveness)
      : graph_(graph), liveness_(liveness), writes_(graph.tensors().size()) {
    for (std::uint32_t t = 0; t < graph.tensors().size(); ++t) {
      blocks_.push_back({{t, 0}});
      block_of_.push_back(t);
    }
  }

  Aliases run() {
    for_each_operation([this](const Operation& operation, std::uint32_t step) {
      for (const TensorId id : operation.outputs) {
        writes_[index_of(id)].push_back(step);
      }
    });
    for_each_operation([this](const Operation& operation, std::uint32_t step) {
      if (const Operator* op = find_operator(operation.kind); op != nullptr) {
        if (!make_view(*op, operation, step)) {
          run_in_place(*op, operation, step);
        }
      }
    });
    return aliases();
  }

 private:
  /// Visits all operations, with steps numbered as in liveness.h.
  template <typename Call>
  void for_each_operation(Call call) const {
    std::uint32_t step = 0;
    for (const Function& function : graph_.functions) {
      for (const Region& region : function.regions) {
        for (const Operation& operation : region.operations) {
          call(operation, step++);
        }
        step += region.repeat > 1 ? 1 : 0;
      }
    }
  }

  bool make_view(const Operator& op, const Operation& operation, std::uint32_t step) {
    const std::vector<Overlay> overlays =
        op.view == nullptr ? std::vector<Overlay>{} : op.view(signature_of(graph_, operation));
    if (overlays.empty()) {
      return false;
    }
    std::vector<Link> links;
    std::ranges::transform(overlays, std::back_inserter(links), [&](const Overlay& overlay) {
      return Link{static_cast<std::uint32_t>(index_of(operation.inputs[overlay.input])),
                  static_cast<std::uint32_t>(index_of(operation.outputs[overlay.output])), overlay.distance.count()};
    });
    // A view does not write its outputs at this step.
    for (const TensorId id : operation.outputs) {
      std::erase(writes_[index_of(id)], step);
    }
    if (join(links, {})) {
      return true;
    }
    for (const TensorId id : operation.outputs) {
      writes_[index_of(id)].push_back(step);
    }
    return false;
  }

  void run_in_place(const Operator& op, const Operation& operation, std::uint32_t step) {
    if (op.in_place.empty()) {
      return;
    }
    const Signature signature = signature_of(graph_, operation);
    const auto output = static_cast<std::uint32_t>(index_of(operation.outputs[0]));
    for (const std::size_t input : op.in_place) {
      if (input >= operation.inputs.size() || !may_take(op, signature, input)) {
        continue;
      }
      const auto taken = static_cast<std::uint32_t>(index_of(operation.inputs[input]));
      if (taken != output && all_uses_may_be_taken(op, operation, taken) &&
          std::ranges::binary_search(liveness_.deaths[step], taken) &&
          join({{taken, output, 0}}, {{step, taken, output}})) {
        return;
      }
    }
  }

  static bool all_uses_may_be_taken(const Operator& op, const Operation& operation, std::uint32_t tensor) {
    for (std::size_t i = 0; i < operation.inputs.size(); ++i) {
      if (index_of(operation.inputs[i]) == tensor && std::ranges::find(op.in_place, i) == op.in_place.end()) {
        return false;
      }
    }
    return true;
  }

  /// A step at which `output` may overwrite `taken`.
  struct Taking {
    std::uint32_t step;
    std::uint32_t taken;
    std::uint32_t output;
  };

  /// Joins the blocks of the links' tensors into one if this preserves every value. Returns whether it did.
  bool join(const std::vector<Link>& links, const std::optional<Taking>& taking) {
    std::vector<Member> members = blocks_[block_of_[links[0].from]];
    for (const Link& link : links) {
      const Member* from = find(members, link.from);
      const Member* to = find(members, link.to);
      if (from != nullptr && to != nullptr) {
        if (to->offset - from->offset != link.distance) {
          return false;
        }
        continue;
      }
      POPRUN_CHECK(from != nullptr || to != nullptr);  // A view's links connect all its tensors.
      const Member known = from != nullptr ? *from : *to;
      const std::uint32_t tensor = from != nullptr ? link.to : link.from;
      const std::int64_t offset = known.offset + (from != nullptr ? link.distance : -link.distance);
      if (link.distance % kAlignment != 0 || !is_home_alike(known.tensor, tensor)) {
        return false;
      }
      std::vector<Member> more = blocks_[block_of_[tensor]];
      const std::int64_t shift = offset - find(more, tensor)->offset;
      for (Member& member : more) {
        member.offset += shift;
        if (!fits(member, members, taking)) {
          return false;
        }
      }
      members.insert(members.end(), more.begin(), more.end());
    }
    commit(std::move(members));
    return true;
  }

  static const Member* find(const std::vector<Member>& members, std::uint32_t tensor) {
    const auto found = std::ranges::find(members, tensor, &Member::tensor);
    return found == members.end() ? nullptr : &*found;
  }

  [[nodiscard]] bool is_home_alike(std::uint32_t a, std::uint32_t b) const {
    return graph_.tensors()[a].ipu == graph_.tensors()[b].ipu && !liveness_.lives[a].spans.empty() &&
           !liveness_.lives[b].spans.empty();
  }

  /// Returns whether a tensor and those of `others` that overlap it never overwrite each other's live values.
  [[nodiscard]] bool fits(const Member& member, const std::vector<Member>& others,
                          const std::optional<Taking>& taking) const {
    return std::ranges::all_of(others, [&](const Member& other) {
      const bool apart = member.offset + size_of(member.tensor) <= other.offset ||
                         other.offset + size_of(other.tensor) <= member.offset;
      return apart ||
             (!overwrites(member.tensor, other.tensor, taking) && !overwrites(other.tensor, member.tensor, taking));
    });
  }

  /// Returns whether `other` is live at a step that writes `tensor`, unless `tensor` takes the bytes of `other` at that
  /// step.
  [[nodiscard]] bool overwrites(std::uint32_t tensor, std::uint32_t other, const std::optional<Taking>& taking) const {
    return std::ranges::any_of(writes_[tensor], [&](std::uint32_t step) {
      const bool takes = taking && taking->step == step && taking->output == tensor && taking->taken == other;
      return !takes && is_live(liveness_.lives[other], step);
    });
  }

  [[nodiscard]] std::int64_t size_of(std::uint32_t tensor) const {
    return graph_.tensors()[tensor].type.bytes().count();
  }

  void commit(std::vector<Member> members) {
    const std::uint32_t block = block_of_[members[0].tensor];
    for (const Member& member : members) {
      blocks_[block_of_[member.tensor]].clear();
      block_of_[member.tensor] = block;
    }
    blocks_[block] = std::move(members);
  }

  [[nodiscard]] Aliases aliases() const {
    Aliases aliases(blocks_.size());
    for (std::uint32_t b = 0; b < blocks_.size(); ++b) {
      if (blocks_[b].size() < 2) {
        continue;
      }
      const std::int64_t begin = std::ranges::min(blocks_[b], {}, &Member::offset).offset;
      for (const Member& member : blocks_[b]) {
        aliases[member.tensor] = Alias{b, Bytes{member.offset - begin}};
      }
    }
    return aliases;
  }

  const Graph& graph_;
  const Liveness& liveness_;
  std::vector<std::vector<std::uint32_t>> writes_;  ///< For each tensor, the steps that write its bytes.
  std::vector<std::vector<Member>> blocks_;
  std::vector<std::uint32_t> block_of_;  ///< Indexed by tensor.
};

}  // namespace

Aliases find_aliases(const Graph& graph, const Liveness& liveness) {
  return AliasAnalysis(graph, liveness).run();
}

bool is_view(const Graph& graph, const Operation& operation, const Aliases& aliases) {
  const Operator* op = find_operator(operation.kind);
  if (op == nullptr || op->view == nullptr || aliases.empty()) {
    return false;
  }
  std::set<std::uint32_t> blocks;
  const auto offsets = [&](const std::vector<TensorId>& tensors) {
    std::vector<std::int64_t> all;
    for (const TensorId id : tensors) {
      const std::optional<Alias>& alias = aliases[index_of(id)];
      blocks.insert(alias ? alias->block : static_cast<std::uint32_t>(-1));
      all.push_back(alias ? alias->offset.count() : 0);
    }
    return all;
  };
  const std::vector<std::int64_t> inputs = offsets(operation.inputs);
  const std::vector<std::int64_t> outputs = offsets(operation.outputs);
  return blocks.size() == 1 && !blocks.contains(static_cast<std::uint32_t>(-1)) &&
         is_view(*op, signature_of(graph, operation), inputs, outputs);
}

}  // namespace poprun
