#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hostio/datasets/source.h"
#include "proto/host_streams.pb.h"
#include "replica/base/error.h"

/// What data servers serve. A source (source.h) names a dataset: "fashion-mnist", "idx:DIR". One
/// file of this folder is one family of sources; a new one is a new file that defines
/// `families::<file stem>()`.
namespace poprun::hostio {

/// One item as one epoch sees it. What a dataset draws at random for it, augmentation or masks, is
/// a function of these.
struct Sample {
  proto::Split split = proto::SPLIT_TRAIN;
  std::uint64_t item = 0;
  std::uint64_t seed = 0;   ///< Of the job.
  std::uint64_t epoch = 0;  ///< 0 in evaluations.
};

/// A loaded dataset: a value that never changes. Any number of threads may read it.
class Dataset {
 public:
  Dataset() = default;
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;
  virtual ~Dataset() = default;

  /// Tensors, items per split, classes, normalisation.
  [[nodiscard]] virtual const proto::Dataset& description() const = 0;

  /// Bytes of memory that it holds, up to what does not count.
  [[nodiscard]] virtual std::uint64_t bytes() const = 0;

  /// Writes one tensor of one sample, row-major little-endian.
  /// Requires: sample.item < the split's items, tensor < description().tensors_size(), and
  /// destination.size() == sample_bytes of that tensor.
  virtual void read(const Sample& sample, int tensor, std::span<std::byte> destination) const = 0;
};

/// A way to name datasets.
struct DatasetFamily {
  std::string_view form;  ///< How its sources look, for messages: "idx:DIR".
  /// Parameters it takes, beside those of all families (registry.cc).
  std::span<const std::string_view> parameters;
  bool (*accepts)(std::string_view text);  ///< Source::text.
  Result<proto::Dataset> (*describe)(const Source& source);
  Result<std::unique_ptr<Dataset>> (*load)(const Source& source);
};

/// What the dataset holds, from the headers of its files. Quick, a few milliseconds, except for
/// tokens, which are read once.
///
/// Errors, of both functions
///   kUsage  no family knows this source, lists those that exist; a parameter is wrong; or `scope`
///           does not admit a file.
///   kData   a file is missing or damaged, or does not fit this host's memory; names it and the
///           remedy.
Result<proto::Dataset> describe_dataset(std::string_view source, const FileScope& scope = {});

/// The whole dataset in memory. Cost: 0.4 s and 55 MB for fashion-mnist.
Result<std::unique_ptr<Dataset>> load_dataset(std::string_view source, const FileScope& scope = {});

/// How sources look, for help: "fashion-mnist", "idx:DIR".
std::vector<std::string> dataset_forms();

/// Items of a split.
std::uint64_t items_of(const proto::Dataset& description, proto::Split split);

/// Bytes of one sample of a tensor.
std::uint64_t sample_bytes(const proto::StreamTensor& tensor);

}  // namespace poprun::hostio
