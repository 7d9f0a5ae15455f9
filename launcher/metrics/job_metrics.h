#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "proto/profile.pb.h"

namespace poprun::launcher {

/// Writes Prometheus's text format, version 0.0.4:
///
///     # HELP poprun_emu_step Training steps completed.
///     # TYPE poprun_emu_step gauge
///     poprun_emu_step 340
class Exposition {
 public:
  static constexpr std::string_view kContentType = "text/plain; version=0.0.4; charset=utf-8";

  struct Label {
    std::string_view name;   ///< Contains only characters allowed in a metric's name, and no colon.
    std::string_view value;  ///< Any UTF-8 text.
  };

  /// Begins a metric; its samples follow. `name` consists of letters, digits, `_` and `:`, and does not begin with a
  /// digit; the name of a counter ends in `_total`. `help` is any UTF-8 text.
  void counter(std::string_view name, std::string_view help) { begin(name, help, "counter"); }
  void gauge(std::string_view name, std::string_view help) { begin(name, help, "gauge"); }

  void sample(double value, std::initializer_list<Label> labels = {});

  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  void begin(std::string_view name, std::string_view help, std::string_view type);

  std::string name_;
  std::string text_;
};

enum class JobPhase : std::uint8_t {
  kStarting,   ///< Instances are joining.
  kCompiling,  ///< All instances have joined, but replica 0 has reported nothing yet.
  kRunning,
  kSaving,    ///< All results have arrived and are being written.
  kDraining,  ///< The job was asked to end, and saves its state first.
  kStopping,  ///< The outcome is decided; the processes are ending.
};

/// Returns the phase in lower case, such as "running".
std::string_view name_of(JobPhase phase);

/// The parts of a job's wall time, by name, in the order of proto::Goodput.
using GoodputParts = std::array<std::pair<std::string_view, double>, 7>;
GoodputParts parts_of(const proto::Goodput& goodput);

/// The state of a job at one moment, for a monitoring system. A number that is not known yet, or that does not apply to
/// this kind of job, is omitted from the page rather than shown as 0.
struct JobMetrics {
  struct Evaluation {
    double loss = 0;
    std::optional<double> accuracy = {};  ///< 0 to 1.
  };
  /// The replica that computed most slowly in recent steps (launcher/verdict/slow_replicas.h).
  struct SlowestReplica {
    std::uint32_t replica = 0;
    double step_seconds = 0;         ///< Wall time in operators.
    double others_step_seconds = 0;  ///< Median over the other replicas.
  };
  /// The last complete checkpoint.
  struct Checkpoint {
    std::uint64_t step = 0;
    double age_seconds = 0;
  };

  std::string version;
  double start_time_seconds = 0;  ///< Unix time.
  JobPhase phase = JobPhase::kStarting;
  std::uint32_t replicas = 0;
  std::uint32_t instances = 0;
  std::uint32_t instances_joined = 0;                ///< Instances that joined and are still connected.
  std::optional<double> heartbeat_age_seconds = {};  ///< Age of the oldest of the instances' last heartbeats.

  std::optional<std::uint64_t> step = {};  ///< Steps completed; decreases if the job resumes from a checkpoint.
  std::optional<std::uint64_t> last_step = {};
  std::optional<std::uint32_t> epoch = {};  ///< Counted from 1.
  std::optional<double> loss = {};          ///< Loss of the last step.
  std::optional<double> accuracy = {};      ///< Accuracy of the last step; 0 to 1.
  std::optional<Evaluation> evaluation = {};
  /// Steps and samples that all attempts have executed. Unlike `step`, they never decrease.
  std::optional<std::uint64_t> steps_executed = {};
  std::optional<std::uint64_t> samples = {};
  std::optional<std::uint64_t> items = {};  ///< In inference: items whose outputs have been written.
  std::optional<double> samples_per_second = {};
  std::optional<SlowestReplica> slowest = {};

  std::optional<std::uint64_t> restarts = {};     ///< Restarts by the launcher itself.
  std::optional<std::uint64_t> checkpoints = {};  ///< Checkpoints stored by all attempts.
  std::optional<Checkpoint> checkpoint = {};
  std::optional<proto::Goodput> goodput = {};
};

/// Formats `metrics` as the page that Prometheus reads. The page has a few KiB, whatever the size of the job.
std::string exposition_of(const JobMetrics& metrics);

}  // namespace poprun::launcher
