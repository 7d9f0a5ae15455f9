#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "launcher/outputs/growing_file.h"
#include "proto/coordinator.pb.h"
#include "proto/tensorboard.pb.h"

namespace poprun::launcher {

/// Returns the CRC-32C (Castagnoli, RFC 3720 appendix B.4) of `bytes`.
std::uint32_t crc32c(std::string_view bytes);

/// Returns a record of a TFRecord file (tensorflow/core/lib/io/record_writer.cc): the length as 8 little-endian bytes,
/// its masked CRC-32C, `data`, and the masked CRC-32C of `data`.
std::string tf_record(std::string_view data);

/// An event file for TensorBoard with the results of one attempt of a training job, as scalars by step:
///
///     training/loss  training/accuracy  training/learning_rate
///     speed/samples_per_second  speed/device_seconds_per_step
///     evaluation/loss  evaluation/accuracy
///
/// The file begins with an event that makes TensorBoard drop what earlier files of the folder have for the steps that
/// this attempt executes (again). A folder therefore holds the curves of one job.
class TensorboardFile {
 public:
  struct Setup {
    std::string folder;
    std::string name_end;            ///< Suffix that distinguishes files begun in the same second.
    std::uint64_t resumed_step = 0;  ///< 0: the job starts from the beginning.
  };

  /// `disk` must outlive this. The file is created when the first result arrives.
  TensorboardFile(DiskThread& disk, Setup setup) : disk_(disk), setup_(std::move(setup)) {}

  /// Takes an item of a report, which arrives at the Unix time `time`, and ignores all that are not results.
  void take(const proto::ReportItem& item, double time);

  /// Writes what has been taken so far. Errors: kInfrastructure if the file accepts no more data; call again later.
  Status flush() { return file_ && !file_->flushed() ? file_->flush() : Status{}; }
  /// Begins to write the rest, and never waits.
  void hand_over();

 private:
  struct Clocks {
    double wall = 0;
    std::optional<double> device = {};  ///< Empty after a resume, until the first result.
  };

  void begin(double time);
  void write(const proto::TensorboardEvent& event);
  void take_step(const proto::StepMetrics& step, double time);
  void take_evaluation(const proto::EvaluationMetrics& evaluation, double time);

  DiskThread& disk_;
  Setup setup_;
  std::optional<GrowingFile> file_;
  std::uint64_t samples_per_step_ = 0;
  Clocks last_;  ///< At the end of the last result.
};

}  // namespace poprun::launcher
