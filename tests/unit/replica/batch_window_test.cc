/// Batches that pipeline stages take in pieces, in different cycles.

#include "replica/loops/batch_window.h"

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace poprun {
namespace {

using ::testing::HasSubstr;

/// Batches whose tensors are four bytes 10 * sequence and four bytes 10 * sequence + 1.
class Counting final : public HostStream {
 public:
  Result<HostBatch> next() override {
    const auto value = static_cast<char>(10 * given);
    return HostBatch{given++,
                     {std::string(4, value), std::string(4, static_cast<char>(value + 1))}};
  }

  std::uint64_t given = 0;
};

/// A Program in which `stages` steps take a part of each batch of stream "train".
Program program_of(int stages) {
  Program program;
  for (int stage = 0; stage < stages; ++stage) {
    program.add_functions()->add_steps()->mutable_stream_in()->set_stream("train");
  }
  program.add_functions()->add_steps()->mutable_stream_in()->set_stream("control");
  return program;
}

class BatchWindowTest : public ::testing::Test {
 protected:
  /// What the tensors of a part hold afterwards: each one's first byte.
  Result<std::vector<int>> take(BatchWindow& window, std::uint64_t micro_batch,
                                std::vector<std::uint32_t> fields, std::size_t tensors) {
    std::vector<std::array<std::byte, 4>> bytes(tensors);
    std::vector<HostTensor> parts;
    for (auto& b : bytes) {
      parts.push_back({"t", type_, b});
    }
    POPRUN_TRY(window.write({micro_batch, parts, fields}));
    std::vector<int> first;
    for (const auto& b : bytes) {
      first.push_back(static_cast<int>(b[0]));
    }
    return first;
  }

  TensorType type_{DataType::kU8, {4}, Layout::kRowMajor};
  Counting source_;
};

TEST_F(BatchWindowTest, KeepsABatchUntilItsLastReader) {
  BatchWindow window(program_of(2), JobStream::kTrain, source_);
  window.begin();

  EXPECT_EQ(*take(window, 0, {0}, 1), std::vector{0});
  EXPECT_EQ(*take(window, 1, {0}, 1), std::vector{10});
  EXPECT_EQ(*take(window, 0, {1}, 1), std::vector{1}) << "the other stage is a batch behind";
  EXPECT_EQ(*take(window, 2, {0}, 1), std::vector{20});
  EXPECT_EQ(*take(window, 1, {1}, 1), std::vector{11});
  EXPECT_EQ(source_.given, 3U);
}

TEST_F(BatchWindowTest, GoesOnWithTheNextBatchInTheNextRun) {
  BatchWindow window(program_of(1), JobStream::kTrain, source_);
  window.begin();
  EXPECT_EQ(*take(window, 0, {}, 2), (std::vector{0, 1}));
  window.begin();
  EXPECT_EQ(*take(window, 0, {}, 2), (std::vector{10, 11}));
}

TEST_F(BatchWindowTest, RefusesABatchOfOtherSizes) {
  BatchWindow window(program_of(1), JobStream::kTrain, source_);
  window.begin();
  const auto three = take(window, 0, {}, 3);
  ASSERT_FALSE(three);
  EXPECT_EQ(three.error().code, ErrorCode::kData);
  EXPECT_THAT(three.error().message, HasSubstr("batch 0 of the data server: tensor 't' has 4 B"));
  window.begin();
  EXPECT_FALSE(take(window, 0, {7}, 1));
}

}  // namespace
}  // namespace poprun
