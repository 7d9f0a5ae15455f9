/// Which setting applies to a convolution or matmul, and which settings reach the operations of a job.

#include <map>

#include <gmock/gmock.h>

#include "replica/compilation/job_inputs.h"
#include "replica/compiler/compile.h"
#include "replica/compiler/planner/product_options.h"
#include "tests/unit/replica/texts.h"
#include "tests/unit/replica/training_job.h"

namespace poprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Proportion = ProductSetting<std::int64_t>;

constexpr auto kConvolution = ProductKind::kConvolution;
constexpr auto kMatmul = ProductKind::kMatmul;

Proportion everywhere(std::int64_t permille) {
  return {.text = "X", .value = permille};
}

ProductSettings settings_of(const PlannerOptions& options) {
  auto made = ProductSettings::make(options);
  EXPECT_TRUE(made) << made.error().message;
  return *std::move(made);
}

std::int64_t permille(const PlannerOptions& options, const PlacedProduct& product) {
  return settings_of(options).of(product).permille;
}

TEST(PlannerOptions, AreSixTenthsAndFloatWhereNobodySaysAnything) {
  const ProductOptions options = settings_of({}).of({.name = "conv1"});

  EXPECT_EQ(options.permille, 600);
  EXPECT_EQ(options.partials, Precision::kFloat);
  EXPECT_EQ(options.permille_by, "");
  EXPECT_TRUE(is_default({}));
  EXPECT_TRUE(is_default({.available_memory = {everywhere(600)}}));
  EXPECT_FALSE(is_default({.available_memory = {everywhere(500)}}));
}

// Each line's setting is more specific than those above it, and wins in either order.
TEST(PlannerOptions, TheNarrowerWins) {
  const std::vector<Proportion> broad_to_narrow = {{.text = "a", .value = 1},
                                                   {.text = "b", .products = kMatmul, .value = 2},
                                                   {.text = "c", .ipu = 3, .value = 3},
                                                   {.text = "d", .products = kMatmul, .ipu = 3, .value = 4},
                                                   {.text = "e", .stage = 5, .value = 5},
                                                   {.text = "f", .products = kMatmul, .stage = 5, .value = 6},
                                                   {.text = "fc.$=7", .operators = "fc.$", .value = 7}};
  const PlacedProduct product{.kind = kMatmul, .ipu = 3, .stage = 5, .name = "fc1"};

  for (std::size_t count = 1; count <= broad_to_narrow.size(); ++count) {
    PlannerOptions options;
    options.available_memory.assign(broad_to_narrow.begin(),
                                    broad_to_narrow.begin() + static_cast<std::ptrdiff_t>(count));
    EXPECT_EQ(permille(options, product), static_cast<std::int64_t>(count));
    std::ranges::reverse(options.available_memory);
    EXPECT_EQ(permille(options, product), static_cast<std::int64_t>(count));
  }
  const ProductSettings all = settings_of({.available_memory = broad_to_narrow});
  EXPECT_EQ(all.of(product).permille_by, "memory.available-memory-proportion-operators = fc.$=7");
  // Other products get the most specific setting that applies to them.
  EXPECT_EQ(all.of({kMatmul, 3, 5, "fc12"}).permille, 6);
  EXPECT_EQ(all.of({kConvolution, 3, 5, "fc12"}).permille, 5);
  EXPECT_EQ(all.of({kMatmul, 3, 4, "fc12"}).permille, 4);
  EXPECT_EQ(all.of({kConvolution, 3, 4, "fc12"}).permille, 3);
  EXPECT_EQ(all.of({kMatmul, 2, 4, "fc12"}).permille, 2);
  EXPECT_EQ(all.of({kConvolution, 2, 4, "fc12"}).permille, 1);
  EXPECT_EQ(all.of({kConvolution, 2, 4, "fc12"}).permille_by, "memory.available-memory-proportion = a");
}

TEST(PlannerOptions, OfEquallyNarrowSettingsTheLastWins) {
  const PlannerOptions options{.available_memory = {{.text = "conv=0.1", .operators = "conv", .value = 100},
                                                    {.text = "v1=0.2", .operators = "v1", .value = 200}}};
  EXPECT_EQ(permille(options, {.name = "conv1"}), 200);
  EXPECT_EQ(permille(options, {.name = "conv2"}), 100);
}

TEST(PlannerOptions, APatternThatMatchesNothingIsRefused) {
  const std::vector<PlacedProduct> products = {{kConvolution, 0, 0, "conv1"}, {kMatmul, 0, 0, "fc1"}};
  const auto error_of = [&](const std::string& pattern) {
    const auto notes =
        settings_of({.partials = {{.text = pattern + "=half", .operators = pattern}}}).notes_of_no_effect(products);
    return notes ? "no error" : notes.error().message;
  };
  EXPECT_EQ(error_of("con1"),
            "model.partials-operators = con1=half: matches no convolution or matmul in "
            "the model; did you mean conv1?");
  EXPECT_THAT(error_of("transformer"), HasSubstr("available: conv1, fc1 ..."));
  EXPECT_EQ(error_of("^c"), "no error");
  const auto none = ProductSettings::make({.partials = {{.text = "(=half", .operators = "("}}});
  EXPECT_THAT(none.error().message, HasSubstr("model.partials-operators = (=half: not a valid regular"));
}

TEST(PlannerOptions, SettingsForNothingAreNoted) {
  const std::vector<PlacedProduct> products = {{kConvolution, 0, 0, "conv1"}, {kConvolution, 1, 1, "b"}};
  const PlannerOptions options{.available_memory = {{.text = "matmuls=0.1", .products = kMatmul, .value = 100},
                                                    {.text = "ipu1=0.2", .ipu = 1, .value = 200},
                                                    {.text = "stage2=0.3", .stage = 2, .value = 300},
                                                    everywhere(400)}};

  const auto notes = settings_of(options).notes_of_no_effect(products);

  ASSERT_TRUE(notes);
  EXPECT_THAT(testing::texts(*notes),
              ElementsAre("memory.available-memory-proportion = matmuls=0.1 has no effect: the "
                          "model has no matmul",
                          "memory.available-memory-proportion = stage2=0.3 has no effect: there is "
                          "no convolution or matmul in stage 2, only in stages 0, 1"));
}

TEST(PlannerOptions, UnequalProportionsOnOneIpuAreNoted) {
  const std::vector<PlacedProduct> products = {
      {kConvolution, 0, 0, "conv1"}, {kConvolution, 0, 0, "conv2"}, {kMatmul, 1, 1, "fc1"}};
  const auto notes = [&](std::vector<Proportion> settings) {
    return testing::texts(settings_of({.available_memory = std::move(settings)}).notes_of_unequal(products));
  };
  EXPECT_THAT(notes({{.text = "ipu0=0.2", .ipu = 0, .value = 200}}), IsEmpty());
  EXPECT_THAT(notes({{.text = "conv2=0.25", .operators = "conv2", .value = 250}}),
              ElementsAre(HasSubstr("has several values on IPU 0 (0.25, 0.6): products that are otherwise "
                                    "equal cannot share code")));
}

proto::ProductSetting& add_setting(proto::RunConfig& job, const std::string& operators) {
  proto::ProductSetting& setting = *job.mutable_model()->add_partials();
  setting.set_operators(operators);
  setting.set_text(operators);
  return setting;
}

/// Returns the precision of the partial sums of each product in the job's graph, by the name of its first output.
std::map<std::string, Precision> partials_in(const proto::RunConfig& job) {
  const auto options = compile_options(job, testing::dataset());
  EXPECT_TRUE(options) << options.error().message;
  const auto graph = build_job(*options);
  EXPECT_TRUE(graph) << graph.error().message;
  std::map<std::string, Precision> found;
  for (const Function& function : graph->functions) {
    for (const Region& region : function.regions) {
      for (const Operation& operation : region.operations) {
        const Operator* op = find_operator(operation.kind);
        if (op != nullptr && op->contraction != nullptr) {
          found[graph->tensor(operation.outputs[0]).name] = partials_of(operation.attributes);
        }
      }
    }
  }
  return found;
}

TEST(PlannerOptions, GradientsAndEvaluationHaveThoseOfTheForwardPass) {
  proto::RunConfig job = testing::config(1, 2);
  job.mutable_model()->set_precision("half");
  add_setting(job, "^conv2$").set_partials("half");

  const auto found = partials_in(job);

  for (const char* name : {"conv2", "evaluate/conv2", "conv2.weight.gradient"}) {
    ASSERT_TRUE(found.contains(name)) << name;
    EXPECT_EQ(found.at(name), Precision::kHalf) << name;
  }
  for (const char* name : {"conv1", "evaluate/fc1", "fc1.weight.gradient", "conv1.weight.gradient"}) {
    ASSERT_TRUE(found.contains(name)) << name;
    EXPECT_EQ(found.at(name), Precision::kFloat) << name;
  }
  // The fourth is conv2's input gradient, which is named after the tensor that conv2 reads.
  EXPECT_EQ(std::ranges::count(found, Precision::kHalf, [](const auto& f) { return f.second; }), 4);
}

TEST(PlannerOptions, AProportionChangesNoNumberFormatAndReachesEveryOperation) {
  proto::RunConfig job = testing::config(1, 2);
  proto::ProductSetting& setting = *job.mutable_memory()->add_available_memory_proportion();
  setting.set_products("matmuls");
  setting.set_permille(250);
  const auto options = compile_options(job, testing::dataset());
  ASSERT_TRUE(options);
  const auto graph = build_job(*options);
  ASSERT_TRUE(graph) << graph.error().message;

  std::map<std::int64_t, int> products;
  for (const Function& function : graph->functions) {
    for (const Region& region : function.regions) {
      for (const Operation& operation : region.operations) {
        const bool is_matmul = operation.kind.starts_with("linear");
        const Operator* op = find_operator(operation.kind);
        if (op != nullptr && op->contraction != nullptr) {
          EXPECT_EQ(permille_of(operation.attributes), is_matmul ? 250 : 600) << operation.kind;
          ++products[permille_of(operation.attributes)];
        }
      }
    }
  }
  // Two matmuls and two convolutions have two forward passes and two gradients each. The images have no gradient.
  EXPECT_EQ(products[250], 8);
  EXPECT_EQ(products[600], 7);
}

}  // namespace
}  // namespace poprun
