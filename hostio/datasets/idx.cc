#include "hostio/datasets/dataset.h"
#include "hostio/datasets/image_files.h"

/// "idx:DIR": any labelled images in four files with MNIST's names.
namespace poprun::hostio::families {
namespace {

constexpr std::string_view kIdxPrefix = "idx:";

/// The classes are counted in the labels. The normalisation is fixed and maps 0..255 to -1..1, because computing the
/// data's own mean and deviation would require a pass over all images first.
constexpr ImageFacts kIdxFacts = {.classes = 0, .mean = 0.5F, .deviation = 0.5F};

}  // namespace

const DatasetFamily& idx() {
  static constexpr DatasetFamily kFamily = {
      .form = "idx:DIR",
      .parameters = {},
      .stored = {},
      .accepts = [](std::string_view text) { return text.starts_with(kIdxPrefix); },
      .describe =
          [](const Source& source) {
            return describe_image_files(source.text.substr(kIdxPrefix.size()), kIdxFacts, source.scope);
          },
      .read =
          [](const Source& source) {
            return read_image_files(source.text.substr(kIdxPrefix.size()), kIdxFacts, source.scope);
          },
  };
  return kFamily;
}

}  // namespace poprun::hostio::families
