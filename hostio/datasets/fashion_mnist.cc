#include <cstdlib>
#include <filesystem>

#include "hostio/datasets/dataset.h"
#include "hostio/datasets/image_files.h"

/// Debian's Fashion-MNIST (Xiao, Rasul and Vollgraf, arXiv:1708.07747): 60,000 + 10,000 images, 28 x 28, 10 classes.
namespace poprun::hostio::families {
namespace {

/// Mean and standard deviation of x / 255 over the package's 47,040,000 training pixels: 0.286041 and 0.353024.
constexpr ImageFacts kFashionFacts = {.classes = 10, .mean = 0.2860F, .deviation = 0.3530F};

/// Returns the dataset's folder, in POPRUN_EMU_DATASETS if that is set, and otherwise in Debian's folder of datasets.
std::filesystem::path folder() {
  const char* root = std::getenv("POPRUN_EMU_DATASETS");
  return std::filesystem::path(root != nullptr ? root : "/usr/share/datasets") / "fashion-mnist";
}

Error with_remedy(Error error) {
  error.message += missing_image_file(folder()) ? "; apt-get install dataset-fashion-mnist"
                                                : "; apt-get install --reinstall dataset-fashion-mnist";
  return error;
}

}  // namespace

const DatasetFamily& fashion_mnist() {
  static constexpr DatasetFamily kFamily = {
      .form = "fashion-mnist",
      .parameters = {},
      .stored = {},
      .accepts = [](std::string_view text) { return text == "fashion-mnist"; },
      .describe =
          [](const Source& source) {
            return describe_image_files(folder(), kFashionFacts, source.scope.unrestricted()).map_error(with_remedy);
          },
      .read =
          [](const Source& source) {
            return read_image_files(folder(), kFashionFacts, source.scope.unrestricted()).map_error(with_remedy);
          },
  };
  return kFamily;
}

}  // namespace poprun::hostio::families
