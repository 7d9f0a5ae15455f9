#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/check.pb.h"
#include "proto/run_config.pb.h"
#include "replica/base/error.h"
#include "replica/program/program.h"

/// The ways to run one job that must give the same bits.
namespace poprun {

/// Where a variant keeps weights, optimiser state, accumulators and stashes.
enum class Placement : std::uint8_t {
  kOnChip,
  kOffChip,  ///< All of them in Streaming Memory.
  kSharded,  ///< All but stashes divided among the replicas; accumulators only if they may be.
  kShardedOffChip,
};

/// One of them.
struct Variant {
  std::uint32_t ipus = 1;
  std::uint32_t stages = 1;
  std::string split;          ///< For people: counted layers of each stage, "3 7 7 7".
  std::string schedule;       ///< As in PipelineConfig.
  std::string recomputation;  ///< Likewise.
  bool own_stages = false;    ///< The job's own cuts and device mapping; else balanced stages.
  /// The layer with which each stage but the first begins, where the job does not say how to cut.
  std::vector<std::string> begins = {};
  double recomputation_memory = 0;  ///< As in PipelineConfig; 0: the job's.
  bool phased = false;              ///< Stages are phases, which take turns on `ipus`; then `schedule` is that.
  Placement placement = Placement::kOnChip;
  bool outlined = false;  ///< Equal runs of operations share functions wherever they can.

  friend bool operator==(const Variant&, const Variant&) = default;
};

/// How many IPUs the check spreads a model over, if `check.ipus` does not say: those of a job that has several, else 2,
/// 3 and 4.
std::vector<std::uint32_t> default_ipus(const proto::RunConfig& job);

/// A replica of so many IPUs, and what its stages hold.
struct Spread {
  std::uint32_t ipus = 1;
  std::uint32_t stages = 1;
  std::string split;
  bool own_stages = false;               ///< As Variant's.
  std::vector<std::string> begins = {};  ///< As Variant's.
  bool phased = false;                   ///< The job's own phases: no pipelines.
};

/// The plain variant, which has one stage, recomputes and outlines nothing and keeps everything on the chip, then with
/// one stage every recomputation, then on each of `spreads` every schedule with every recomputation; then one stage,
/// and each of `spreads`, in turn with every schedule and recomputation, in every other placement: shards only with
/// `replicas` > 1. Then, of each of `spreads`, as many phases, on one IPU with every recomputation and on two with none
/// and the default one; and the last of them in every other placement. Then outlined, with one stage and with schedule
/// grouped, those that recompute nothing and all.
std::vector<Variant> all_variants(const std::string& plain_split, std::span<const Spread> spreads,
                                  std::uint32_t replicas = 1);

/// The job as `variant` runs it.
proto::RunConfig config_of(const Variant& variant, const proto::RunConfig& job);

/// "off-chip", "sharded", "sharded off-chip", or nothing if everything is on the chip.
std::string_view to_text(Placement placement);

/// "2 IPUs, grouped, recomputation layer"; without a schedule where there is a single stage; "4 phases on 1 IPU,
/// recomputation none". What people know a combination by.
std::string to_text(const Variant& variant);

/// A variant of a job, and the Program that runs it.
struct CompiledVariant {
  std::string name;       ///< As in CheckPlan.combinations.
  proto::CheckedRun run;  ///< Its figures; its verdict only if it is known already.
  Program program;        ///< Empty if the verdict is known.
};

/// By what a Program does: its bytes without its notes.
std::uint64_t digest_of_program(Program program);

/// Compiles the variants of a job one after the other, each after that of the same stages and schedule which recomputes
/// nothing.
class VariantCompiler {
 public:
  using Compile = std::function<Result<Program>(const Variant&)>;

  /// `compile` must outlive this.
  explicit VariantCompiler(const Compile& compile) : compile_(compile) {}

  /// A combination that the compiler refuses is no failure of the check, and one that its verifiers find wrong is what
  /// the check is for: those are verdicts.
  ///
  /// Small jobs meet the memory goal of recomputation "standard" without recomputing anything, which would compare
  /// nothing: they get a goal of half the bytes that their tensors need so, or else the lowest.
  CompiledVariant compile(Variant variant);

 private:
  Result<Program> compile_standard(Variant& variant);

  /// A Program that recomputes nothing.
  struct Storing {
    std::uint64_t digest = 0;
    std::uint64_t images = 0;  ///< Bytes of tensors where they are most, as `capacity`.
    std::uint64_t capacity = 0;
  };

  const Compile& compile_;
  std::optional<Storing> storing_;  ///< The last one.
};

}  // namespace poprun
