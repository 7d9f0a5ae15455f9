#include "hostio/formats/npy.h"

#include <cstring>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hostio/datasets/dataset.h"
#include "tests/unit/hostio/npy_bytes.h"

namespace poprun::hostio::npy_test {
namespace {

using ::testing::AllOf;
using testing::append;
using testing::Bytes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::integers;
using testing::npy_bytes;
using testing::npy_with_header;
using testing::TemporaryFolder;
using testing::zip_bytes;
using Element = NpyTarget::Element;

std::span<const std::byte> span_of(const Bytes& bytes) {
  return std::as_bytes(std::span(bytes));
}

template <typename T>
std::vector<T> values_of(const std::vector<std::byte>& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) {  // An empty vector's data may be null, which memcpy does not allow.
    std::memcpy(values.data(), bytes.data(), bytes.size());
  }
  return values;
}

/// Reads one file from beginning to end.
Result<std::vector<std::byte>> elements(const Bytes& file, const NpyTarget& target) {
  POPRUN_ASSIGN(const NpyHeader header, parse_npy_header(span_of(file), "a.npy"));
  const auto data = span_of(file).subspan(header.data_begin);
  return npy_elements(header, {data.begin(), data.end()}, target, "a.npy");
}

std::vector<float> floats(const Bytes& file, const NpyTarget& target = {}) {
  const auto bytes = elements(file, target);
  EXPECT_TRUE(bytes) << bytes.error().message;
  return bytes ? values_of<float>(*bytes) : std::vector<float>{};
}

std::vector<std::int32_t> ints(const Bytes& file) {
  const auto bytes = elements(file, {.element = Element::kI32});
  EXPECT_TRUE(bytes) << bytes.error().message;
  return bytes ? values_of<std::int32_t>(*bytes) : std::vector<std::int32_t>{};
}

std::string complaint(const Bytes& file, const NpyTarget& target = {}) {
  const auto bytes = elements(file, target);
  EXPECT_FALSE(bytes);
  EXPECT_EQ(bytes.error().code, ErrorCode::kData);
  EXPECT_EQ(bytes.error().message.find('\n'), std::string::npos);
  return bytes.error().message;
}

// 1.0, -2.0, 0.5 in IEEE 754.
const Bytes kHalfs = {0x00, 0x3C, 0x00, 0xC0, 0x00, 0x38};
const Bytes kSingles = {0, 0, 0x80, 0x3F, 0, 0, 0, 0xC0, 0, 0, 0, 0x3F};
const Bytes kBigDoubles = {0x3F, 0xF0, 0, 0, 0, 0, 0, 0, 0xC0, 0, 0, 0, 0, 0, 0, 0, 0x3F, 0xE0, 0, 0, 0, 0, 0, 0};

TEST(Npy, ReadsFloatsOfAnyWidthAndByteOrder) {
  EXPECT_THAT(floats(npy_bytes("<f4", "(3,)", kSingles)), ElementsAre(1, -2, 0.5));
  EXPECT_THAT(floats(npy_bytes("<f2", "(3,)", kHalfs)), ElementsAre(1, -2, 0.5));
  EXPECT_THAT(floats(npy_bytes(">f8", "(3,)", kBigDoubles)), ElementsAre(1, -2, 0.5));
}

TEST(Npy, ReadsTheSmallestHalfAndItsInfinity) {
  const std::vector<float> values = floats(npy_bytes("<f2", "(2,)", {0x01, 0x00, 0x00, 0xFC}));
  EXPECT_THAT(values, ElementsAre(5.9604645e-8F, -INFINITY));
}

TEST(Npy, ReadsIntegersOfAnyWidthAndByteOrder) {
  EXPECT_THAT(ints(npy_bytes("|i1", "(2,)", {0xFF, 7})), ElementsAre(-1, 7));
  EXPECT_THAT(ints(npy_bytes("|u1", "(2,)", {0xFF, 7})), ElementsAre(255, 7));
  EXPECT_THAT(ints(npy_bytes("|b1", "(2,)", {0, 1})), ElementsAre(0, 1));
  EXPECT_THAT(ints(npy_bytes(">i2", "(2,)", {0xFF, 0xFE, 0, 3})), ElementsAre(-2, 3));
  EXPECT_THAT(ints(npy_bytes("<u4", "(1,)", integers({2'000'000'000}, 4))), ElementsAre(2'000'000'000));
  EXPECT_THAT(ints(npy_bytes("<i8", "(2,)", integers({-100, 9}, 8))), ElementsAre(-100, 9));
}

TEST(Npy, TurnsFortranOrderIntoRows) {
  // [[1, 2, 3], [4, 5, 6]] is stored column by column.
  EXPECT_THAT(ints(npy_bytes("<i4", "(2, 3)", integers({1, 4, 2, 5, 3, 6}, 4), true)), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(Npy, TurnsChannelsLastIntoPlanes) {
  // One image with one row, two pixels and three channels.
  const auto bytes =
      elements(npy_bytes("|u1", "(1, 1, 2, 3)", {1, 2, 3, 4, 5, 6}), {.element = Element::kU8, .channels_last = true});
  ASSERT_TRUE(bytes);
  EXPECT_THAT(values_of<std::uint8_t>(*bytes), ElementsAre(1, 4, 2, 5, 3, 6));
}

TEST(Npy, KeepsDoubles) {
  const auto bytes = elements(npy_bytes(">f8", "(3,)", kBigDoubles), {.element = Element::kF64});
  ASSERT_TRUE(bytes) << bytes.error().message;
  EXPECT_THAT(values_of<double>(*bytes), ElementsAre(1, -2, 0.5));
}

TEST(Npy, ReadsAllVersionsOfTheHeader) {
  const std::string header = R"({"shape": (2L, 1), 'fortran_order': False, 'descr': '<i4'})";
  for (const std::uint8_t version : Bytes{1, 2, 3}) {
    EXPECT_THAT(ints(npy_with_header(header, integers({5, 6}, 4), version)), ElementsAre(5, 6));
  }
  EXPECT_THAT(complaint(npy_with_header(header, {}, 4)), HasSubstr("versions 1 to 3"));
}

TEST(Npy, ReadsAScalarAndAnEmptyArray) {
  EXPECT_THAT(ints(npy_bytes("<i4", "()", integers({5}, 4))), ElementsAre(5));
  EXPECT_THAT(ints(npy_bytes("<i4", "(0, 3)", {})), ElementsAre());
}

TEST(Npy, RefusesWhatIsNoNumber) {
  EXPECT_THAT(complaint(npy_bytes("<U3", "(1,)", Bytes(12))), HasSubstr("they are \"<U3\""));
  EXPECT_THAT(complaint(npy_bytes("|O", "(1,)", Bytes(8))), HasSubstr("they are \"|O\""));
  EXPECT_THAT(complaint(npy_bytes(">f8\xEF", "(1,)", Bytes(8))), HasSubstr("they are \">f8\\xef\""))
      << "a damaged byte that ends as half a character";
  EXPECT_THAT(complaint(npy_with_header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", Bytes(4))),
              HasSubstr("records"));
}

TEST(Npy, RefusesDamagedHeaders) {
  for (const std::string header :
       {"", "{", "{}", "{'descr': '<f4', 'shape': (1,)}", "{'descr': '<f4', 'fortran_order': No, 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1", "{'descr': '<f4'"}) {
    EXPECT_THAT(complaint(npy_with_header(header, Bytes(4))), HasSubstr("expected a NumPy array file")) << header;
  }
  EXPECT_THAT(complaint({1, 2, 3}), HasSubstr("expected a NumPy array file"));
  EXPECT_THAT(complaint(npy_bytes("<f4", "(4294967296, 4294967296)", {})), HasSubstr("too large for any file"));
}

TEST(Npy, NeedsAsManyBytesAsItsShapeSays) {
  EXPECT_THAT(complaint(npy_bytes("<f4", "(2, 2)", Bytes(15))),
              HasSubstr("expected 16 bytes for float32 [2, 2], found 15"));
  EXPECT_THAT(complaint(npy_bytes("<f4", "(2, 2)", Bytes(17))), HasSubstr("found 17"));
}

TEST(Npy, NamesTheItemThatDoesNotFit) {
  EXPECT_THAT(complaint(npy_bytes("<i8", "(2, 2)", integers({1, 2, 3, 1LL << 31}, 8)), {.element = Element::kI32}),
              AllOf(HasSubstr("a.npy: item 1"), HasSubstr("32 bits")));
}

/// Four training and two test items, with images [1, 2, 3].
class Archive : public ::testing::Test {
 protected:
  static Bytes images(std::int64_t items, std::uint8_t first) {
    Bytes pixels;
    for (std::int64_t i = 0; i < items * 6; ++i) {
      pixels.push_back(static_cast<std::uint8_t>(first + i));
    }
    return npy_bytes("|u1", "(" + std::to_string(items) + ", 2, 3)", pixels);
  }

  /// The members that np.savez(x_train=..., ...) writes.
  static std::vector<std::pair<std::string, Bytes>> keras() {
    return {{"x_train.npy", images(4, 0)},
            {"y_train.npy", npy_bytes("<i8", "(4,)", integers({3, 0, 1, 2}, 8))},
            {"x_test.npy", images(2, 100)},
            {"y_test.npy", npy_bytes("|u1", "(2,)", {1, 6})}};
  }

  std::string source(const std::vector<std::pair<std::string, Bytes>>& members) {
    return "npz:" + folder_.write("a.npz", zip_bytes(members)).string();
  }

  std::string complaint(const std::string& source, ErrorCode code = ErrorCode::kData) {
    const auto loaded = load_dataset(source);
    EXPECT_FALSE(loaded);
    EXPECT_EQ(loaded.error().code, code);
    return loaded.error().message;
  }

  TemporaryFolder folder_;
};

std::vector<std::byte> read(const Dataset& dataset, proto::Split split, std::uint64_t item, int tensor) {
  std::vector<std::byte> bytes(sample_bytes(dataset.description().tensors(tensor)));
  dataset.read({.split = split, .item = item}, tensor, bytes);
  return bytes;
}

TEST_F(Archive, OfKerasIsImagesAndLabelsInTwoParts) {
  for (const bool compressed : {false, true}) {
    for (const bool large : {false, true}) {
      const std::string source = "npz:" + folder_.write("mnist.npz", zip_bytes(keras(), compressed, large)).string();
      const auto dataset = load_dataset(source);
      ASSERT_TRUE(dataset) << dataset.error().message;
      const proto::Dataset& description = (*dataset)->description();
      EXPECT_EQ(description.train_items(), 4U);
      EXPECT_EQ(description.test_items(), 2U);
      EXPECT_EQ(description.classes(), 7U);
      ASSERT_EQ(description.tensors_size(), 2);
      EXPECT_EQ(description.tensors(0).name(), "images");
      EXPECT_EQ(description.tensors(0).element(), "u8");
      EXPECT_THAT(description.tensors(0).sample_shape(), ElementsAre(1, 2, 3));
      EXPECT_EQ(description.tensors(1).name(), "labels");
      EXPECT_EQ(description.tensors(1).element(), "i32");
      EXPECT_EQ(description.tensors(1).sample_shape_size(), 0);
      EXPECT_THAT(values_of<std::uint8_t>(read(**dataset, proto::SPLIT_TRAIN, 3, 0)),
                  ElementsAre(18, 19, 20, 21, 22, 23));
      EXPECT_THAT(values_of<std::int32_t>(read(**dataset, proto::SPLIT_TRAIN, 3, 1)), ElementsAre(2));
      EXPECT_THAT(values_of<std::int32_t>(read(**dataset, proto::SPLIT_TEST, 1, 1)), ElementsAre(6));
      const auto described = *describe_dataset(source);
      EXPECT_EQ(described.SerializeAsString(), description.SerializeAsString());
    }
  }
}

TEST_F(Archive, WithoutPartsHasNoTestItemsAndKeepsNamesThatNobodyKnows) {
  const auto dataset = load_dataset(source({{"images.npy", npy_bytes("<f4", "(1, 3)", kSingles)},
                                            {"labels.npy", npy_bytes("<i4", "(1, 1)", integers({4}, 4))},
                                            {"Weight.npy", npy_bytes("<f8", "(1,)", integers({0}, 8))},
                                            {"version.npy", npy_bytes("<i4", "()", integers({4}, 4))}}));
  ASSERT_TRUE(dataset) << dataset.error().message;
  const proto::Dataset& description = (*dataset)->description();
  EXPECT_EQ(description.test_items(), 0U);
  ASSERT_EQ(description.tensors_size(), 3);
  EXPECT_EQ(description.tensors(0).element(), "f32");
  EXPECT_THAT(description.tensors(0).sample_shape(), ElementsAre(3));
  EXPECT_EQ(description.tensors(1).name(), "Weight");
  EXPECT_EQ(description.tensors(2).sample_shape_size(), 0) << "labels [N,1] of images are [N]";
}

TEST_F(Archive, LeavesArraysWithoutAPartAsideWhereOthersHaveOne) {
  auto members = keras();
  members.emplace_back("class_names.npy", npy_bytes("<U3", "(7,)", Bytes(84)));
  members.emplace_back("x_val.npy", images(1, 3));
  const auto description = describe_dataset(source(members));
  ASSERT_TRUE(description) << description.error().message;
  EXPECT_EQ(description->tensors_size(), 2);
  ASSERT_EQ(description->notes_size(), 1);
  EXPECT_THAT(description->notes(0), HasSubstr("class_names, x_val are not read"));
}

TEST_F(Archive, IsKnownByItsContents) {
  const auto fingerprint = [&](const std::string& name) {
    const auto loaded = load_dataset(name);
    EXPECT_TRUE(loaded) << loaded.error().message;
    EXPECT_EQ((*loaded)->description().fingerprint(), describe_dataset(name)->fingerprint());
    return (*loaded)->description().fingerprint();
  };
  auto members = keras();
  const std::string name = source(members);
  const std::string first = fingerprint(name);
  EXPECT_EQ(fingerprint("npz:" + folder_.write("copy.npz", zip_bytes(members)).string()), first);
  EXPECT_NE(fingerprint(name + "?mean=0.25"), first) << "another description";
  EXPECT_EQ(fingerprint(name + "?augment=none"), first);
  members[1].second = npy_bytes("<i8", "(4,)", integers({3, 0, 2, 1}, 8));
  EXPECT_NE(fingerprint(source(members)), first);
  members = keras();
  members.emplace_back("x_val.npy", images(1, 3));
  EXPECT_NE(fingerprint(source(members)), first) << "in another file, as far as that goes";
}

TEST_F(Archive, SharesWhatItStoresAmongViews) {
  const std::string name = source(keras());
  const auto read_once = read_dataset(name);
  ASSERT_TRUE(read_once) << read_once.error().message;
  const std::uint64_t bytes = read_once->stored->bytes();
  EXPECT_EQ(bytes, 4U * 6U + 4U * 4U + 2U * 6U + 2U * 4U);
  for (const std::string parameters : {"mean=0.1", "deviation=2,augment=flip", "augment=crop"}) {
    const auto view = view_dataset(*read_once, name + "?" + parameters);
    ASSERT_TRUE(view) << view.error().message;
    EXPECT_EQ(read_once->stored.use_count(), 2);
    EXPECT_EQ(stored_name(name + "?" + parameters), stored_name(name));
  }
  EXPECT_NE(stored_name(name + "?channels=last"), stored_name(name));
}

TEST_F(Archive, RoundsDoublesOnceAfterTheyAreNormalised) {
  // As a float, 1 + 2^-30 is 1, but its difference from 1 is not 0.
  const double value = 1.0 + 0x1p-30;
  Bytes bytes(8);
  std::memcpy(bytes.data(), &value, 8);
  const std::string name =
      source({{"x.npy", npy_bytes("<f8", "(1, 1)", bytes)}, {"y.npy", npy_bytes("<i4", "(1,)", integers({0}, 4))}});
  const auto plain = load_dataset(name);
  const auto normalised = load_dataset(name + "?mean=1");
  ASSERT_TRUE(plain && normalised);
  EXPECT_THAT(values_of<float>(read(**plain, proto::SPLIT_TRAIN, 0, 0)), ElementsAre(1.0F));
  EXPECT_THAT(values_of<float>(read(**normalised, proto::SPLIT_TRAIN, 0, 0)), ElementsAre(0x1p-30F));
}

TEST_F(Archive, RefusesNumbersThatAreNoFloatsOnceNormalised) {
  const std::string floats =
      source({{"x.npy", npy_bytes("<f4", "(1, 3)", kSingles)}, {"y.npy", npy_bytes("<i4", "(1,)", integers({0}, 4))}});
  EXPECT_THAT(complaint(floats + "?deviation=1e-39"),
              AllOf(HasSubstr("x.npy: numbers must fit in float32, but -2"), HasSubstr("data.deviation")));
  const std::string labels = source(
      {{"input_ids.npy", npy_bytes("<i4", "(1, 1)", Bytes(4))}, {"labels.npy", npy_bytes("<i4", "(1, 1)", Bytes(4))}});
  EXPECT_THAT(complaint(labels + "?mean=1", ErrorCode::kUsage), HasSubstr("normalises images"));
}

TEST_F(Archive, NotesFloatsThatLookLikeBytes) {
  const auto notes = [&](std::vector<std::uint8_t> halfs, const std::string& parameters) {
    const std::string name = source({{"x.npy", npy_bytes("<f2", "(1, 1, 1, 2)", Bytes(halfs.begin(), halfs.end()))},
                                     {"y.npy", npy_bytes("<i4", "(1,)", integers({0}, 4))}});
    const auto description = describe_dataset(name + parameters);
    EXPECT_TRUE(description) << description.error().message;
    return description->notes_size() == 0 ? "" : description->notes(0);
  };
  const std::vector<std::uint8_t> pixels = {0, 0, 0xF8, 0x5B};  // 0 and 255.
  EXPECT_THAT(notes(pixels, ""),
              AllOf(HasSubstr("go up to 255"), HasSubstr("data.mean = 127.5"), HasSubstr("data.deviation")));
  EXPECT_EQ(notes(pixels, "?mean=127.5,deviation=127.5"), "");
  EXPECT_EQ(notes({0, 0, 0, 0x3C}, ""), "") << "0 and 1";
  EXPECT_EQ(notes({0, 0xBC, 0xF8, 0x5B}, ""), "") << "-1 and 255";
}

TEST_F(Archive, SaysThatNoLabelCounts) {
  const Bytes row = npy_bytes("<i4", "(1, 2)", integers({5, 9}, 4));
  const Bytes ignored = npy_bytes("<i4", "(1, 2)", integers({-100, -1}, 4));
  const auto description = describe_dataset(source(
      {{"tokens_train.npy", row}, {"labels_train.npy", ignored}, {"tokens_test.npy", row}, {"labels_test.npy", row}}));
  ASSERT_TRUE(description) << description.error().message;
  EXPECT_TRUE(description->no_train_label());
  EXPECT_FALSE(description->no_test_label());
}

TEST_F(Archive, FillsTheBorderOfACropWithBlackWhateverTheType) {
  const std::string labels = "y.npy";
  const Bytes label = npy_bytes("<i4", "(1,)", integers({0}, 4));
  const Bytes white(9 * 9, 255);
  Bytes ones;
  for (int i = 0; i < 81; ++i) {
    ones.insert(ones.end(), {0, 0, 0x80, 0x3F});
  }
  const auto bytes =
      load_dataset(source({{"x.npy", npy_bytes("|u1", "(1, 1, 9, 9)", white)}, {labels, label}}) + "?augment=crop");
  ASSERT_TRUE(bytes) << bytes.error().message;
  const auto floats = load_dataset(source({{"x.npy", npy_bytes("<f4", "(1, 1, 9, 9)", ones)}, {labels, label}}) +
                                   "?augment=crop,mean=0.5,deviation=0.25");
  ASSERT_TRUE(floats) << floats.error().message;
  bool has_border = false;
  for (std::uint64_t epoch = 0; epoch < 8; ++epoch) {
    std::vector<std::byte> pixels(81);
    std::vector<std::byte> numbers(81 * 4);
    (*bytes)->read({.item = 0, .seed = 1, .epoch = epoch}, 0, pixels);
    (*floats)->read({.item = 0, .seed = 1, .epoch = epoch}, 0, numbers);
    const auto values = values_of<float>(numbers);
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      const float black_or_white = std::to_integer<int>(pixels[i]) == 0 ? -2.0F : 2.0F;
      ASSERT_EQ(values[i], black_or_white);
      has_border = has_border || black_or_white < 0;
    }
  }
  EXPECT_TRUE(has_border);
}

TEST_F(Archive, CallsTokensAsBertDoes) {
  const Bytes row = npy_bytes("<i8", "(1, 2)", integers({5, 9}, 8));
  const auto description = describe_dataset(source({{"input_ids.npy", row},
                                                    {"token_type_ids.npy", row},
                                                    {"attention_mask.npy", npy_bytes("|b1", "(1, 2)", {1, 0})},
                                                    {"labels.npy", row}}));
  ASSERT_TRUE(description) << description.error().message;
  std::vector<std::string> names;
  for (const proto::StreamTensor& tensor : description->tensors()) {
    names.push_back(tensor.name());
    EXPECT_EQ(tensor.element(), "i32");
  }
  EXPECT_THAT(names, ElementsAre("attention_mask", "segments", "tokens", "labels"));
  EXPECT_EQ(description->classes(), 10U);
  EXPECT_EQ(description->label_classes(), 0U) << "no fewer than of both";
}

TEST_F(Archive, TellsClassesOfTextsFromTheirTokens) {
  const auto description = describe_dataset(source({{"input_ids.npy", npy_bytes("<i8", "(1, 2)", integers({5, 9}, 8))},
                                                    {"labels.npy", npy_bytes("<i8", "(1,)", integers({2}, 8))}}));
  ASSERT_TRUE(description) << description.error().message;
  EXPECT_EQ(description->classes(), 10U);
  EXPECT_EQ(description->label_classes(), 3U);
}

TEST_F(Archive, NeedsChannelsFirstUnlessTold) {
  const std::string last = source({{"images.npy", npy_bytes("|u1", "(1, 2, 8, 3)", Bytes(48, 7))},
                                   {"labels.npy", npy_bytes("<i4", "(1,)", integers({4}, 4))}});
  EXPECT_THAT(complaint(last), AllOf(HasSubstr("but uint8 [1, 2, 8, 3]"), HasSubstr("looks like channels last"),
                                     HasSubstr("data.channels = last")));
  EXPECT_THAT(describe_dataset(last + "?channels=last")->tensors(0).sample_shape(), ElementsAre(3, 2, 8));
  EXPECT_THAT(describe_dataset(last + "?channels=first")->tensors(0).sample_shape(), ElementsAre(2, 8, 3));
  EXPECT_THAT(complaint(last + "?channels=middle", ErrorCode::kUsage), HasSubstr("first, last"));
}

TEST_F(Archive, TakesMeanAndDeviation) {
  const std::string floats =
      source({{"x.npy", npy_bytes("<f4", "(1, 3)", kSingles)}, {"y.npy", npy_bytes("<i4", "(1,)", integers({4}, 4))}});
  const auto dataset = load_dataset(floats + "?mean=0.5,deviation=0.25");
  ASSERT_TRUE(dataset) << dataset.error().message;
  EXPECT_THAT(values_of<float>(read(**dataset, proto::SPLIT_TRAIN, 0, 0)), ElementsAre(2, -10, 0));
  const std::string bytes = source(keras());
  EXPECT_EQ(describe_dataset(bytes)->mean(), 0.5F);
  EXPECT_EQ(describe_dataset(bytes + "?mean=0.25,deviation=2")->deviation(), 2.0F);
  EXPECT_THAT(complaint(bytes + "?deviation=0", ErrorCode::kUsage), HasSubstr("positive"));
}

TEST_F(Archive, MayHaveNumbersAsLabels) {
  auto members = keras();
  members[1].second = npy_bytes("<f2", "(4, 1)", {0, 0x3C, 0, 0xC0, 0, 0, 0, 0});
  members[3].second = npy_bytes("<f2", "(2, 1)", {0, 0xBC, 0, 0x38});
  const auto dataset = load_dataset(source(members));

  ASSERT_TRUE(dataset) << dataset.error().message;
  const proto::Dataset& description = (*dataset)->description();
  EXPECT_EQ(description.tensors(1).name(), "labels");
  EXPECT_EQ(description.tensors(1).element(), "f32");
  EXPECT_EQ(description.tensors(1).sample_shape_size(), 0);
  EXPECT_EQ(description.classes(), 0U);
  EXPECT_THAT(values_of<float>(read(**dataset, proto::SPLIT_TRAIN, 1, 1)), ElementsAre(-2.0F));
  EXPECT_THAT(values_of<float>(read(**dataset, proto::SPLIT_TEST, 0, 1)), ElementsAre(-1.0F));
}

TEST_F(Archive, OfThousandsOfMembersIsRefused) {
  std::vector<std::pair<std::string, Bytes>> members;
  for (int m = 0; m < 1025; ++m) {
    members.emplace_back("a" + std::to_string(m) + ".npy", npy_bytes("<i8", "(1,)", Bytes(8)));
  }
  EXPECT_THAT(complaint(source(members)), HasSubstr("expected at most 1024 members, found 1025"));
}

TEST_F(Archive, SaysWhatItNeedsAndWhatItHas) {
  auto members = keras();
  members.pop_back();
  EXPECT_THAT(complaint(source(members)), HasSubstr("found x_train, y_train, x_test"));
  members = keras();
  members[1].second = npy_bytes("<i8", "(3,)", integers({3, 0, 1}, 8));
  EXPECT_THAT(complaint(source(members)), HasSubstr("y_train int64 [3] must have as many rows as x_train"));
  EXPECT_THAT(complaint(source({})), HasSubstr("images and labels; found none"));
  members = keras();
  members[1].second = npy_bytes("<i8", "(0,)", {});
  EXPECT_THAT(complaint(source(members)), HasSubstr("y_train int64 [0] is empty; it needs at least one row"));
  members = keras();
  members[2].second = npy_bytes("|u1", "(2, 3, 3)", Bytes(18));
  EXPECT_THAT(complaint(source(members)), HasSubstr("x_test uint8 [2, 3, 3]"));
  members = keras();
  members[0].second = npy_bytes("<i4", "(4, 2, 3)", Bytes(96));
  EXPECT_THAT(complaint(source(members)), HasSubstr("astype(\"uint8\")"));
  members = keras();
  members[1].second = npy_bytes("<f2", "(4,)", {0, 0x3C, 0, 0x7C, 0, 0, 0, 0});
  members[3].second = npy_bytes("<f2", "(2,)", Bytes(4));
  EXPECT_THAT(complaint(source(members)), HasSubstr("item 1: the label must be a finite number, but it is inf"));
  members = keras();
  members[1].second = npy_bytes("<i8", "(4,)", integers({1, 0, -1, 1}, 8));
  EXPECT_THAT(complaint(source(members)), HasSubstr("y_train.npy: item 2: the label must be >= 0, but it is -1"));
  members = keras();
  members[1].second = npy_bytes("<i8", "(4,)", integers({1, 0, (1LL << 31) - 1, 1}, 8));
  EXPECT_THAT(complaint(source(members)),
              HasSubstr("y_train.npy: label 2,147,483,647 of item 2 would need 2,147,483,648 "
                        "classes, but the limit is 16,777,216"));
  members = keras();
  members[3].second = npy_bytes("<f4", "(2,)", Bytes(8));
  EXPECT_THAT(complaint(source(members)),
              AllOf(HasSubstr("the element type must be that of the training part, int64, but it is float32"),
                    ::testing::Not(HasSubstr("shape"))));
  members = keras();
  members.emplace_back("images_train.npy", images(4, 0));
  EXPECT_THAT(complaint(source(members)), HasSubstr("x_train and images_train are both names for"));
}

TEST_F(Archive, NamesDamage) {
  Bytes bytes = zip_bytes(keras(), true);
  bytes[90] ^= 0x40;
  EXPECT_THAT(complaint("npz:" + folder_.write("b.npz", bytes).string()), HasSubstr("b.npz: x_train.npy"));
  bytes = zip_bytes(keras());
  bytes.resize(bytes.size() - 40);
  EXPECT_THAT(complaint("npz:" + folder_.write("b.npz", bytes).string()), HasSubstr("the file may be incomplete"));
  bytes = zip_bytes(keras());
  bytes[bytes.size() - 10] ^= 0x40;  // The directory's size.
  EXPECT_THAT(complaint("npz:" + folder_.write("b.npz", bytes).string()), HasSubstr("not a zip archive"));
  EXPECT_THAT(complaint("npz:/nowhere/a.npz"), HasSubstr("No such file"));
  const Bytes bomb(Bytes::size_type{16} << 20, 0);
  Bytes images = testing::npy_bytes("|u1", "(10, 28, 28)", Bytes(7840));
  images.insert(images.end(), bomb.begin(), bomb.end());
  bytes = zip_bytes({{"x_train.npy", images}, {"y_train.npy", testing::npy_bytes("|u1", "(10,)", Bytes(10))}}, true);
  EXPECT_THAT(complaint("npz:" + folder_.write("b.npz", bytes).string()),
              HasSubstr("expected 7840 bytes for uint8 [10, 28, 28], found 16785056"));
}

TEST_F(Archive, MayAlsoBeAFolderOrSingleFiles) {
  for (const auto& [name, bytes] : keras()) {
    (void)folder_.write(name, bytes);
  }
  const std::string folder = folder_.path().string();
  const auto in_folder = describe_dataset("npy:" + folder);
  ASSERT_TRUE(in_folder) << in_folder.error().message;
  EXPECT_EQ(in_folder->test_items(), 2U);
  const auto in_files = describe_dataset("npy:images=" + folder + "/x_train.npy,y=" + folder + "/y_train.npy");
  ASSERT_TRUE(in_files) << in_files.error().message;
  EXPECT_EQ(in_files->classes(), 4U);
  EXPECT_TRUE(describe_dataset("npy:" + folder + "/x_train.npy," + folder + "/y_train.npy"));
  EXPECT_THAT(complaint("npy:/nowhere"), HasSubstr("expected a folder with .npy files"));
}

/// Arrays of more than 16 MiB are read in pieces.
TEST(NpyDataset, ReadsLargeArraysInPieces) {
  constexpr std::int64_t kItems = 1200;
  constexpr std::int64_t kTokens = 2048;
  const auto write = [](TemporaryFolder& folder, std::int64_t last) {
    Bytes tokens;
    tokens.reserve(kItems * kTokens * 8);
    for (std::int64_t i = 0; i < kItems * kTokens; ++i) {
      append(tokens, static_cast<std::uint64_t>(i + 1 == kItems * kTokens ? last : i / kTokens), 8);
    }
    (void)folder.write("input_ids.npy", npy_bytes("<i8", "(1200, 2048)", tokens));
    return "npy:" + folder.path().string();
  };
  TemporaryFolder folder;
  const auto loaded = load_dataset(write(folder, 4321));
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ((*loaded)->description().classes(), 4322U) << "the last piece counts, too";
  for (const std::uint64_t item : {0U, 1023U, 1024U, 1199U}) {
    std::vector<std::int32_t> tokens(kTokens);
    ASSERT_TRUE((*loaded)->read({.item = item}, 0, std::as_writable_bytes(std::span(tokens))));
    EXPECT_EQ(tokens.front(), static_cast<std::int32_t>(item));
  }
  const auto refused = describe_dataset(write(folder, std::int64_t{1} << 40));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("item 1199: a number does not fit in 32 bits"));
}

}  // namespace
}  // namespace poprun::hostio::npy_test
