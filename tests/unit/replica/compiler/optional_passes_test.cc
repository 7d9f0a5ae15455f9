/// Passes that do not affect a job's results are left out if their proof fails.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/compiler/passes.h"
#include "tests/unit/replica/texts.h"
#include "tests/unit/replica/training_job.h"

namespace poprun {
namespace {

using testing::config;
using testing::dataset;
using ::testing::HasSubstr;

/// Returns a job of two stages after all passes, with the result of the pass `refused` rejected. If `refused` is empty,
/// no result is rejected.
Result<Job> without(std::string_view refused, bool leaves_out) {
  proto::RunConfig job = config(2, 2);
  job.mutable_model()->set_name("gpt2");
  for (const auto& [name, size] : {std::pair{"layers", 4}, {"hidden", 16}, {"heads", 2}, {"vocabulary", 32}}) {
    (*job.mutable_model()->mutable_sizes())[name] = size;
  }
  proto::Dataset data = dataset();
  data.clear_tensors();
  for (const char* name : {"tokens", "labels"}) {
    proto::StreamTensor& tensor = *data.add_tensors();
    tensor.set_name(name);
    tensor.set_element("i32");
    tensor.add_sample_shape(8);
  }
  data.set_classes(32);
  job.mutable_training()->set_gradient_accumulation(4);
  job.mutable_topology()->set_ipus_per_replica(2);
  job.mutable_pipeline()->set_schedule("grouped");
  job.mutable_pipeline()->set_recomputation("layer");
  job.mutable_memory()->set_optimizer_state("off-chip");
  job.mutable_memory()->set_outlining("on");
  job.mutable_memory()->add_replicated_tensor_sharding("optimizer-state");
  CompileOptions options = *compile_options(job, data);
  options.leaves_out_unproven = leaves_out;
  const auto refuse = [refused](std::string_view pass, const Job& /*job*/) -> Status {
    return pass == refused ? fail(ErrorCode::kBug, "planted") : Status{};
  };
  return run_passes(options, {}, {.after_pass = refuse});
}

class OptionalPass : public ::testing::TestWithParam<std::string_view> {};

TEST_P(OptionalPass, IsLeftOutWithANoteWhereItsProofFails) {
  const Result<Job> whole = without("", true);
  const Result<Job> job = without(GetParam(), true);
  ASSERT_TRUE(job) << job.error().message;
  EXPECT_THAT(testing::texts(job->notes),
              ::testing::Contains(HasSubstr(fmt::format("{} {}: planted", GetParam(), kLeftOut))));
  EXPECT_TRUE(to_text(job->graph) != to_text(whole->graph)) << "the pass does nothing in this job";
}

TEST_P(OptionalPass, IsABugInStrictModeWhereItsProofFails) {
  const Result<Job> job = without(GetParam(), false);
  ASSERT_FALSE(job);
  EXPECT_EQ(job.error().code, ErrorCode::kBug);
}

INSTANTIATE_TEST_SUITE_P(Passes, OptionalPass, ::testing::Values("recomputation", "sharding", "locations", "outlining"),
                         [](const auto& pass) { return std::string{pass.param}; });

TEST(OptionalPasses, AreThoseWithoutWhichAJobHasTheSameResults) {
  std::vector<std::string_view> names;
  for (const Pass& pass : all_passes()) {
    if (pass.is_optional) {
      names.push_back(pass.name);
    }
  }
  EXPECT_THAT(names,
              ::testing::ElementsAre("background-exchange", "recomputation", "sharding", "locations", "outlining"));
}

TEST(OptionalPasses, CannotBeLeftOutOfACheck) {
  proto::RunConfig job = config(1, 2);
  job.mutable_check();
  EXPECT_FALSE(compile_options(job, dataset())->leaves_out_unproven);
}

}  // namespace
}  // namespace poprun
