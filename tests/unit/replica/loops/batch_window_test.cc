/// Batches whose tensors pipeline stages take separately, in different cycles.

#include <cstring>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/loops/host_streams.h"

namespace poprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Batches of two tensors: four bytes of value 10 * sequence, and four bytes of value 10 * sequence + 1.
class Counting final : public HostStream {
 public:
  Result<HostBatch> next() override {
    const auto value = static_cast<char>(10 * given);
    return HostBatch{given++, {std::string(4, value), std::string(4, static_cast<char>(value + 1))}};
  }

  std::uint64_t given = 0;
};

/// Batches of one tensor with two rows of four equal bytes. The value increases by one from row to row.
class Rows final : public HostStream {
 public:
  Result<HostBatch> next() override {
    const auto first = static_cast<char>(2 * given);
    return HostBatch{given++, {std::string(4, first) + std::string(4, static_cast<char>(first + 1))}};
  }

  std::uint64_t given = 0;
};

/// Returns a Program in which each stage takes its given fields of each batch of stream "train".
Program program_of(const std::vector<std::vector<std::uint32_t>>& fields_of_stages) {
  Program program;
  for (const auto& fields : fields_of_stages) {
    proto::StreamIn& stream = *program.add_functions()->add_steps()->mutable_stream_in();
    stream.set_stream("train");
    for (const std::uint32_t field : fields) {
      stream.add_fields(field);
      stream.add_tensors(field);
    }
  }
  program.add_functions()->add_steps()->mutable_stream_in()->set_stream("control");
  return program;
}

/// Returns a Program with one step that takes whole batches of `tensors` tensors.
Program program_of_batches(std::uint32_t tensors) {
  Program program;
  proto::StreamIn& stream = *program.add_functions()->add_steps()->mutable_stream_in();
  stream.set_stream("train");
  for (std::uint32_t tensor = 0; tensor < tensors; ++tensor) {
    stream.add_tensors(tensor);
  }
  return program;
}

class BatchWindowTest : public ::testing::Test {
 protected:
  /// Fills the tensors of a part from the window; returns the first byte of each.
  Result<std::vector<int>> take(BatchWindow& window, std::uint64_t micro_batch, std::vector<std::uint32_t> fields,
                                std::size_t tensors) {
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
  BatchWindow window(program_of({{0}, {1}}), JobStream::kTrain, source_);
  window.begin();

  EXPECT_EQ(*take(window, 0, {0}, 1), std::vector{0});
  EXPECT_EQ(*take(window, 1, {0}, 1), std::vector{10});
  EXPECT_EQ(*take(window, 0, {1}, 1), std::vector{1}) << "the other stage is a batch behind";
  EXPECT_EQ(*take(window, 2, {0}, 1), std::vector{20});
  EXPECT_EQ(*take(window, 1, {1}, 1), std::vector{11});
  EXPECT_EQ(source_.given, 3U);
}

TEST_F(BatchWindowTest, GivesBatchesInPiecesToEachReader) {
  Program program = program_of({{0}, {0}});
  program.set_compute_batches(2);
  Rows source;
  BatchWindow window(program, JobStream::kTrain, source);
  window.begin();

  EXPECT_EQ(*take(window, 0, {0}, 1), std::vector{0});
  EXPECT_EQ(*take(window, 1, {0}, 1), std::vector{1});
  EXPECT_EQ(*take(window, 2, {0}, 1), std::vector{2});
  EXPECT_EQ(*take(window, 0, {0}, 1), std::vector{0}) << "the other stage is two pieces behind";
  EXPECT_EQ(*take(window, 1, {0}, 1), std::vector{1});
  EXPECT_EQ(*take(window, 3, {0}, 1), std::vector{3});
  EXPECT_EQ(source.given, 2U);
}

TEST_F(BatchWindowTest, GoesOnWithTheNextBatchInTheNextRun) {
  BatchWindow window(program_of_batches(2), JobStream::kTrain, source_);
  window.begin();
  EXPECT_EQ(*take(window, 0, {}, 2), (std::vector{0, 1}));
  window.begin();
  EXPECT_EQ(*take(window, 0, {}, 2), (std::vector{10, 11}));
}

TEST_F(BatchWindowTest, RefusesABatchWithMoreOrFewerTensors) {
  const auto refusal = [&](const Program& program, std::vector<std::uint32_t> fields, std::size_t tensors) {
    BatchWindow window(program, JobStream::kTrain, source_);
    window.begin();
    const auto taken = take(window, 0, std::move(fields), tensors);
    EXPECT_FALSE(taken);
    EXPECT_EQ(taken.error().code, ErrorCode::kData);
    return taken.error().message;
  };
  EXPECT_EQ(refusal(program_of_batches(3), {}, 3),
            "batch 0 from the data server has 2 tensors, but the model needs 3; serve the dataset of this job");
  EXPECT_THAT(refusal(program_of_batches(1), {}, 1), HasSubstr("2 tensors, but the model needs 1"));
  EXPECT_THAT(refusal(program_of({{0}, {0}}), {0}, 1), HasSubstr("2 tensors, but the model needs 1"));
  EXPECT_THAT(refusal(program_of({{0}, {2, 1}}), {0}, 1), HasSubstr("2 tensors, but the model needs 3"));
}

TEST_F(BatchWindowTest, RefusesABatchOfOtherSizes) {
  type_ = {DataType::kU8, {5}, Layout::kRowMajor};
  BatchWindow window(program_of_batches(2), JobStream::kTrain, source_);
  window.begin();
  std::array<std::byte, 5> bytes{};
  const std::vector<HostTensor> tensors = {{"t", type_, bytes}, {"u", type_, bytes}};
  const Status refused = window.write({0, tensors, {}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kData);
  EXPECT_EQ(refused.error().message,
            "batch 0 from the data server: tensor 't' has 4 B, but the model needs 5 B (u8[5])");
}

TEST(BatchWindow, FetchesAheadOfItsReaders) {
  Counting source;
  const Program program = program_of({{0, 1}});
  BatchWindow window(program, JobStream::kTrain, source);
  window.begin();
  ASSERT_TRUE(window.fetch(3));
  EXPECT_EQ(source.given, 3U);
  ASSERT_TRUE(window.fetch(2));
  EXPECT_EQ(source.given, 3U);
}

template <typename T>
std::string bytes_of(const std::vector<T>& elements) {
  return {reinterpret_cast<const char*>(elements.data()), elements.size() * sizeof(T)};
}

TEST(LabelCounts, AreOfIntegersFromZeroOnInEachPiece) {
  LabelCounts counts({{.name = "labels", .field = 1}}, 4, 2);
  // Each piece has two samples of three labels. The pieces of the two batches have 2, 5, 3 and 0 valid labels.
  counts.add({0, {std::string(), bytes_of<std::int32_t>({0, -1, -1, 7, -1, -100, 1, 1, 1, 2, 0, -1})}});
  EXPECT_THAT(counts.sums(), ElementsAre(7));
  EXPECT_EQ(counts.ranges()[0].fewest, 2U);
  EXPECT_EQ(counts.ranges()[0].most, 5U);
  counts.add({1, {std::string(), bytes_of<std::int32_t>({1, -1, -1, -1, 1, 1, -1, -1, -1, -1, -1, -1})}});
  EXPECT_THAT(counts.sums(), ElementsAre(10));
  EXPECT_EQ(counts.ranges()[0].fewest, 0U);
  counts.begin_step();
  EXPECT_THAT(counts.sums(), ElementsAre(0));
  EXPECT_EQ(counts.ranges()[0].most, 5U) << "since the beginning";
}

TEST(LabelCounts, OfNumbersAreSamplesWithoutANaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  LabelCounts counts({{.name = "labels", .field = 0, .is_integer = false}}, 3, 1);
  counts.add({0, {bytes_of<float>({1, 2, nan, 0, nan, nan})}});
  EXPECT_THAT(counts.sums(), ElementsAre(1));
}

}  // namespace
}  // namespace poprun
