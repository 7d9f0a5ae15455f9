#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

#include <fmt/format.h>

#include "hostio/datasets/dataset.h"
#include "hostio/datasets/token_windows.h"
#include "replica/base/random.h"
#include "replica/base/text.h"

/// Synthetic data for benchmarks and first experiments. It is a function of the source alone.
///
///   synthetic:images=CxHxW[,type=byte|float][,labels=image|pixels][,classes=10][,items=60000][,seed=0]
///       images u8 [C, H, W] of noise with a bright band of rows whose position encodes the label; floats are the same
///       images, normalised to -1 .. 1; labels=pixels gives each pixel a label, i32 [H, W], 1 in the band and otherwise
///       0, and `classes` is then only the number of positions
///   synthetic:tokens[=random],vocabulary=N[,items=16384][,seed=0]
///       uniform random ids below N, enough for `items` windows (token_windows.h); masked-lm reserves the
///       last id, N - 1, for the mask
///
/// The test part of images has a sixth as many items as the training part; that of tokens is the last 5 %.
namespace poprun::hostio::families {
namespace {

constexpr std::string_view kSyntheticPrefix = "synthetic:";
/// Parameters that determine how many tokens are generated and whether one id is reserved for the mask.
constexpr std::array<std::string_view, 2> kStored = {"sequence-length", "task"};

/// Returns the parameters between the prefix and `?`.
Result<Parameters> parameters_of(const Source& source) {
  std::string list = source.text.substr(kSyntheticPrefix.size());
  if (list == "tokens" || list.starts_with("tokens,")) {
    list.insert(6, "=random");
  }
  POPRUN_ASSIGN(Parameters parameters, parse_parameters(list, source.text));
  const bool images = parameters.contains("images");
  if (images == parameters.contains("tokens")) {
    return fail(ErrorCode::kUsage, fmt::format("{}: images=CxHxW or tokens must follow synthetic:", source.text));
  }
  for (const auto& [key, value] : parameters) {
    if (key != "items" && key != "seed" && key != (images ? "images" : "tokens") &&
        key != (images ? "classes" : "vocabulary") && !(images && (key == "type" || key == "labels"))) {
      return fail(ErrorCode::kUsage,
                  fmt::format("{}: {} is not a parameter of this source; available: {}, items, seed", source.text, key,
                              images ? "images, type, labels, classes" : "tokens, vocabulary"));
    }
  }
  return parameters;
}

/// Parses "3x224x224".
Result<std::array<std::uint32_t, 3>> parse_image_shape(std::string_view text) {
  std::array<std::uint32_t, 3> shape{};
  const char* at = text.data();
  const char* end = text.data() + text.size();
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const auto [stop, error] = std::from_chars(at, end, shape[d]);
    const bool separated = d + 1 < shape.size() ? stop != end && *stop == 'x' : stop == end;
    if (error != std::errc{} || !separated || shape[d] == 0 || shape[d] > 4096) {
      return fail(ErrorCode::kUsage,
                  fmt::format("data.source: images = {} must have the form CxHxW, with numbers from 1 to 4096", text));
    }
    at = stop + (d + 1 < shape.size() ? 1 : 0);
  }
  return shape;
}

Result<proto::Dataset> describe_images(const Parameters& parameters) {
  POPRUN_ASSIGN(const auto shape, parse_image_shape(parameters.find("images")->second));
  POPRUN_ASSIGN(const auto classes, integer_parameter(parameters, "classes", 10, 1, 1 << 20));
  POPRUN_ASSIGN(const auto items, integer_parameter(parameters, "items", 60'000, 1, std::uint64_t{1} << 40));
  const auto type = parameters.find("type");
  const bool floats = type != parameters.end() && type->second == "float";
  if (type != parameters.end() && !floats && type->second != "byte") {
    return fail(ErrorCode::kUsage, fmt::format("data.source: type = {} must be byte or float", type->second));
  }
  const auto labels = parameters.find("labels");
  const bool pixels = labels != parameters.end() && labels->second == "pixels";
  if (labels != parameters.end() && !pixels && labels->second != "image") {
    return fail(ErrorCode::kUsage, fmt::format("data.source: labels = {} must be image or pixels", labels->second));
  }
  proto::Dataset description;
  add_tensor(description, "images", floats ? "f32" : "u8", {shape.begin(), shape.end()});
  if (pixels) {
    add_tensor(description, "labels", "i32", {shape[1], shape[2]});
  } else {
    add_tensor(description, "labels", "i32", {});
  }
  description.set_train_items(items);
  description.set_test_items(std::max<std::uint64_t>(1, items / 6));
  description.set_classes(pixels ? 2 : static_cast<std::uint32_t>(classes));
  // Float images arrive normalised.
  description.set_mean(floats ? 0 : 0.5F);
  description.set_deviation(floats ? 1 : 0.5F);
  return description;
}

/// Up to this many bytes, the images are generated once, and otherwise whenever they are read.
constexpr std::uint64_t kKeptImagesMax = std::uint64_t{256} << 20;

/// The generated images of each part.
struct KeptImages {
  std::vector<std::byte> train;
  std::vector<std::byte> test;
};

class SyntheticImages final : public Dataset {
 public:
  /// `positions` is the number of places where the bright band can be. `images` is null if none are kept.
  SyntheticImages(proto::Dataset description, std::uint32_t positions, std::uint64_t seed,
                  std::shared_ptr<const KeptImages> images)
      : Dataset(std::move(description)),
        positions_(positions),
        train_key_(random_key(seed, "synthetic train images")),
        test_key_(random_key(seed, "synthetic test images")),
        images_(std::move(images)) {}

  [[nodiscard]] std::span<const std::byte> kept(const Sample& sample, int tensor) const override {
    if (images_ == nullptr || tensor != 0) {
      return {};
    }
    const std::uint64_t bytes = sample_bytes(description().tensors(0));
    const bool is_test = sample.split == proto::SPLIT_TEST;
    return std::span(is_test ? images_->test : images_->train).subspan(sample.item * bytes, bytes);
  }

  Status read(const Sample& sample, int tensor, std::span<std::byte> destination) const override {
    POPRUN_CHECK(destination.size() == sample_bytes(description().tensors(tensor)));
    const std::uint64_t key = sample.split == proto::SPLIT_TEST ? test_key_ : train_key_;
    const std::uint32_t label = philox(key, sample.item, 0)[0] % positions_;
    if (tensor == 1) {
      read_labels(label, destination);
    } else if (const auto image = kept(sample, tensor); !image.empty()) {
      std::memcpy(destination.data(), image.data(), image.size());
    } else {
      generate(key, sample.item, label, destination);
    }
    return {};
  }

 private:
  void generate(std::uint64_t key, std::uint64_t item, std::uint32_t label, std::span<std::byte> destination) const {
    const bool floats = description().tensors(0).element() == "f32";
    const std::uint64_t height = description().tensors(0).sample_shape(1);
    const std::uint64_t width = description().tensors(0).sample_shape(2);
    // In each channel, the pixels from `first` to before `last` are bright: those of rows y with y P / H = label.
    const std::uint64_t first = (label * height + positions_ - 1) / positions_ * width;
    const std::uint64_t last = ((std::uint64_t{label} + 1) * height + positions_ - 1) / positions_ * width;
    // A pixel is 7 bits of noise and, if it is bright, an eighth bit. Pixel i is byte i of Philox's words.
    constexpr std::size_t kPieceWords = 4096;
    std::array<std::uint32_t, kPieceWords> words;  // NOLINT(cppcoreguidelines-pro-type-member-init): written below.
    const std::uint64_t pixels = destination.size() / (floats ? sizeof(float) : 1);
    for (std::uint64_t begin = 0; begin < pixels; begin += sizeof(words)) {
      const std::uint64_t count = std::min<std::uint64_t>(pixels - begin, sizeof(words));
      const auto used = std::span(words).first((count + 3) / 4);
      philox_sequence(key, item, 1 + begin / 16, used);
      for (std::uint32_t& word : used) {
        word &= 0x7F7F7F7FU;
      }
      const auto* noise = reinterpret_cast<const std::uint8_t*>(words.data());
      for (std::uint64_t i = begin; i < begin + count;) {
        const std::uint64_t at = i % (height * width);
        const bool is_bright = first <= at && at < last;
        const std::uint64_t until = is_bright ? last : at < first ? first : height * width;
        const std::span stretch(noise + (i - begin), std::min(until - at, begin + count - i));
        if (floats) {
          write_floats(stretch, is_bright ? 128 : 0, destination.data() + i * sizeof(float));
        } else if (is_bright) {
          std::ranges::transform(stretch, destination.data() + i,
                                 [](std::uint8_t pixel) { return static_cast<std::byte>(pixel | 128U); });
        } else {
          std::memcpy(destination.data() + i, stretch.data(), stretch.size());
        }
        i += stretch.size();
      }
    }
  }

  /// Writes the label of the image, or those of its pixels.
  void read_labels(std::uint32_t label, std::span<std::byte> destination) const {
    const bool pixels = description().tensors(1).sample_shape_size() > 0;
    const std::uint64_t height = pixels ? description().tensors(1).sample_shape(0) : 1;
    const std::uint64_t width = pixels ? description().tensors(1).sample_shape(1) : 1;
    for (std::uint64_t i = 0; i < height * width; ++i) {
      const std::uint32_t value = !pixels ? label : i / width * positions_ / height == label ? 1 : 0;
      std::memcpy(destination.data() + i * sizeof(value), &value, sizeof(value));
    }
  }

  /// Writes pixels normalised to -1 .. 1.
  static void write_floats(std::span<const std::uint8_t> noise, unsigned bright, std::byte* to) {
    static const auto kNormalised = [] {
      std::array<float, 256> table{};
      for (std::size_t pixel = 0; pixel < table.size(); ++pixel) {
        table.at(pixel) = (static_cast<float>(pixel) / 255.0F - 0.5F) / 0.5F;
      }
      return table;
    }();
    for (std::size_t i = 0; i < noise.size(); ++i) {
      std::memcpy(to + i * sizeof(float), &kNormalised[noise[i] | bright], sizeof(float));
    }
  }

  std::uint32_t positions_;
  std::uint64_t train_key_;
  std::uint64_t test_key_;
  std::shared_ptr<const KeptImages> images_;
};

class StoredRecipe final : public Stored {
 public:
  StoredRecipe(proto::Dataset description, std::uint32_t positions, std::uint64_t seed)
      : description_(std::move(description)), positions_(positions), seed_(seed) {}

  /// Generates the images if they are few enough. Errors: kData if they do not fit in memory.
  Status generate(const Source& source) {
    const std::uint64_t bytes = sample_bytes(description_.tensors(0));
    if (description_.train_items() + description_.test_items() > kKeptImagesMax / bytes) {
      return {};
    }
    auto images = std::make_shared<KeptImages>();
    const SyntheticImages generator(description_, positions_, seed_, nullptr);
    for (const proto::Split split : {proto::SPLIT_TRAIN, proto::SPLIT_TEST}) {
      std::vector<std::byte>& part = split == proto::SPLIT_TEST ? images->test : images->train;
      POPRUN_TRY(source.scope.resize(part, items_of(description_, split) * bytes, source.text));
      for (std::uint64_t item = 0; item * bytes < part.size(); ++item) {
        POPRUN_TRY(generator.read({.split = split, .item = item}, 0, std::span(part).subspan(item * bytes, bytes)));
        source.scope.advance(bytes);
      }
    }
    images_ = std::move(images);
    return {};
  }

  [[nodiscard]] std::uint64_t bytes() const override {
    return images_ == nullptr ? 0 : images_->train.size() + images_->test.size();
  }

  [[nodiscard]] Result<std::unique_ptr<Dataset>> view(const Source& /*source*/) const override {
    return std::make_unique<SyntheticImages>(description_, positions_, seed_, images_);
  }

 private:
  proto::Dataset description_;
  std::uint32_t positions_;
  std::uint64_t seed_;
  std::shared_ptr<const KeptImages> images_;
};

Result<TokenFacts> token_facts(const Source& source, const Parameters& parameters) {
  const std::uint32_t mask = source.parameter("task", "") == "masked-lm" ? 1 : 0;
  POPRUN_ASSIGN(const auto ids, integer_parameter(parameters, "vocabulary", 0, std::uint64_t{1} + mask, 1 << 24));
  POPRUN_ASSIGN(const auto items, integer_parameter(parameters, "items", 16'384, 1, 1 << 24));
  POPRUN_ASSIGN(const auto length, integer_parameter(source.parameters, "sequence-length", 128, 1, 1 << 16));
  const TokenFacts facts{
      .count = items * length + 1, .vocabulary = static_cast<std::uint32_t>(ids) - mask, .specials = mask};
  POPRUN_TRY(check_room(fmt::format("{}: {} items of {} tokens", source.text, grouped(items), grouped(length)),
                        facts.count * sizeof(std::uint32_t)));
  return facts;
}

Result<Tokens> make_tokens(const Source& source, const Parameters& parameters) {
  constexpr std::uint64_t kBetweenWords = 1 << 20;  // Generating this many tokens takes about 10 ms.
  Tokens tokens;
  tokens.width = sizeof(std::uint32_t);
  POPRUN_ASSIGN(tokens.facts, token_facts(source, parameters));
  POPRUN_ASSIGN(const auto seed, integer_parameter(parameters, "seed", 0, 0, ~std::uint64_t{0}));
  const std::uint64_t key = random_key(seed, "synthetic tokens");
  const std::uint64_t bytes = tokens.facts.count * tokens.width;
  if (Reading* reading = source.scope.reading()) {
    reading->expect(bytes);
  }
  POPRUN_TRY(source.scope.resize(tokens.bytes, bytes, source.text));
  std::array<std::uint32_t, 4> words{};
  for (std::uint64_t i = 0; i < tokens.facts.count; ++i) {
    words = i % 4 == 0 ? philox(key, i / 4, 0) : words;
    const std::uint32_t id = words[i % 4] % tokens.facts.vocabulary;
    std::memcpy(tokens.bytes.data() + i * tokens.width, &id, sizeof(id));
    if (i % kBetweenWords == 0) {
      source.scope.advance(i == 0 ? 0 : kBetweenWords * tokens.width);
    }
  }
  return tokens;
}

Result<proto::Dataset> describe(const Source& source) {
  POPRUN_ASSIGN(const Parameters parameters, parameters_of(source));
  if (parameters.contains("tokens")) {
    POPRUN_ASSIGN(const TokenFacts tokens, token_facts(source, parameters));
    POPRUN_TRY(integer_parameter(parameters, "seed", 0, 0, ~std::uint64_t{0}));
    return describe_token_windows(tokens, source, source.text);
  }
  for (const std::string_view key : kTokenParameters) {
    if (source.parameters.contains(key)) {
      return fail(ErrorCode::kUsage, fmt::format("{}: data.{} applies only to tokens", source.text, key));
    }
  }
  return describe_images(parameters);
}

Result<std::shared_ptr<const Stored>> read(const Source& source) {
  POPRUN_ASSIGN(const Parameters parameters, parameters_of(source));
  if (parameters.contains("tokens")) {
    POPRUN_ASSIGN(Tokens tokens, make_tokens(source, parameters));
    return stored_tokens(std::move(tokens), source.text);
  }
  POPRUN_ASSIGN(proto::Dataset description, describe(source));
  POPRUN_ASSIGN(const auto seed, integer_parameter(parameters, "seed", 0, 0, ~std::uint64_t{0}));
  POPRUN_ASSIGN(const auto positions, integer_parameter(parameters, "classes", 10, 1, 1 << 20));
  auto stored = std::make_shared<StoredRecipe>(std::move(description), static_cast<std::uint32_t>(positions), seed);
  POPRUN_TRY(stored->generate(source));
  return stored;
}

}  // namespace

const DatasetFamily& synthetic() {
  static constexpr DatasetFamily kFamily = {
      .form = "synthetic:images=CxHxW,type=T,classes=N,items=N, synthetic:tokens,vocabulary=N,items=N",
      .parameters = kTokenParameters,
      .stored = kStored,
      .accepts =
          [](std::string_view text) {
            return text.starts_with(kSyntheticPrefix) && !text.starts_with("synthetic:clicks");
          },
      .describe = describe,
      .read = read,
  };
  return kFamily;
}

}  // namespace poprun::hostio::families
