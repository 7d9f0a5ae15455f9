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
#include "replica/choices/choices.h"
#include "replica/program/program.h"

/// Ways to run one job, all of which must give bit-identical results.
namespace poprun {

/// Where a variant keeps weights, optimiser state, accumulators and stashes.
enum class Placement : std::uint8_t {
  kOnChip,
  kOffChip,  ///< All of them in Streaming Memory.
  kSharded,  ///< Sharded over the replicas: all except stashes; accumulators only if allowed.
  kShardedOffChip,
};

struct Variant {
  std::uint32_t ipus = 1;
  std::uint32_t stages = 1;
  std::string split;       ///< For display: counted layers of each stage, "3 7 7 7".
  Schedule schedule = {};  ///< kPhased: stages are phases, which take turns on `ipus`.
  Recomputation recomputation = {};
  bool own_stages = false;  ///< Whether the stages and the device mapping are the job's own; false: balanced.
  /// First layer of each stage except the first, if the job does not say where to cut.
  std::vector<std::string> begins = {};
  double recomputation_memory = 0;  ///< As in PipelineConfig; 0: the job's own.
  Placement placement = Placement::kOnChip;
  bool outlined = false;  ///< Repeated sequences of operations share functions wherever possible.

  [[nodiscard]] bool phased() const { return schedule == Schedule::kPhased; }

  friend bool operator==(const Variant&, const Variant&) = default;
};

/// Returns the numbers of IPUs over which the check spreads a model by default: the job's own number if it is above 1,
/// or else 2, 3 and 4.
std::vector<std::uint32_t> default_ipus(const proto::RunConfig& job);

/// A replica spread over IPUs, and the layers of its stages.
struct Spread {
  std::uint32_t ipus = 1;
  std::uint32_t stages = 1;
  std::string split;
  bool own_stages = false;               ///< As in Variant.
  std::vector<std::string> begins = {};  ///< As in Variant.
  bool phased = false;                   ///< The spread is the job's own phases, which do not run as a pipeline.
};

/// Returns the variants to check. First comes the plain variant, which has one stage, recomputes and outlines nothing,
/// and keeps everything on-chip. It is followed by one stage with every other recomputation, and by each of `spreads`
/// with every schedule and recomputation. Then come the plain variant and one variant of each spread in every other
/// placement (sharded only if `replicas` > 1). Then come variants with as many phases as each spread has stages: on one
/// IPU with every recomputation, and on two IPUs with "none" and "pipeline". The last of them is also run in every
/// other placement. Last come the outlined variants: one stage, and each spread with schedule grouped, both with
/// recomputation "none" and "all".
std::vector<Variant> all_variants(const std::string& plain_split, std::span<const Spread> spreads,
                                  std::uint32_t replicas = 1);

proto::RunConfig config_of(const Variant& variant, const proto::RunConfig& job);

/// Returns "off-chip", "sharded", "sharded off-chip", or "" if everything is on-chip.
std::string_view to_text(Placement placement);

/// Returns the displayed name of a variant: "2 IPUs, grouped, recomputation layer", without a schedule if there is a
/// single stage, or "4 phases on 1 IPU, recomputation none".
std::string to_text(const Variant& variant);

struct CompiledVariant {
  std::string name;       ///< As in CheckPlan.combinations.
  proto::CheckedRun run;  ///< Its figures, and its verdict if that is already known.
  Program program;        ///< Empty if the verdict is known.
};

/// Returns the bytes of a Program without its notes, which do not change what it does.
std::string bytes_of_program(Program program);

/// Returns a digest of what a Program does.
std::uint64_t digest_of_program(const Program& program);

/// Compiles the variants of a job. Among variants with the same stages and schedule, the one that recomputes nothing
/// must come first.
class VariantCompiler {
 public:
  using Compile = std::function<Result<Program>(const Variant&)>;

  /// `compile` must outlive this.
  explicit VariantCompiler(const Compile& compile) : compile_(compile) {}

  /// Compiles a variant. If the compiler rejects it or a verifier finds a bug, this becomes the variant's verdict, and
  /// the check continues. Small jobs would meet the memory goal of recomputation "standard" without recomputing
  /// anything, so that nothing would be compared. The goal of such jobs is half the bytes that their tensors need
  /// without recomputation or, if that is impossible, the lowest possible.
  CompiledVariant compile(Variant variant);

 private:
  Result<Program> compile_standard(Variant& variant);

  /// A Program that recomputes nothing.
  struct Storing {
    std::uint64_t digest = 0;
    std::uint64_t images = 0;  ///< Peak bytes of the tensors on the IPU that has the most.
    std::uint64_t capacity = 0;
  };

  const Compile& compile_;
  std::optional<Storing> storing_;  ///< The last one compiled.
};

}  // namespace poprun
