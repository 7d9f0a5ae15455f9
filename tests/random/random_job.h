#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// Jobs drawn at random: small models with any combination of the options that decide what a job computes, and of those
/// that must not change it.
namespace poprun::testing {

/// An option as a user writes it: `--NAME VALUE`.
struct Setting {
  std::string name;
  std::string value;
};

struct RandomJob {
  std::vector<Setting> arithmetic;  ///< What the results depend on: models, precision, optimisers.
  std::vector<Setting> techniques;  ///< What they must not depend on: stages, locations, shards.
  std::string onnx = {};            ///< The file that model.onnx names, if it is set.

  [[nodiscard]] std::vector<Setting> all() const;
};

/// A function of its arguments, equal on every machine.
RandomJob draw_job(std::uint64_t seed, std::uint64_t number);

/// The words after `poprun-emu` that ask for these settings, without train.cfg.
std::vector<std::string> words_of(const std::vector<Setting>& settings);

/// They in one line that a shell reads: "--model.name mlp --pipeline.split 'fc2 fc3'".
std::string shell_text(const std::vector<Setting>& settings);

}  // namespace poprun::testing
