#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "hostio/datasets/dataset.h"

/// Helpers for tests of datasets.
namespace poprun::hostio::testing {

/// Returns one tensor of one item.
template <typename T>
std::vector<T> values(const Dataset& dataset, std::uint64_t item, int tensor, proto::Split split = proto::SPLIT_TRAIN) {
  std::vector<T> result(sample_bytes(dataset.description().tensors(tensor)) / sizeof(T));
  EXPECT_TRUE(dataset.read({.split = split, .item = item}, tensor, std::as_writable_bytes(std::span(result))));
  return result;
}

/// Returns the error for which a source is refused when it is described. It must be one line, of the kind kData.
inline std::string complaint_of(const std::string& source) {
  const auto description = describe_dataset(source);
  if (description) {
    return "no error";
  }
  EXPECT_EQ(description.error().code, ErrorCode::kData);
  EXPECT_EQ(description.error().message.find('\n'), std::string::npos);
  return description.error().message;
}

}  // namespace poprun::hostio::testing
