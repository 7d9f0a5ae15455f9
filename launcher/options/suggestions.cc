#include "launcher/options/suggestions.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "launcher/options/option_table.h"
#include "replica/base/nearest.h"

namespace poprun::launcher {
namespace {

using Pair = std::pair<std::string_view, std::string_view>;

constexpr std::string_view kMpiOption = "belongs to mpirun; pass it on with --mpi-global-args";
constexpr std::string_view kOneLauncher =
    "is not needed: poprun-emu is started once and starts the processes on all hosts of --host or "
    "--hostfile";
constexpr std::string_view kSlots =
    "is not an option: --num-instances is the number of processes in the whole job, and --host "
    "node0:4,node1:4 places 4 of them on each host";

/// Options of others for which none of ours does the same: what to do instead.
constexpr Pair kInstead[] = {
    // poprun
    {"import-config",
     "is poprun's; here the settings of a job are in train.cfg and its placement is on the command "
     "line"},
    {"export-config",
     "is poprun's; here --dry-run prints every resolved setting in the form of a train.cfg"},
    {"overwrite-config",
     "is poprun's; here --dry-run prints every resolved setting in the form of a train.cfg"},
    {"version-format",
     "is poprun's; here --version has one form, and profile.json lists the versions of the "
     "libraries"},
    // mpirun
    {"mca", kMpiOption},
    {"bind-to", kMpiOption},
    {"map-by", kMpiOption},
    {"rank-by", kMpiOption},
    {"report-bindings", kMpiOption},
    {"tag-output", kMpiOption},
    {"oversubscribe", "is not needed: a host may run more instances than it has cores"},
    {"npernode", kSlots},
    {"ppn", kSlots},
    // torchrun
    {"nproc-per-node", kSlots},
    {"nnodes", "is not an option: the hosts are listed with --host node0,node1 or --hostfile FILE"},
    {"node-rank", kOneLauncher},
    {"master-addr", kOneLauncher},
    {"master-port", kOneLauncher},
    {"rdzv-backend", kOneLauncher},
    {"rdzv-endpoint", kOneLauncher},
    {"rdzv-id", kOneLauncher},
    {"config", "is not needed: name the file itself, as in poprun-emu -n 16 train.cfg"}};

/// Options of others that one of ours stands for.
constexpr Pair kNames[] = {
    {"np", "num-replicas"},
    {"n", "num-replicas"},
    {"N", "num-replicas"},
    {"nproc", "num-replicas"},
    {"world-size", "num-replicas"},
    {"num-gpus", "num-replicas"},
    {"gpus", "num-replicas"},
    {"devices", "num-replicas"},
    {"x", "mpi-local-args"},
    {"max-restarts", "restarts"},
    {"resume-from-checkpoint", "resume"},
    {"checkpoint", "checkpoint-every"},
    {"save-steps", "checkpoint-every"},
    {"save-total-limit", "checkpoint-keep"},
    {"min-np", "hosts-min"},
    {"machinefile", "hostfile"},
    {"o", "output-dir"},
    {"output", "output-dir"},
    {"lr", "training.learning-rate"},
    {"wd", "training.weight-decay"},
    {"max-grad-norm", "training.clip-norm"},
    {"stages", "pipeline.layers-per-ipu"},
    {"num-stages", "pipeline.layers-per-ipu"},
    {"pipeline-parallel-size", "ipus-per-replica"},
    {"gradient-accumulation-steps", "training.gradient-accumulation"},
    {"dataset", "data.source"},
    {"fp16", "model.precision"},
    {"amp", "model.precision"},
    {"availableMemoryProportion", "memory.available-memory-proportion"},
    {"setAvailableMemoryProportion", "memory.available-memory-proportion"},
    {"set-available-memory", "memory.available-memory-proportion-operators"},
    {"partialsType", "model.partials"},
    {"embedding_serialization_factor", "model.embedding-serialisation-factor"},
    {"serializedMatMul", "model.serialised-matmuls"},
    {"numIOTiles", "device.io-tiles"},
    {"num-io-tiles", "device.io-tiles"},
    {"partials-type", "model.partials"},
    {"dtype", "model.precision"}};

std::string_view find(std::span<const Pair> pairs, std::string_view name) {
  const auto known = std::ranges::find(pairs, name, &Pair::first);
  return known == pairs.end() ? std::string_view{} : known->second;
}

/// The options that may have been meant by `typed`.
std::vector<std::string> meant_by(std::string_view typed) {
  if (const std::string_view ours = called_elsewhere(typed); !ours.empty()) {
    return {fmt::format("--{}", ours)};
  }
  std::vector<std::string> candidates;
  const auto key_of = [](const std::string& name) { return name.substr(name.find('.') + 1); };
  for (const OptionRow& row : option_table()) {
    candidates.push_back(row.name);
    candidates.push_back(key_of(row.name));
  }
  const std::string close = nearest(typed, candidates);
  std::vector<std::string> meant;
  for (const OptionRow& row : option_table()) {
    const bool ends_so =
        close.empty() && typed.size() > 3 && row.name.ends_with(fmt::format("-{}", typed));
    if (row.name == close || key_of(row.name) == close || ends_so) {
      meant.push_back("--" + row.name);
    }
  }
  return meant;
}

}  // namespace

std::string_view called_elsewhere(std::string_view typed) {
  return find(kNames, typed.substr(typed.find('.') + 1));
}

std::string unknown_option(std::string_view typed) {
  std::string bare(typed.substr(std::min(typed.find_first_not_of('-'), typed.size())));
  std::ranges::replace(bare, '_', '-');
  if (const std::string_view instead = find(kInstead, bare); !instead.empty()) {
    return fmt::format("{} {}", typed, instead);
  }
  const std::vector<std::string> meant = meant_by(bare);
  return fmt::format("{}: unknown option; {}", typed,
                     meant.empty() ? "see poprun-emu --help all"
                                   : fmt::format("did you mean {}?", fmt::join(meant, " or ")));
}

}  // namespace poprun::launcher
