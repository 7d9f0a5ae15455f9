#include "replica/instance/memory_advice.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "replica/base/text.h"
#include "replica/compiler/compile.h"
#include "replica/instance/job.h"

namespace poprun {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kTrialsMax = 24;
constexpr std::size_t kOperatorsMax = 200'000;  // Compiled in all; some 20 s.
constexpr std::uint32_t kShortestSequence = 16;

/// A job that might fit, and how it differs from the one that does not.
struct Job {
  proto::RunConfig config;
  proto::Dataset dataset;
  std::vector<std::string> changes;

  [[nodiscard]] std::string options() const {
    return fmt::format("{}", fmt::join(changes, " and "));
  }
};

struct Trial {
  Job job;
  std::uint64_t peak;  ///< Bytes of the fullest IPU.
};

Job with_micro_batch(Job job, std::uint32_t size) {
  const std::uint32_t factor = job.config.data().micro_batch_size() / size;
  if (factor == 1) {
    return job;
  }
  job.config.mutable_data()->set_micro_batch_size(size);
  job.changes.push_back(fmt::format("data.micro-batch-size {}", size));
  if (!job.config.inference()) {
    // The same batch, in more pieces.
    proto::TrainingConfig& training = *job.config.mutable_training();
    training.set_gradient_accumulation(training.gradient_accumulation() * factor);
    job.changes.push_back(
        fmt::format("training.gradient-accumulation {}", training.gradient_accumulation()));
  }
  return job;
}

Job with_half_precision(Job job) {
  job.config.mutable_model()->set_precision("half");
  job.config.mutable_training()->set_loss_scaling(0);  // Its default with half precision.
  job.changes.emplace_back("model.precision half");
  return job;
}

/// Tokens of one sample; 0 where the data has none.
std::uint32_t sequence_length(const proto::Dataset& dataset) {
  for (const proto::StreamTensor& tensor : dataset.tensors()) {
    if (tensor.name() == "tokens" && tensor.sample_shape_size() == 1) {
      return tensor.sample_shape(0);
    }
  }
  return 0;
}

/// Everything that is as long as the sequence is as long as the new one, and nothing is longer.
Job with_sequence(Job job, std::uint32_t length) {
  for (proto::StreamTensor& tensor : *job.dataset.mutable_tensors()) {
    for (std::uint32_t& dimension : *tensor.mutable_sample_shape()) {
      dimension = std::min(dimension, length);
    }
  }
  job.changes.push_back(fmt::format("data.sequence-length {}", length));
  return job;
}

std::vector<std::uint32_t> divisors(std::uint32_t number) {
  std::vector<std::uint32_t> all;
  for (std::uint32_t d = 1; d <= number; ++d) {
    if (number % d == 0) {
      all.push_back(d);
    }
  }
  return all;
}

/// How often `plan_program` compiles the job at most.
std::size_t compilations(const proto::RunConfig& config) {
  const bool is_balanced = config.topology().ipus_per_replica() > 1 &&
                           config.pipeline().layers_per_ipu().empty() &&
                           config.pipeline().split().empty();
  return is_balanced ? kSplitsMax : 1;
}

class Search {
 public:
  Search(const Program& program, const proto::RunConfig& config,
         std::shared_ptr<onnx_import::JobModel> onnx, Clock::time_point until)
      : onnx_(std::move(onnx)),
        until_(until),
        capacity_(program.memory(0).capacity()),
        trials_left_(std::clamp<std::size_t>(
            kOperatorsMax /
                std::max<std::size_t>(1, program.operator_count() * compilations(config)),
            1, kTrialsMax)) {}

  /// The job with the largest micro-batch that fits and divides its own; nothing where none does.
  std::optional<Trial> largest_micro_batch(const Job& job) {
    const std::vector<std::uint32_t> sizes = divisors(job.config.data().micro_batch_size());
    std::optional<Trial> best;
    std::size_t low = 0;  // sizes[low, high) are still open, and memory grows with the size.
    for (std::size_t high = sizes.size(); low < high;) {
      // The smallest size says whether there is anything to look for.
      const std::size_t middle = best ? low + (high - low) / 2 : 0;
      std::optional<Trial> fits = fitting(with_micro_batch(job, sizes[middle]));
      if (!fits) {
        high = best ? middle : 0;
        continue;
      }
      best = std::move(fits);
      low = middle + 1;
    }
    return best;
  }

  /// The job where it fits.
  std::optional<Trial> fitting(Job job) {
    if (trials_left_ == 0 || Clock::now() >= until_) {
      has_tried_all_ = false;
      return std::nullopt;
    }
    --trials_left_;
    const Result<CompileOptions> options = compile_options(job.config, job.dataset, onnx_);
    const Result<Program> program =
        options ? plan_program(*options) : tl::unexpected<Error>{options.error()};
    if (!program) {
      return std::nullopt;  // A model or dataset that cannot be changed so.
    }
    Trial trial{std::move(job), 0};
    for (const proto::IpuMemory& memory : program->memory()) {
      trial.peak = std::max(trial.peak, memory.peak());
    }
    if (trial.peak <= capacity_) {
      return trial;
    }
    if (!nearest_ || trial.peak < nearest_->peak) {
      nearest_ = std::move(trial);
    }
    return std::nullopt;
  }

  [[nodiscard]] const std::optional<Trial>& nearest() const { return nearest_; }
  [[nodiscard]] bool has_tried_all() const { return has_tried_all_; }

 private:
  std::shared_ptr<onnx_import::JobModel> onnx_;
  Clock::time_point until_;
  std::uint64_t capacity_;
  std::size_t trials_left_;
  bool has_tried_all_ = true;
  std::optional<Trial> nearest_;  ///< The smallest that does not fit.
};

/// The longest sequence that fits, one sample at a time, by halves.
std::optional<Trial> shorter_sequence(Search& search, const Job& job) {
  for (std::uint32_t length = sequence_length(job.dataset) / 2; length >= kShortestSequence;
       length /= 2) {
    if (std::optional<Trial> fits =
            search.fitting(with_sequence(with_micro_batch(job, 1), length))) {
      return fits;
    }
  }
  return std::nullopt;
}

std::string shown(const Trial& trial) {
  return fmt::format("{} ({})", trial.job.options(), mebibytes_text(trial.peak));
}

}  // namespace

std::string memory_advice(const Program& program, const proto::RunConfig& config,
                          const proto::Dataset& dataset,
                          const std::shared_ptr<onnx_import::JobModel>& onnx,
                          Clock::time_point until) {
  Search search(program, config, onnx, until);
  const Job job{config, dataset, {}};
  const bool is_half = config.model().precision() == "half";
  std::vector<std::string> fits;
  const auto add = [&fits](const std::optional<Trial>& trial) {
    if (trial) {
      fits.push_back(shown(*trial));
    }
  };
  if (config.data().micro_batch_size() > 1) {
    add(search.largest_micro_batch(job));
  }
  if (!is_half) {
    add(search.largest_micro_batch(with_half_precision(job)));
  }
  if (fits.empty()) {
    add(shorter_sequence(search, is_half ? job : with_half_precision(job)));
  }
  if (!fits.empty()) {
    return fmt::format("it fits with {}", fmt::join(fits, ", or with "));
  }
  const std::string nearest =
      search.nearest() ? fmt::format("; {} comes closest", shown(*search.nearest())) : "";
  return fmt::format("a smaller model {} needed{}", search.has_tried_all() ? "is" : "may be",
                     nearest);
}

}  // namespace poprun
