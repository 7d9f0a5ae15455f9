#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/options/options.h"
#include "proto/answers.pb.h"

/// Compares the device clock with results that others published for real IPUs. Pure functions of the numbers.
namespace poprun::launcher::validation {

/// A published result, and the same quantity on the device clock.
struct Row {
  std::string name;
  Published published;
  std::string failure;      ///< Why the job has no value on the device clock; empty if it has one.
  double ours = 0;          ///< The device clock's value, in the unit of the published value.
  double stated_error = 0;  ///< The error printed with device times of such jobs (calibration.h), or 0 for none.
  std::string shortage;     ///< Why the job does not fit; empty if it does.
  std::uint64_t ipus = 0;   ///< Number of IPUs of the whole job.
  std::uint64_t replicas = 1;
  std::uint64_t accumulation = 0;  ///< Micro-batches per step; 0 for a single product or all-reduce.
  double items_per_step = 0;       ///< Samples per step, times items_per_sample.

  /// Returns our speed / the published speed: above 1 if the device clock is too fast. Requires: no failure.
  [[nodiscard]] double ratio() const;
};

/// Errors are |ratio - 1|, and the bias is the mean of ratio - 1.
struct Errors {
  std::string family;
  std::size_t rows = 0;
  double mean = 0;
  double worst = 0;
  double bias = 0;
};

/// A training step consists of `accumulation` cycles, one per micro-batch, and a rest.
struct StepParts {
  double cycle_seconds = 0;
  double rest_seconds = 0;
};

/// The same job on two numbers of IPUs.
struct Scaling {
  std::string from;  ///< Names of the rows.
  std::string to;
  double published = 0;  ///< Speed on more IPUs / speed on fewer.
  double ours = 0;
  /// Set if the replicas of both rows have equal numbers of IPUs and the accumulations differ, so that two equations
  /// determine the parts.
  std::optional<StepParts> published_parts = {};
  std::optional<StepParts> our_parts = {};
};

/// Returns the errors of each family, sorted by name, followed by those of all rows under the name "all". Rows without
/// a value are not counted.
std::vector<Errors> errors_of(const std::vector<Row>& rows);

/// Returns the scaling between neighbours of each series, sorted by the number of IPUs. Only throughputs are used.
std::vector<Scaling> scaling_of(const std::vector<Row>& rows);

/// Returns the rows, the errors of each family, the scaling of each series and the fitted numbers.
proto::ValidationAnswer answer_of(const std::vector<Row>& rows);

}  // namespace poprun::launcher::validation
