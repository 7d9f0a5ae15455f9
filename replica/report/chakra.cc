#include "replica/report/chakra.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "replica/machine/machine.h"
#include "replica/program/timeline.h"
#include "replica/report/tile_contents.h"

namespace poprun {
namespace {

using ChakraProtoMsg::Node;

constexpr double kMicrosPerSecond = 1e6;

ChakraProtoMsg::AttributeProto& add_attribute(Node& node, const char* name) {
  ChakraProtoMsg::AttributeProto& attribute = *node.add_attr();
  attribute.set_name(name);
  return attribute;
}

class Tracer {
 public:
  Tracer(const Program& program, std::uint32_t replicas)
      : program_(program), replicas_(replicas), ipus_(std::max(program.ipus(), 1U)) {}

  std::vector<proto::ChakraTrace> call(const proto::Function& function) {
    run(function, function.steps());
    std::vector<proto::ChakraTrace> traces;
    for (Ipu& ipu : ipus_) {
      end_work(ipu);
      traces.push_back(std::move(ipu.trace));
    }
    return traces;
  }

 private:
  struct Ipu {
    proto::ChakraTrace trace;
    std::vector<std::uint64_t> needs;       ///< Nodes on which the next one depends.
    std::vector<std::uint64_t> background;  ///< Collectives that nothing has awaited yet.
    std::uint64_t steps = 0;                ///< Steps since the last node.
    std::string work;                       ///< The first of them.
    std::uint64_t cycles = 0;               ///< Since the beginning of the function.
    std::uint64_t begun = 0;                ///< `cycles` at the end of the last node.
    std::uint64_t flops = 0;
    std::uint64_t bytes = 0;
  };

  void run(const proto::Function& function, const google::protobuf::RepeatedPtrField<proto::Step>& steps) {
    for (const proto::Step& step : steps) {
      if (step.has_repeat()) {
        for (std::uint32_t round = 0; round < step.repeat().count(); ++round) {
          run(function, step.repeat().steps());
        }
      } else if (step.has_call()) {
        const proto::Function* callee = find_function(program_, step.call().function());
        POPRUN_CHECK(callee != nullptr);
        run(*callee, callee->steps());
      } else {
        one(function, step);
      }
    }
  }

  void one(const proto::Function& function, const proto::Step& step) {
    const std::vector<std::uint32_t> ipus = ipus_of(program_, step);
    for (const std::uint32_t ipu : ipus) {
      if (step.links() == proto::LINKS_AWAITED) {
        end_work(ipus_[ipu]);
        std::ranges::move(std::exchange(ipus_[ipu].background, {}), std::back_inserter(ipus_[ipu].needs));
      } else if (is_between_replicas(step) && members_of(step) > 1) {
        collective(function, step, ipu);
      } else {
        work(function, step, ipus_[ipu]);
      }
    }
    if (ipus.size() > 1 && !is_between_replicas(step)) {  // A copy from IPU to IPU.
      copies(function, step);
    }
  }

  /// Returns the number of replicas that take part in an exchange. Shards of groups are also summed over the groups.
  [[nodiscard]] std::uint32_t members_of(const proto::Step& step) const {
    const std::uint32_t group = step.has_all_reduce()   ? step.all_reduce().group()
                                : step.has_all_gather() ? step.all_gather().group()
                                                        : 0;
    return group == 0 ? replicas_ : group;
  }

  std::string name_of(const proto::Function& function, const proto::Step& step) const {
    return fmt::format("{}: {}", function.name(), operation_text(step));
  }

  void work(const proto::Function& function, const proto::Step& step, Ipu& ipu) {
    const proto::Cost& cost = step.cost();
    if (ipu.steps == 0) {
      ipu.work = name_of(function, step);
    }
    ++ipu.steps;
    ipu.cycles += static_cast<std::uint64_t>(total_cycles(cost).count()) - cost.link_cycles();
    ipu.flops += cost.flops();
    const StepTensors tensors = tensors_of(step);
    for (const auto* list : {&tensors.reads, &tensors.writes}) {
      for (const std::uint32_t tensor : *list) {
        ipu.bytes += bytes_of(tensor);
      }
    }
  }

  [[nodiscard]] std::uint64_t bytes_of(std::uint32_t tensor) const {
    return program_.tensors(static_cast<int>(tensor)).bytes();
  }

  [[nodiscard]] std::uint32_t ipu_of(std::uint32_t tensor) const {
    return program_.tensors(static_cast<int>(tensor)).placement().ipu();
  }

  Node& add_node(Ipu& ipu, ChakraProtoMsg::NodeType type, std::string name) {
    const auto id = static_cast<std::uint64_t>(ipu.trace.nodes_size());
    Node& node = *ipu.trace.add_nodes();
    node.set_id(id);
    node.set_type(type);
    node.set_name(std::move(name));
    node.mutable_data_deps()->Assign(ipu.needs.begin(), ipu.needs.end());
    add_attribute(node, "is_cpu_op").set_bool_val(false);
    ipu.needs = {id};
    return node;
  }

  /// Ends the node of the work since the last exchange.
  void end_work(Ipu& ipu) {
    if (ipu.steps == 0) {
      return;
    }
    Node& node = add_node(ipu, ChakraProtoMsg::COMP_NODE,
                          ipu.steps == 1 ? ipu.work : fmt::format("{} and {} more", ipu.work, ipu.steps - 1));
    node.set_duration_micros(micros(ipu.cycles) - micros(ipu.begun));
    add_attribute(node, "num_ops").set_int64_val(static_cast<std::int64_t>(ipu.flops));
    add_attribute(node, "tensor_size").set_uint64_val(ipu.bytes);
    ipu.begun = ipu.cycles;
    ipu.steps = ipu.flops = ipu.bytes = 0;
  }

  [[nodiscard]] std::uint64_t micros(std::uint64_t cycles) const {
    return static_cast<std::uint64_t>(
        std::llround(static_cast<double>(cycles) / program_.device().clock_hz() * kMicrosPerSecond));
  }

  void collective(const proto::Function& function, const proto::Step& step, std::uint32_t number) {
    Ipu& ipu = ipus_[number];
    end_work(ipu);
    // The bytes of a member before the exchange: those of its shards before an all-gather.
    std::uint64_t bytes = 0;
    for (const std::uint32_t tensor : tensors_of(step).reads) {
      bytes += ipu_of(tensor) == number ? bytes_of(tensor) : 0;
    }
    ChakraProtoMsg::CollectiveCommType type = ChakraProtoMsg::ALL_GATHER;
    if (step.has_all_reduce()) {
      type = ChakraProtoMsg::ALL_REDUCE;
    } else if (step.has_reduce_scatter() || step.has_scatter_rows()) {
      // A reduce-scatter within groups is also summed over the groups, for which the schema has no type.
      const bool in_groups = step.has_reduce_scatter() && step.reduce_scatter().group() % replicas_ != 0;
      type = in_groups ? ChakraProtoMsg::ALL_REDUCE : ChakraProtoMsg::REDUCE_SCATTER;
    }
    const std::vector<std::uint64_t> before = ipu.needs;
    Node& node = add_node(ipu, ChakraProtoMsg::COMM_COLL_NODE, name_of(function, step));
    add_attribute(node, "comm_type").set_int64_val(type);
    add_attribute(node, "comm_size").set_int64_val(static_cast<std::int64_t>(bytes));
    add_attribute(node, "pg_name").set_string_val(fmt::format("{}/{}", number, members_of(step)));
    if (step.links() == proto::LINKS_BACKGROUND) {
      ipu.background.push_back(node.id());
      ipu.needs = before;
    }
  }

  /// Adds the transfers of a step from the IPUs of the tensors that it reads to those that it writes.
  void copies(const proto::Function& function, const proto::Step& step) {
    const StepTensors tensors = tensors_of(step);
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> sizes;
    for (std::size_t k = 0; k < std::min(tensors.reads.size(), tensors.writes.size()); ++k) {
      const std::uint32_t from = ipu_of(tensors.reads[k]);
      const std::uint32_t to = ipu_of(tensors.writes[k]);
      if (from != to) {
        sizes[{from, to}] += std::min(bytes_of(tensors.reads[k]), bytes_of(tensors.writes[k]));
      }
    }
    for (const auto& [ends, bytes] : sizes) {
      const std::uint64_t tag = transfers_++;
      for (const bool sends : {true, false}) {
        Ipu& ipu = ipus_[sends ? ends.first : ends.second];
        end_work(ipu);
        Node& node = add_node(ipu, sends ? ChakraProtoMsg::COMM_SEND_NODE : ChakraProtoMsg::COMM_RECV_NODE,
                              name_of(function, step));
        add_attribute(node, "comm_src").set_int32_val(static_cast<std::int32_t>(ends.first));
        add_attribute(node, "comm_dst").set_int32_val(static_cast<std::int32_t>(ends.second));
        add_attribute(node, "comm_size").set_int64_val(static_cast<std::int64_t>(bytes));
        add_attribute(node, "comm_tag").set_int32_val(static_cast<std::int32_t>(tag));
      }
    }
  }

  const Program& program_;
  std::uint32_t replicas_;
  std::vector<Ipu> ipus_;
  std::uint64_t transfers_ = 0;
};

}  // namespace

std::vector<proto::ChakraTrace> chakra_traces(const Program& program, const std::string& function,
                                              std::uint32_t replicas) {
  return Tracer(program, replicas).call(*find_function(program, function));
}

}  // namespace poprun
