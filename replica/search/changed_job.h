#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/host_streams.pb.h"
#include "proto/run_config.pb.h"

/// Changes to a job that may reduce its need for memory. Changes to stages and proportions set several options.
namespace poprun {

using ProductSettingRows = google::protobuf::RepeatedPtrField<proto::ProductSetting>;

/// Changes that remove a key of the job.
inline constexpr std::string_view kNoSplit = "without pipeline.split";
inline constexpr std::string_view kNoMapping = "without pipeline.device-mapping";

/// A job, and the options by which it differs from the requested one.
struct ChangedJob {
  proto::RunConfig config;
  proto::Dataset dataset;
  std::int64_t encoder_layers = 0;        ///< Layers between embeddings and head; 0 if there are none.
  std::uint64_t tile_bytes = 0;           ///< Bytes of memory on a tile.
  std::vector<std::uint64_t> tiles = {};  ///< Bytes that the fullest tile of each IPU needs.
  std::vector<std::string> changes = {};  ///< Such as "model.precision half"; empty for the job itself.
  bool head_joins_embeddings = false;     ///< Whether a remedy's stages put head and embeddings on one IPU.

  /// Returns the changes as "A", "A and B" or "A, B and C".
  [[nodiscard]] std::string options() const;

  /// Returns `words`, a shell-quoted command line, with the changes as options, or nothing if a change has no option.
  [[nodiscard]] std::optional<std::vector<std::string>> command(std::vector<std::string> words) const;

  /// Returns whether the fullest tile needs more than twice its memory. If so, little except more IPUs helps.
  [[nodiscard]] bool lacks_much() const;

  /// Returns whether the remedies form a valid job: phases use all IPUs of a replica and have no device mapping.
  [[nodiscard]] bool is_consistent() const;
};

/// One kind of change, in one or more settings.
struct Remedy {
  using Setting = std::function<void(ChangedJob&)>;

  /// Settings that the job does not have yet, mildest first. Empty if the remedy does not apply to the job.
  std::vector<Setting> settings;

  /// Whether each setting needs less memory than the previous one, so that a binary search finds the mildest that fits.
  bool by_halves = false;

  /// The kinds of contents (see tile_contents.h) that need less memory with this remedy. Empty: all kinds.
  std::vector<std::string_view> relieves = {};

  /// Whether the remedy adds memory for everything in the job, not only for what is large now.
  bool adds_memory = false;

  /// Whether the job would learn from different data. If so, the remedy is tried only after all others.
  bool is_last_resort = false;
};

/// Returns whether the job specifies which layers are on which IPU.
bool names_stages(const ChangedJob& job);

/// Replaces the stages named in the job, which fit only one number of IPUs, or the stages of an earlier arrangement.
void arrange_stages(ChangedJob& job);

/// Moves one layer from the fullest IPU to the emptiest. Returns false if either has no stage with layers.
bool move_layer(ChangedJob& job);

/// Moves a last stage that holds only the head from the fullest IPU to the emptiest. Returns false if there is none.
bool move_head(ChangedJob& job);

/// Returns a remedy that plans the convolutions and matmuls on overfull IPUs with fewer temporary values or, to save
/// code and copies of operands, with more.
Remedy other_proportions(const ChangedJob& job);

}  // namespace poprun
