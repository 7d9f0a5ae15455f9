#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/host_streams.pb.h"
#include "proto/run_config.pb.h"

namespace poprun {

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

  /// `words` of a command line, quoted for a shell, followed by the options. Nothing if the command
  /// line cannot make one of the changes.
  [[nodiscard]] std::optional<std::vector<std::string>> command(
      std::vector<std::string> words) const;

  /// Whether the fullest tile needs more than twice what it has, so that little but more memory
  /// helps.
  [[nodiscard]] bool lacks_much() const;

  /// Whether remedies together have left a job that can be asked for: phases are for one or two
  /// IPUs, which they share out themselves.
  [[nodiscard]] bool is_consistent() const;
};

}  // namespace poprun
