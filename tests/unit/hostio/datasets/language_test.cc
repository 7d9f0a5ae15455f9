/// Samples of language models: next tokens and masks.

#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hostio/datasets/dataset.h"
#include "tests/unit/hostio/idx_bytes.h"

namespace poprun::hostio::language_test {
namespace {

using ::testing::AllOf;
using testing::Bytes;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;
using testing::TemporaryFolder;

std::vector<std::int32_t> read(const Dataset& dataset, const Sample& sample, int tensor) {
  const std::uint64_t bytes = sample_bytes(dataset.description().tensors(tensor));
  std::vector<std::int32_t> values(bytes / 4);
  dataset.read(sample, tensor, std::as_writable_bytes(std::span(values)));
  return values;
}

class Language : public ::testing::Test {
 protected:
  /// Writes a file whose byte i is i modulo 251.
  std::string file(std::size_t size) const {
    Bytes bytes(size);
    for (std::size_t i = 0; i < size; ++i) {
      bytes[i] = static_cast<std::uint8_t>(i % 251);
    }
    return folder_.write("data", bytes).string();
  }

  static std::unique_ptr<Dataset> load(const std::string& source) {
    auto dataset = load_dataset(source);
    EXPECT_TRUE(dataset) << dataset.error().message;
    return std::move(*dataset);
  }

  TemporaryFolder folder_;
};

TEST_F(Language, CutsTextIntoWindowsWithTheNextByteAsLabel) {
  const auto dataset = load("text:" + file(100) + "?sequence-length=4");

  // The 95 training bytes hold 23 windows and the byte after the last window; the 5 test bytes hold one window.
  EXPECT_EQ(dataset->description().train_items(), 23U);
  EXPECT_EQ(dataset->description().test_items(), 1U);
  EXPECT_EQ(dataset->description().classes(), 256U);
  EXPECT_THAT(read(*dataset, {.item = 2}, 0), ElementsAre(8, 9, 10, 11));
  EXPECT_THAT(read(*dataset, {.item = 2}, 1), ElementsAre(9, 10, 11, 12));
  EXPECT_THAT(read(*dataset, {.split = proto::SPLIT_TEST}, 1), ElementsAre(96, 97, 98, 99));
}

TEST_F(Language, ReadsTokensOf16And32Bits) {
  const std::string path = file(400);

  const auto narrow = load("tokens:" + path + "?sequence-length=2");
  const auto wide = load("tokens-u32:" + folder_.write("wide", Bytes(8192)).string() + "?sequence-length=4");

  EXPECT_THAT(read(*narrow, {.item = 1}, 0), ElementsAre(4 + 5 * 256, 6 + 7 * 256));
  EXPECT_EQ(narrow->description().classes(), 248U + 249U * 256U + 1U);
  EXPECT_EQ(wide->description().train_items(), (2048U - 102U - 1U) / 4U);
  EXPECT_EQ(wide->description().classes(), 1U);
}

TEST_F(Language, TestsWithAFileOfItsOwn) {
  const std::string test = folder_.write("test", Bytes{7, 1, 8, 1, 9, 1, 9, 1}).string();

  const auto bytes = load("text:" + file(100) + ",test=" + test + "?sequence-length=4");
  EXPECT_EQ(bytes->description().train_items(), 24U) << "of 100 bytes, with the label of the last one";
  EXPECT_EQ(bytes->description().test_items(), 1U);
  EXPECT_THAT(read(*bytes, {.split = proto::SPLIT_TEST}, 0), ElementsAre(7, 1, 8, 1));
  EXPECT_THAT(read(*bytes, {.split = proto::SPLIT_TEST}, 1), ElementsAre(1, 8, 1, 9));

  const auto tokens =
      load("tokens:" + folder_.write("train", Bytes(200)).string() + ",test=" + test + "?sequence-length=3");
  EXPECT_EQ(tokens->description().train_items(), 33U);
  EXPECT_EQ(tokens->description().classes(), 256U + 9U + 1U) << "ids of both files count";
  EXPECT_THAT(read(*tokens, {.split = proto::SPLIT_TEST}, 0), ElementsAre(263, 264, 265));
}

TEST_F(Language, NamesAFileForTestingThatIsEmptyOrBroken) {
  const std::string train = file(400);
  const auto error = [&](const std::string& source) {
    const auto dataset = load_dataset(source);
    return dataset ? "" : dataset.error().message;
  };
  EXPECT_THAT(error("text:" + train + ",test=" + folder_.write("empty", Bytes{}).string() + "?sequence-length=4"),
              HasSubstr("400 tokens, of which the last 0 are the test part"));
  const std::string odd = folder_.write("odd", Bytes(7)).string();
  EXPECT_THAT(error("tokens:" + train + ",test=" + odd), HasSubstr("tokens:" + odd + ": the size must be a multiple"));
  EXPECT_THAT(error("text:" + train + ",test=/does-not-exist"), HasSubstr("/does-not-exist"));
}

/// Returns a file of llm.c: its header, then `tokens`.
Bytes llmc_file(std::uint32_t magic, std::uint32_t version, std::uint32_t count, Bytes tokens) {
  Bytes bytes;
  for (const std::uint32_t word : {magic, version, count}) {
    for (const int shift : {0, 8, 16, 24}) {
      bytes.push_back(static_cast<std::uint8_t>(word >> shift));
    }
  }
  bytes.resize(1024);
  bytes.insert(bytes.end(), tokens.begin(), tokens.end());
  return bytes;
}

TEST_F(Language, SkipsTheHeaderOfLlmC) {
  Bytes tokens(800);
  for (std::size_t i = 0; i < tokens.size(); i += 4) {
    tokens[i] = static_cast<std::uint8_t>(i / 4);
  }
  const auto narrow =
      load("tokens:" + folder_.write("n", llmc_file(20240520, 1, 400, tokens)).string() + "?sequence-length=4");
  const auto wide =
      load("tokens-u32:" + folder_.write("w", llmc_file(20240801, 7, 200, tokens)).string() + "?sequence-length=4");
  EXPECT_THAT(read(*narrow, {.item = 1}, 0), ElementsAre(2, 0, 3, 0));
  EXPECT_THAT(read(*wide, {.item = 1}, 0), ElementsAre(4, 5, 6, 7));
  EXPECT_EQ(wide->description().classes(), 200U);
}

TEST_F(Language, RefusesOtherFilesAndHeadersThatDoNotFit) {
  const auto complaint = [&](const std::string& prefix, const Bytes& bytes) {
    const auto loaded = load_dataset(prefix + folder_.write("t", bytes).string());
    EXPECT_FALSE(loaded);
    EXPECT_EQ(loaded.error().code, ErrorCode::kData);
    return loaded.error().message;
  };
  const Bytes tokens(800);
  EXPECT_THAT(complaint("tokens:", llmc_file(20240801, 7, 200, tokens)),
              AllOf(HasSubstr("Llama 3 tokens"), HasSubstr("data.source = tokens-u32:FILE")));
  EXPECT_THAT(complaint("tokens-u32:", llmc_file(20240520, 1, 400, tokens)),
              AllOf(HasSubstr("GPT-2 tokens"), HasSubstr("data.source = tokens:FILE")));
  EXPECT_THAT(complaint("tokens:", llmc_file(20240520, 2, 400, tokens)), HasSubstr("version must be 1, but it is 2"));
  EXPECT_THAT(complaint("tokens:", llmc_file(20240520, 1, 401, tokens)),
              HasSubstr("expected 802 bytes for its 401 tokens, found 800"));
  EXPECT_THAT(complaint("tokens:", llmc_file(20240522, 1, 400, tokens)), HasSubstr("for an evaluation"));
  Bytes npy = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0};
  npy.resize(4000);
  EXPECT_THAT(complaint("tokens:", npy), HasSubstr("is a NumPy array; use data.source = npy:"));
}

TEST_F(Language, RefusesHalfATokenAndWrongParameters) {
  const std::string path = file(401);

  EXPECT_THAT(load_dataset("tokens:" + path).error().message, HasSubstr("it is 401 bytes"));
  EXPECT_THAT(load_dataset("text:" + path + "?task=guess").error().message,
              HasSubstr("allowed: next-token, masked-lm"));
  EXPECT_THAT(load_dataset("text:" + path + "?masks=3").error().message, HasSubstr("need data.task = masked-lm"));
  EXPECT_THAT(load_dataset("text:" + path + "?sequence-length=0").error().message,
              HasSubstr("sequence-length = 0 is not an integer from 1"));
  EXPECT_THAT(load_dataset("text:" + file(8000) + "?augment=flip").error().message,
              HasSubstr("needs images [C, H, W], but the dataset has tokens [128]"));
  EXPECT_THAT(
      load_dataset("text:" + file(100)).error().message,
      HasSubstr("100 tokens, of which the last 5 (5 %) are the test part, do not fill a sequence of 128 tokens"));
  EXPECT_EQ(load_dataset("text:/nowhere").error().code, ErrorCode::kData);
}

TEST_F(Language, MasksAsManyPositionsAsAskedFor) {
  for (const auto& [masks, slots] : {std::pair{"", 3}, {",masks=8", 8}, {",masks=16", 16}}) {
    const auto dataset = load("text:" + file(2000) + "?task=masked-lm,sequence-length=16" + std::string(masks));
    ASSERT_EQ(dataset->description().tensors(3).sample_shape(0), static_cast<unsigned>(slots));
    for (std::uint64_t item = 0; item < 50; ++item) {
      const auto positions = read(*dataset, {.item = item, .seed = 7}, 2);
      const auto labels = read(*dataset, {.item = item, .seed = 7}, 3);
      for (std::size_t k = 0; k < labels.size(); ++k) {
        EXPECT_GE(labels[k], 0);
        EXPECT_TRUE(k == 0 || positions[k] > positions[k - 1]);
      }
    }
  }
}

TEST_F(Language, AsksForATokenOfTheWindow) {
  const auto dataset = load("text:" + file(20'000) + "?task=question-answering,sequence-length=300");
  ASSERT_EQ(dataset->description().tensors_size(), 3);
  EXPECT_EQ(dataset->description().tensors(2).name(), "labels");
  std::set<std::int32_t> starts;
  for (std::uint64_t item = 0; item < 60; ++item) {
    const Sample sample{.item = item, .seed = 7};
    const auto tokens = read(*dataset, sample, 0);
    const auto segments = read(*dataset, sample, 1);
    const auto labels = read(*dataset, sample, 2);
    for (std::size_t t = 1; t < 300; ++t) {
      ASSERT_EQ(tokens[t], static_cast<std::int32_t>((item * 300 + t) % 251));
      ASSERT_EQ(segments[t], 1);
    }
    EXPECT_EQ(segments[0], 0);
    // The bytes of the file repeat after 251.
    const auto [start, end] = std::pair{labels.at(0), labels.at(1)};
    EXPECT_EQ(tokens.at(static_cast<std::size_t>(start)), tokens[0]);
    EXPECT_EQ(tokens.at(static_cast<std::size_t>(end)), tokens[0]);
    EXPECT_THAT(start, AllOf(Ge(1), Le(251)));
    EXPECT_EQ(end, start + 251 < 300 ? start + 251 : start);
    starts.insert(start);
    EXPECT_EQ(read(*dataset, sample, 2), labels);
  }
  EXPECT_GT(starts.size(), 40U) << "drawn at random";
  EXPECT_THAT(load_dataset("text:" + file(2000) + "?task=question-answering,sequence-length=1").error().message,
              HasSubstr("sequence-length = 1 is not an integer from 2"));
  EXPECT_THAT(load_dataset("text:" + file(2000) + "?task=question-answering,masks=2").error().message,
              HasSubstr("need data.task = masked-lm, but it is question-answering"));
}

TEST_F(Language, ReplacesMasksAsBertDoes) {
  const auto dataset = load("text:" + file(20'000) + "?task=masked-lm,sequence-length=100,masks=15");
  ASSERT_EQ(dataset->description().tensors_size(), 5);
  std::vector<int> kinds(3);  // Counts of masked, random and kept tokens.
  for (std::uint64_t item = 0; item < 190; ++item) {
    const Sample sample{.item = item, .seed = 7};
    const auto tokens = read(*dataset, sample, 0);
    const auto positions = read(*dataset, sample, 2);
    const auto labels = read(*dataset, sample, 3);

    std::vector<std::int32_t> restored = tokens;
    for (std::size_t k = 0; k < 15; ++k) {
      ASSERT_TRUE(k == 0 || positions[k] > positions[k - 1]);
      std::int32_t& token = restored.at(static_cast<std::size_t>(positions[k]));
      ++kinds[token == 256 ? 0 : token == labels[k] ? 2 : 1];
      token = labels[k];
    }
    for (std::size_t t = 0; t < 100; ++t) {
      ASSERT_EQ(restored[t], static_cast<std::int32_t>((item * 100 + t) % 251));
    }
    EXPECT_THAT(read(*dataset, sample, 1), Each(0));
    EXPECT_THAT(read(*dataset, sample, 4), ElementsAre(-1));
  }
  // The tolerances are 4 standard deviations of 2850 draws.
  EXPECT_NEAR(kinds[0] / 2850.0, 0.8, 0.03);
  EXPECT_NEAR(kinds[1] / 2850.0, 0.1, 0.023);
  EXPECT_NEAR(kinds[2] / 2850.0, 0.1, 0.023);
}

TEST_F(Language, DrawsMasksBySeedAndEpoch) {
  const auto dataset = load("text:" + file(20'000) + "?task=masked-lm");
  const auto positions = [&](std::uint64_t seed, std::uint64_t epoch) {
    return read(*dataset, {.item = 3, .seed = seed, .epoch = epoch}, 2);
  };

  EXPECT_EQ(positions(1, 1), positions(1, 1));
  EXPECT_NE(positions(1, 1), positions(1, 2));
  EXPECT_NE(positions(1, 1), positions(2, 1));
}

TEST(Synthetic, GivesTheSameTokensEveryTime) {
  const std::string source = "synthetic:tokens,vocabulary=50,items=100?sequence-length=8";
  const auto a = load_dataset(source);
  const auto b = load_dataset(source);
  ASSERT_TRUE(a && b) << a.error().message;

  EXPECT_EQ((*a)->description().classes(), 50U);
  EXPECT_EQ(read(**a, {.item = 5}, 0), read(**b, {.item = 5}, 0));
  EXPECT_NE(read(**a, {.item = 5}, 0), read(**a, {.item = 6}, 0));
}

TEST(Synthetic, MakesImagesThatTellTheirLabel) {
  const auto dataset = load_dataset("synthetic:images=1x20x6,classes=10,items=60");
  ASSERT_TRUE(dataset) << dataset.error().message;
  EXPECT_EQ((*dataset)->description().train_items(), 60U);
  EXPECT_EQ((*dataset)->description().test_items(), 10U);
  std::vector<std::byte> image(120);
  (*dataset)->read({.item = 4}, 0, image);
  std::int32_t label = 0;
  (*dataset)->read({.item = 4}, 1, std::as_writable_bytes(std::span(&label, 1)));

  for (std::size_t i = 0; i < image.size(); ++i) {
    const bool bright = static_cast<std::int32_t>(i / 6 / 2) == label;
    EXPECT_EQ(std::to_integer<int>(image[i]) >= 128, bright) << i;
  }
}

TEST(Synthetic, MakesTheSameImagesAsNormalisedFloats) {
  const auto bytes = load_dataset("synthetic:images=1x20x6,type=byte,seed=3");
  const auto floats = load_dataset("synthetic:images=1x20x6,type=float,seed=3");
  ASSERT_TRUE(bytes && floats) << floats.error().message;
  EXPECT_EQ((*floats)->description().tensors(0).element(), "f32");
  EXPECT_EQ((*floats)->description().mean(), 0);
  EXPECT_EQ((*floats)->description().deviation(), 1);
  for (const proto::Split split : {proto::SPLIT_TRAIN, proto::SPLIT_TEST}) {
    std::vector<std::byte> image(120);
    std::vector<float> normalised(120);
    (*bytes)->read({.split = split, .item = 7}, 0, image);
    (*floats)->read({.split = split, .item = 7}, 0, std::as_writable_bytes(std::span(normalised)));
    for (std::size_t i = 0; i < image.size(); ++i) {
      EXPECT_NEAR(normalised[i], std::to_integer<int>(image[i]) / 127.5 - 1, 1e-6) << i;
    }
  }
}

TEST(Synthetic, SaysWhatItNeeds) {
  EXPECT_THAT(load_dataset("synthetic:images=1x2x3,type=half").error().message,
              HasSubstr("type = half must be byte or float"));
  EXPECT_THAT(load_dataset("synthetic:noise=3").error().message, HasSubstr("images=CxHxW or tokens must follow"));
  EXPECT_THAT(load_dataset("synthetic:images=1x28").error().message,
              HasSubstr("images = 1x28 must have the form CxHxW"));
  EXPECT_THAT(load_dataset("synthetic:images=1x2x3,colour=4").error().message,
              HasSubstr("colour is not a parameter of this source"));
  EXPECT_THAT(load_dataset("synthetic:images=1x2x3,classes=4,classes=5").error().message,
              HasSubstr("classes=4,classes=5: classes is given twice; remove one of the two"));
  EXPECT_THAT(load_dataset("synthetic:images=1x2x3?task=masked-lm").error().message,
              HasSubstr("data.task applies only to tokens"));
  EXPECT_THAT(load_dataset("idx:/x?sequence-length=4").error().message,
              HasSubstr("data.sequence-length = 4 is not a parameter of source"));
}

TEST(Augmentation, MovesAndMirrorsTrainingImagesOnly) {
  const std::string source = "synthetic:images=2x9x9,items=64";
  const auto plain = load_dataset(source);
  const auto moved = load_dataset(source + "?augment=flip+crop");
  ASSERT_TRUE(plain && moved) << moved.error().message;
  std::vector<std::byte> a(162);
  std::vector<std::byte> b(162);
  int mirrored = 0;
  for (std::uint64_t item = 0; item < 64; ++item) {
    (*plain)->read({.item = item}, 0, a);
    (*moved)->read({.item = item, .seed = 3}, 0, b);
    // A 9 x 9 plane moves by at most 4 pixels each way, so its middle pixel stays inside.
    bool found = false;
    for (int flip = 0; flip < 2; ++flip) {
      for (int dy = -4; dy <= 4; ++dy) {
        for (int dx = -4; dx <= 4; ++dx) {
          bool equal = true;
          for (int i = 0; i < 162 && equal; ++i) {
            const int y = i / 9 % 9 + dy;
            const int x = (flip == 1 ? 8 - i % 9 : i % 9) + dx;
            const bool inside = y >= 0 && y < 9 && x >= 0 && x < 9;
            const auto from = static_cast<std::size_t>(i / 81 * 81 + y * 9 + x);
            equal = b[static_cast<std::size_t>(i)] == (inside ? a[from] : std::byte{0});
          }
          mirrored += equal ? flip : 0;
          found = found || equal;
        }
      }
    }
    EXPECT_TRUE(found) << item;
  }
  EXPECT_NEAR(mirrored, 32, 16);
  (*plain)->read({.split = proto::SPLIT_TEST, .item = 1}, 0, a);
  (*moved)->read({.split = proto::SPLIT_TEST, .item = 1, .seed = 3}, 0, b);
  EXPECT_EQ(a, b);
}

TEST(Source, MayHaveAQuestionMarkInItsPath) {
  for (const std::string text : {"npz:/a?b/d.npz", "npz:d?e.npz", "npz:d?e=f.npz", "npz:?"}) {
    const auto plain = Source::parse(source_with(text, {}));
    ASSERT_TRUE(plain) << plain.error().message;
    EXPECT_EQ(plain->text, text);
    EXPECT_TRUE(plain->parameters.empty());
    const auto both = Source::parse(source_with(text, {"mean=1", "augment=flip"}));
    ASSERT_TRUE(both) << both.error().message;
    EXPECT_EQ(both->text, text);
    EXPECT_EQ(both->parameters.at("augment"), "flip");
  }
  EXPECT_EQ(source_with("npz:d.npz", {}), "npz:d.npz");
  EXPECT_EQ(Source::parse("npz:/a?b/d.npz")->text, "npz:/a?b/d.npz") << "as --source has it";
}

}  // namespace
}  // namespace poprun::hostio::language_test
