/// Options for products: what they accept and refuse, and how they are printed.

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include "tests/unit/launcher/parsed_options.h"

namespace poprun::launcher {
namespace {

using google::protobuf::util::MessageDifferencer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Returns a job's settings as texts, each with its place, kind and value, such as "ipu1.matmuls=200".
std::vector<std::string> settings_in(const google::protobuf::RepeatedPtrField<proto::ProductSetting>& settings) {
  std::vector<std::string> texts;
  for (const proto::ProductSetting& s : settings) {
    const std::string place = s.has_ipu()         ? "ipu" + std::to_string(s.ipu())
                              : s.has_stage()     ? "stage" + std::to_string(s.stage())
                              : s.has_operators() ? "/" + s.operators() + "/"
                                                  : "";
    texts.push_back(place + "." + s.products() + "=" +
                    (s.has_permille() ? std::to_string(s.permille()) : s.partials()));
  }
  return texts;
}

std::vector<std::string> proportions(const Args& args, std::string_view config = "") {
  const auto options = parse(args, config);
  EXPECT_TRUE(options) << options.error().message;
  return options ? settings_in(options->config.memory().available_memory_proportion()) : std::vector<std::string>{};
}

TEST(ProductOptions, AreAValueOrOneForEachIpuAndWhatIsNarrower) {
  const char* key = "--memory.available-memory-proportion";
  EXPECT_THAT(proportions({}), ElementsAre(".=600"));
  EXPECT_THAT(proportions({key, "0.005"}), ElementsAre(".=5"));
  EXPECT_THAT(proportions({"--ipus-per-replica", "4", key, "0.15 .25,0.25 0.25"}),
              ElementsAre("ipu0.=150", "ipu1.=250", "ipu2.=250", "ipu3.=250"));
  EXPECT_THAT(proportions({"--ipus-per-replica", "2", key, "matmuls=0.4 0.6 IPU1=0.15 stage2=0 stage2.convolutions=1"}),
              ElementsAre(".matmuls=400", ".=600", "ipu1.=150", "stage2.=0", "stage2.convolutions=1000"));
  EXPECT_THAT(
      settings_in(
          parse({"--model.precision", "half", "--model.partials", "half matmuls=float"})->config.model().partials()),
      ElementsAre(".=half", ".matmuls=float"));
}

TEST(ProductOptions, ForOperatorsStandBesideTheOthersAndAddUp) {
  EXPECT_THAT(proportions({"--memory.available-memory-proportion-operators", "conv\\d=0.2",
                           "--memory.available-memory-proportion-operators", "a=b=0.3"},
                          "[memory]\navailable-memory-proportion = 0.5\n"
                          "available-memory-proportion-operators = ^x$=0.1  y=1\n"),
              ElementsAre(".=500", "/^x$/.=100", "/y/.=1000", "/conv\\d/.=200", "/a=b/.=300"));
}

TEST(ProductOptions, AreReadAgainAsTheyArePrinted) {
  const auto options = parse({"--ipus-per-replica", "2", "--memory.available-memory-proportion", "0.15 0.25",
                              "--memory.available-memory-proportion-operators", "a=0.2",
                              "--memory.available-memory-proportion-operators", "b\\.c=0.3"});
  ASSERT_TRUE(options) << options.error().message;
  const auto again = parse({"--ipus-per-replica", "2"}, resolved_config(*options));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_TRUE(MessageDifferencer::Equals(again->config, options->config));
}

TEST(ProductOptions, ThatAreNoneSayWhichWordAndWhatIsAllowed) {
  const auto refused = [](const std::string& value) {
    return error_of({"--memory.available-memory-proportion", value});
  };
  const std::string allowed =
      " is not allowed; allowed: a number from 0 to 1 with at most 3 decimals; or one per IPU, separated by blanks; "
      "also WHERE=X, where WHERE is convolutions, matmuls, ipuN or stageN, or a place and a kind, such as "
      "stage2.matmuls; ";
  EXPECT_EQ(refused("1.5"), "--memory.available-memory-proportion = 1.5" + allowed + "'1.5' is not valid");
  EXPECT_EQ(refused("0.6 tile3=0.2"),
            "--memory.available-memory-proportion = 0.6 tile3=0.2" + allowed + "'tile3=0.2' is not valid");
  EXPECT_THAT(refused("0.1234"), HasSubstr("'0.1234' is not valid"));
  EXPECT_THAT(refused("ipu0=0.1 ipu0=0.2"), HasSubstr("'ipu0=0.2' applies to the same products as an earlier setting"));
  EXPECT_THAT(refused("0.1 0.2 ipu1=0.2"), HasSubstr("'ipu1=0.2' applies to the same products"));
  for (const char* value : {"nan", "-0.1", "=0.5", ".matmuls=0.5", "ipu0.=0.5", "ipu64=0.5", "ipu0.stage1=0.5",
                            "matmuls.ipu0=0.5", "matmuls=", "half"}) {
    EXPECT_THAT(refused(value), HasSubstr("is not valid")) << value;
  }
  EXPECT_THAT(error_of({"--model.partials", "double"}), HasSubstr("allowed: float or half; or one per IPU"));
  EXPECT_EQ(error_of({"--model.partials-operators", "conv1"}),
            "--model.partials-operators = conv1 is not allowed; allowed: REGEX=TYPE, several of "
            "them separated by blanks, where TYPE is float or half; 'conv1' is not valid");
  EXPECT_THAT(error_of({"--model.partials-operators", "(=half"}),
              HasSubstr("'(' is not an ECMAScript regular expression"));
}

TEST(ProductOptions, ForIpusThatDoNotExistAreRefused) {
  EXPECT_EQ(error_of({"--ipus-per-replica", "2", "--memory.available-memory-proportion", "0.1 0.2 0.3"}),
            "memory.available-memory-proportion = 0.1 0.2 0.3: a replica with --ipus-per-replica = 2 has no IPU 2; "
            "IPUs are numbered from 0; set --ipus-per-replica 3 or do not name this IPU");
  EXPECT_THAT(parse({"--ipus-per-replica", "3", "--memory.available-memory-proportion", "0.1 0.2"})->notes,
              ::testing::Contains("memory.available-memory-proportion = 0.1 0.2: IPUs that are not listed use 0.6"));
}

TEST(ProductOptions, HalfPartialsNeedHalfPrecisionWhereverTheyAre) {
  EXPECT_EQ(error_of({"--model.partials", "float matmuls=half"}),
            "model.partials = float matmuls=half needs model.precision = half, but it is float");
  EXPECT_EQ(error_of({"--model.partials-operators", "conv1=half"}),
            "model.partials-operators = conv1=half needs model.precision = half, but it is float");
}

TEST(ProductOptions, PartialSumsThatDependOnTheCutCannotBeChecked) {
  const Args half = {"check", "--model.precision", "half", "--model.partials"};
  const auto with = [&](const std::string& value) {
    Args args = half;
    args.push_back(value);
    return error_of(args);
  };
  EXPECT_EQ(with("ipu0=half"),
            "model.partials = ipu0=half: check splits the model in several ways that must give identical bits, but "
            "partial sums set by IPU or stage depend on the split; choose the operators by name with "
            "model.partials-operators");
  EXPECT_EQ(with("matmuls=half"), "no error");
}

TEST(ProductOptions, AdviseAgainstTinyProportions) {
  const auto notes = [](const char* value) { return parse({"--memory.available-memory-proportion", value})->notes; };
  EXPECT_THAT(notes("0.049"), ::testing::Contains(HasSubstr("memory.available-memory-proportion = 0.049: "
                                                            "Graphcore advises against values below 0.05 for "
                                                            "poplin::createWeights()")));
  EXPECT_THAT(notes("0.05"), ::testing::Not(::testing::Contains(HasSubstr("poplin::createWeights"))));
}

TEST(Serialisation, IsAFactorForTheEmbeddingAndOneForEachMatmulByName) {
  const auto options =
      parse({"--model.embedding-serialisation-factor", "4", "--model.serialised-matmuls", "c_fc=2 ^lm_head$=8"});
  ASSERT_TRUE(options) << options.error().message;
  const proto::ModelConfig& model = options->config.model();
  EXPECT_EQ(model.embedding_serialisation_factor(), 4);
  ASSERT_EQ(model.serialised_matmuls_size(), 2);
  EXPECT_EQ(model.serialised_matmuls(1).operators(), "^lm_head$");
  EXPECT_EQ(model.serialised_matmuls(1).slices(), 8);
  EXPECT_EQ(parse({})->config.model().embedding_serialisation_factor(), 1);
  EXPECT_THAT(error_of({"--model.embedding-serialisation-factor", "0"}),
              HasSubstr("--model.embedding-serialisation-factor = 0 is not allowed"));
  EXPECT_THAT(error_of({"--model.serialised-matmuls", "fc=0"}),
              HasSubstr("allowed: REGEX=N, several of them separated by blanks, where N is a whole "
                        "number from 1 to 4096; 'fc=0' is not valid"));
}

TEST(ProductOptions, AreFoundByTheirNamesElsewhere) {
  EXPECT_THAT(error_of({"--availableMemoryProportion", "0.2"}),
              HasSubstr("did you mean --memory.available-memory-proportion?"));
  EXPECT_THAT(error_of({"--partialsType", "half"}), HasSubstr("did you mean --model.partials?"));
  EXPECT_THAT(error_of({"--embedding_serialization_factor", "2"}),
              HasSubstr("did you mean --model.embedding-serialisation-factor?"));
  EXPECT_THAT(error_of({}, "[memory]\navailableMemoryProportion = 0.2\n"),
              HasSubstr("did you mean available-memory-proportion?"));
}

}  // namespace
}  // namespace poprun::launcher
