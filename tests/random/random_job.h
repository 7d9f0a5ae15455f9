#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// Jobs drawn at random: small models with any combination of the options that determine a job's results, and of those
/// that must not change them.
namespace poprun::testing {

/// An option as a user writes it: `--NAME VALUE`.
struct Setting {
  std::string name;
  std::string value;
};

struct RandomJob {
  std::vector<Setting> arithmetic;  ///< Settings that change the results: models, precision, optimisers.
  std::vector<Setting> techniques;  ///< Settings that must not: stages, locations, shards.
  std::string onnx = {};            ///< The file that model.onnx names, if it is set.

  [[nodiscard]] std::vector<Setting> all() const;
};

/// Draws job `number` of `seed`: a function of its arguments, the same on every machine.
RandomJob draw_job(std::uint64_t seed, std::uint64_t number);

/// Returns the words after `poprun-emu` for these settings, without train.cfg.
std::vector<std::string> words_of(const std::vector<Setting>& settings);

/// Returns these words as one line for a shell: "--model.name mlp --pipeline.split 'fc2 fc3'".
std::string shell_text(const std::vector<Setting>& settings);

}  // namespace poprun::testing
