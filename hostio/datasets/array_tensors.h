#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "hostio/datasets/source.h"
#include "hostio/formats/npy.h"
#include "replica/base/error.h"

/// Assigns a dataset's arrays to tensors, and decides how their elements are converted.
namespace poprun::hostio {

struct ArrayFile {
  std::string name;          ///< "x_train".
  std::string place;         ///< File or archive member, for messages.
  Result<NpyHeader> header;  ///< An error matters only if the array is used.
  /// Returns the bytes after the header, at most `most`. Requires: a header without error.
  std::function<Result<std::vector<std::byte>>(std::uint64_t most)> data;
  /// Returns the bytes of `count` items from `first` on. Null if they can be read only after all items before them.
  std::function<Result<std::vector<std::byte>>(std::uint64_t first, std::uint64_t count)> items{};
};

/// One tensor of the dataset: its arrays, and their conversion.
struct Tensor {
  const ArrayFile* train = nullptr;
  const ArrayFile* test = nullptr;  ///< Null if there is no test part.
  NpyTarget target;
  std::vector<std::uint64_t> sample_shape;
};

using Tensors = std::map<std::string, Tensor>;

/// Groups the arrays into tensors and plans their conversion, without reading any elements. `arrays` must outlive the
/// result. Errors: kData if the arrays do not form a dataset; kUsage if a parameter is invalid.
Result<Tensors> tensors_of(const std::vector<ArrayFile>& arrays, const Source& source);

/// Reads and converts all elements of an array of the tensor. Errors: kData.
Result<std::vector<std::byte>> elements_of(const ArrayFile& array, const NpyTarget& target, const FileScope& scope);

/// Classes found in the labels or tokens of a tensor.
struct Classes {
  std::uint32_t count = 0;   ///< The largest class plus one; 0 if no integer >= 0 was found.
  bool train_counts = true;  ///< False if every training label is negative.
  bool test_counts = true;
};

/// Counts the classes of the tensor `name`, if it exists, and checks its labels. Errors: kData.
Result<Classes> count_classes(const Tensors& tensors, const std::string& name, const FileScope& scope);

/// Returns a note that names the ignored arrays; empty if there are none.
std::string aside_note(const std::vector<ArrayFile>& arrays, const Source& source);

}  // namespace poprun::hostio
