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

/// The datasets that data servers serve. A source (source.h) names a dataset: "fashion-mnist", "idx:DIR". Each file in
/// this folder is one family of sources; to add one, add a file that defines `families::<file stem>()`.
namespace poprun::hostio {

/// One item in one epoch. All random choices for the item (augmentation, masks) are functions of these fields.
struct Sample {
  proto::Split split = proto::SPLIT_TRAIN;
  std::uint64_t item = 0;
  std::uint64_t seed = 0;   ///< The job's seed.
  std::uint64_t epoch = 0;  ///< 0 in evaluations.
};

/// A dataset as one job requests it: an immutable value. Any number of threads may read it.
class Dataset {
 public:
  explicit Dataset(proto::Dataset description) : description_(std::move(description)) {}
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;
  virtual ~Dataset() = default;

  /// Tensors, items per split, classes and normalisation.
  [[nodiscard]] const proto::Dataset& description() const { return description_; }

  /// Sets the fingerprint. Call before the first read.
  void set_fingerprint(const std::string& fingerprint) { description_.set_fingerprint(fingerprint); }

  /// Writes one tensor of one sample, in row-major order and little-endian. Requires: sample.item < the split's items,
  /// tensor < description().tensors_size(), and destination.size() == sample_bytes of that tensor. Errors: kData if the
  /// sample is read from its file only now, and the file is damaged or has changed.
  virtual Status read(const Sample& sample, int tensor, std::span<std::byte> destination) const = 0;

  /// Returns the bytes that `read` would write if they are in memory as they are, and otherwise nothing. They live as
  /// long as this dataset. Requires: as `read`.
  [[nodiscard]] virtual std::span<const std::byte> kept(const Sample& /*sample*/, int /*tensor*/) const { return {}; }

  /// Returns a black pixel, for the border of shifted images: zero before normalisation.
  [[nodiscard]] virtual std::vector<std::byte> black() const {
    return std::vector<std::byte>(description_.tensors(0).element() == "u8" ? 1 : 4);
  }

 private:
  proto::Dataset description_;
};

/// The data that a data server keeps from the files of a dataset. Jobs share it if they differ only in source
/// parameters that are not in DatasetFamily::stored.
class Stored : public std::enable_shared_from_this<Stored> {
 public:
  Stored() = default;
  Stored(const Stored&) = delete;
  Stored& operator=(const Stored&) = delete;
  virtual ~Stored() = default;

  /// Bytes of memory in use, apart from negligible amounts.
  [[nodiscard]] virtual std::uint64_t bytes() const = 0;

  /// Returns the dataset that `source` asks for, which keeps this object alive. The call is cheap. Errors: kUsage if a
  /// parameter is wrong; kData if the data does not fit the parameters.
  [[nodiscard]] virtual Result<std::unique_ptr<Dataset>> view(const Source& source) const = 0;
};

/// A family of sources: one way to name datasets.
struct DatasetFamily {
  std::string_view form;  ///< Form of its sources, for messages: "idx:DIR".
  /// Parameters that the family accepts, in addition to those that all families accept (registry.cc).
  std::span<const std::string_view> parameters;
  /// The parameters that change the stored data.
  std::span<const std::string_view> stored;
  bool (*accepts)(std::string_view text);  ///< Called with Source::text.
  Result<proto::Dataset> (*describe)(const Source& source);
  Result<std::shared_ptr<const Stored>> (*read)(const Source& source);
};

/// Returns the description of a dataset and, if requested, the fingerprint of its data: a digest of the contents of its
/// files and of the description. The fingerprint costs a pass over the files; the description costs a few milliseconds
/// or, for tokens, a pass over the file.
///
/// Errors of all functions
///   kUsage  no family accepts this source (the message names known forms), a parameter is wrong, or
///           `scope` does not admit a file.
///   kData   a file is missing or damaged, changes during the read, or does not fit in this host's memory;
///           the message names it and the remedy.
Result<proto::Dataset> describe_dataset(std::string_view source, const FileScope& scope = {},
                                        bool with_fingerprint = true);

/// The stored data of a source's files, and the digest of their contents.
struct ReadDataset {
  std::shared_ptr<const Stored> stored;  ///< Shared by the jobs that read from it.
  std::string digest;
};

/// Reads the files of a source. Cost: 0.4 s and 55 MB for fashion-mnist.
Result<ReadDataset> read_dataset(std::string_view source, const FileScope& scope = {});

/// Returns the dataset that `source` asks for, from data already read. Its description is identical to that from
/// describe_dataset if the files were identical; otherwise, the fingerprints differ.
Result<std::unique_ptr<Dataset>> view_dataset(const ReadDataset& read, std::string_view source);

/// Calls read_dataset, then view_dataset.
Result<std::unique_ptr<Dataset>> load_dataset(std::string_view source, const FileScope& scope = {});

/// Returns the part of a source that determines the stored data. If the source is invalid, returns a name for messages.
std::string stored_name(std::string_view source);

/// The forms of sources, for help: "fashion-mnist", "idx:DIR".
std::vector<std::string> dataset_forms();

void add_tensor(proto::Dataset& description, const std::string& name, const std::string& element,
                const std::vector<std::uint32_t>& sample_shape);

std::uint64_t items_of(const proto::Dataset& description, proto::Split split);

std::uint64_t sample_bytes(const proto::StreamTensor& tensor);

}  // namespace poprun::hostio
