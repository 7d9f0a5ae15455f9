/// Updates whose rule depends on how a parameter is used.

#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/compiler/compile.h"
#include "replica/models/layers/model.h"
#include "tests/unit/replica/training_job.h"

namespace poprun::update_test {
namespace {

using ::testing::Contains;
using ::testing::Not;

/// Returns the names of the parameters that have a state with this name.
std::set<std::string> parameters_with(const Graph& graph, const std::string& state) {
  std::set<std::string> names;
  for (const Tensor& tensor : graph.tensors()) {
    if (tensor.role == Role::kOptimizerState && tensor.name.ends_with("." + state)) {
      names.insert(tensor.name.substr(0, tensor.name.size() - state.size() - 1));
    }
  }
  return names;
}

TEST(Muon, TreatsTablesOfTokensAndPositionsAsAdamWDoes) {
  proto::RunConfig job = testing::config(1, 1);
  job.mutable_model()->set_name("gpt2");
  for (const auto& [size, value] : {std::pair{"layers", 1}, {"hidden", 8}, {"heads", 2}, {"vocabulary", 11}}) {
    (*job.mutable_model()->mutable_sizes())[size] = value;
  }
  testing::set_optimizer(job, "muon");
  proto::Dataset data = testing::dataset_of(*find_model("gpt2"));
  data.set_classes(11);
  const auto options = compile_options(job, data);
  ASSERT_TRUE(options) << options.error().message;
  const auto graph = build_job(*options);
  ASSERT_TRUE(graph) << graph.error().message;

  const std::set<std::string> squares = parameters_with(*graph, "v");
  EXPECT_THAT(squares, Contains("transformer.wte.weight"));
  EXPECT_THAT(squares, Contains("transformer.wpe.weight"));
  EXPECT_THAT(squares, Contains("transformer.h.0.ln_1.weight"));
  EXPECT_THAT(squares, Not(Contains("transformer.h.0.mlp.c_fc.weight")));
  EXPECT_THAT(parameters_with(*graph, "m"), Contains("transformer.wpe.weight"));
}

}  // namespace
}  // namespace poprun::update_test
