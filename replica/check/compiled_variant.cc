#include "replica/check/compiled_variant.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "replica/check/state_record.h"
#include "replica/program/host_contract.h"
#include "replica/timeline/timeline.h"

namespace poprun {
namespace {

/// What is known of a variant before it runs.
proto::CheckedRun describe(const Variant& variant) {
  proto::CheckedRun run;
  run.set_ipus(variant.ipus);
  run.set_stages(variant.stages);
  run.set_split(variant.split);
  run.set_schedule(variant.schedule);
  run.set_recomputation(variant.recomputation);
  run.set_outlined(variant.outlined);
  run.set_placement(std::string{to_text(variant.placement)});
  run.set_recomputation_memory(variant.recomputation_memory);
  return run;
}

void add_figures(const Program& program, proto::CheckedRun& run) {
  for (const proto::IpuMemory& memory : program.memory()) {
    const auto peak = static_cast<std::uint64_t>(needed(memory).count());
    run.set_peak_bytes(std::max(run.peak_bytes(), peak));
    run.set_capacity_bytes(memory.capacity());
  }
  const proto::Function* train = find_function(program, name_of(JobFunction::kTrain));
  if (train != nullptr) {
    const CallTime time = walk(program, *train);
    run.set_device_step_seconds(device_seconds(program, time.length));
    run.set_utilisation(time.utilisation());
  }
}

}  // namespace

std::uint64_t digest_of_program(Program program) {
  program.clear_notes();
  const std::string bytes = program.SerializeAsString();
  return digest_of(std::as_bytes(std::span(bytes)));
}

CompiledVariant VariantCompiler::compile(Variant variant) {
  Result<Program> program =
      variant.recomputation == "standard" ? compile_standard(variant) : compile_(variant);
  CompiledVariant compiled{to_text(variant), describe(variant), {}};
  if (program) {
    compiled.program = *std::move(program);
    add_figures(compiled.program, compiled.run);
    if (variant.recomputation == "none" && !variant.outlined) {
      const auto& ipus = compiled.program.memory();
      storing_.emplace(
          Storing{digest_of_program(compiled.program),
                  std::ranges::max_element(ipus, {}, &proto::IpuMemory::images_peak)->images_peak(),
                  compiled.run.capacity_bytes()});
    }
    return compiled;
  }
  compiled.run.set_verdict(program.error().code == ErrorCode::kBug
                               ? proto::CheckedRun::DIFFERENT
                               : proto::CheckedRun::NOT_APPLICABLE);
  compiled.run.set_detail(fmt::format("it does not compile: {}", program.error().message));
  return compiled;
}

/// Sets the variant's memory goal.
Result<Program> VariantCompiler::compile_standard(Variant& variant) {
  constexpr double kLowest = 1e-9;
  Result<Program> program = compile_(variant);
  for (const double share : {0.5, 0.0}) {
    if (!program || !storing_ || digest_of_program(*program) != storing_->digest) {
      return program;
    }
    variant.recomputation_memory = std::max(kLowest, share * static_cast<double>(storing_->images) /
                                                         static_cast<double>(storing_->capacity));
    program = compile_(variant);
  }
  return program;
}

}  // namespace poprun
