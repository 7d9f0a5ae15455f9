#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/host_streams.pb.h"
#include "proto/run_config.pb.h"

namespace poprun {

using ProductSettingRows = google::protobuf::RepeatedPtrField<proto::ProductSetting>;

/// Keys that the job gives and the remedy must not have.
inline constexpr std::string_view kNoSplit = "without pipeline.split";
inline constexpr std::string_view kNoMapping = "without pipeline.device-mapping";

/// A job, and the options by which it differs from the one that was asked for.
struct ChangedJob {
  proto::RunConfig config;
  proto::Dataset dataset;
  std::int64_t encoder_layers = 0;        ///< Between embeddings and head; 0: none.
  std::uint64_t tile_bytes = 0;           ///< What a tile has,
  std::vector<std::uint64_t> tiles = {};  ///< and what the fullest of each IPU needs.
  std::vector<std::string> changes = {};  ///< "model.precision half"; empty: the job itself.
  bool head_joins_embeddings = false;     ///< Where a remedy has arranged the stages.

  /// "A", "A and B" or "A, B and C".
  [[nodiscard]] std::string options() const;

  /// `words` of a command line, quoted for a shell, followed by the options. Nothing if the command line cannot make
  /// one of the changes.
  [[nodiscard]] std::optional<std::vector<std::string>> command(std::vector<std::string> words) const;

  /// Whether the fullest tile needs more than twice what it has, so that little but more memory helps.
  [[nodiscard]] bool lacks_much() const;

  /// Whether remedies together have left a job that can be asked for: phases are for one or two IPUs, which they share
  /// out themselves.
  [[nodiscard]] bool is_consistent() const;
};

/// One kind of change, in one or more settings.
struct Remedy {
  using Setting = std::function<void(ChangedJob&)>;

  /// Settings that the job does not have yet, mildest first. Empty if the remedy does not apply to it.
  std::vector<Setting> settings;

  /// Each setting needs less memory than the one before, so that not all have to be tried.
  bool by_halves = false;

  /// The kinds of tile_contents.h that need less. Empty: all of them.
  std::vector<std::string_view> relieves = {};

  /// There is more memory for all that the job has, not only for what is large now.
  bool adds_memory = false;

  /// The job would learn from other data, so it is tried only after all others.
  bool is_last_resort = false;
};

}  // namespace poprun
