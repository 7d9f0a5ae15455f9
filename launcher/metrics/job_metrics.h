#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

namespace poprun::launcher {

/// Prometheus's text format, version 0.0.4:
///
///   # HELP poprun_emu_step Training steps completed.
///   # TYPE poprun_emu_step gauge
///   poprun_emu_step 340
class Exposition {
 public:
  static constexpr std::string_view kContentType = "text/plain; version=0.0.4; charset=utf-8";

  struct Label {
    std::string_view name;   ///< A word, as `name` below but without colons.
    std::string_view value;  ///< Any UTF-8.
  };

  /// Begin a metric, whose samples follow. `name`: letters, digits, `_` and `:`, not beginning with
  /// a digit; that of a counter ends in `_total`. `help`: any UTF-8.
  void counter(std::string_view name, std::string_view help) { begin(name, help, "counter"); }
  void gauge(std::string_view name, std::string_view help) { begin(name, help, "gauge"); }

  /// A sample of the metric that was begun last.
  void sample(double value, std::initializer_list<Label> labels = {});

  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  void begin(std::string_view name, std::string_view help, std::string_view type);

  std::string name_;
  std::string text_;
};

enum class JobPhase : std::uint8_t {
  kStarting,   ///< Instances join.
  kCompiling,  ///< Until the first report of replica 0.
  kRunning,
  kSaving,    ///< The training is done, and its results are being written.
  kDraining,  ///< It was asked to end, and saves first.
  kStopping,  ///< It is decided, and its processes end.
};

/// What a monitoring system is told of a job at one moment. A number that is not known yet, or that
/// this kind of job does not have, is left out of the page rather than shown as 0.
struct JobMetrics {
  struct Evaluation {
    double loss = 0;
    std::optional<double> accuracy = {};  ///< 0 to 1.
  };
  /// The replica that computed most slowly of late (launcher/verdict/slow_replicas.h).
  struct SlowestReplica {
    std::uint32_t replica = 0;
    double step_seconds = 0;         ///< Wall, in operators.
    double others_step_seconds = 0;  ///< Median of the other replicas.
  };
  /// The last whole one.
  struct Checkpoint {
    std::uint64_t step = 0;
    double age_seconds = 0;
  };

  std::string version;
  double start_time_seconds = 0;  ///< Since 1970.
  JobPhase phase = JobPhase::kStarting;
  std::uint32_t replicas = 0;
  std::uint32_t instances = 0;
  std::uint32_t instances_joined = 0;                ///< And still there.
  std::optional<double> heartbeat_age_seconds = {};  ///< The age of the oldest last heartbeat.

  std::optional<std::uint64_t> step =
      {};  ///< Completed; falls where the job goes on from a checkpoint.
  std::optional<std::uint64_t> last_step = {};
  std::optional<std::uint32_t> epoch = {};  ///< From 1.
  std::optional<double> loss = {};          ///< The last step's.
  std::optional<double> accuracy = {};      ///< Likewise; 0 to 1.
  std::optional<Evaluation> evaluation = {};
  std::optional<std::uint64_t> items = {};  ///< Written, in inference.
  std::optional<double> samples_per_second = {};
  std::optional<SlowestReplica> slowest = {};

  std::optional<std::uint64_t> restarts = {};  ///< By the launcher itself.
  std::optional<Checkpoint> checkpoint = {};
};

/// `metrics` as the page that Prometheus reads, a few KiB whatever the size of the job.
std::string exposition_of(const JobMetrics& metrics);

/// `running`.
std::string phase_name(JobPhase phase);

}  // namespace poprun::launcher
