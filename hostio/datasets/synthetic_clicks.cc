#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "hostio/datasets/dataset.h"
#include "replica/base/random.h"

/// Synthetic data for recommendation models, in the form of Criteo's. It is a function of the source alone.
///
///   synthetic:clicks[,dense=13][,sparse=26][,vocabulary=3][,items=60000][,seed=0]
///       dense f32 [dense], uniform in [-1, 1); sparse i32 [sparse], uniform below `vocabulary`; labels i32, 1 if the
///       first dense feature is above that of the first category: 2 id / (vocabulary - 1) - 1, with some noise
///
/// The test part has a sixth as many items as the training part.
namespace poprun::hostio::families {
namespace {

constexpr std::string_view kClicks = "synthetic:clicks";

Result<Parameters> click_parameters(const Source& source) {
  std::string list = source.text.substr(kClicks.size());
  list.insert(0, "clicks=random");
  POPRUN_ASSIGN(Parameters parameters, parse_parameters(list, source.text));
  for (const auto& [key, value] : parameters) {
    if (key != "clicks" && key != "dense" && key != "sparse" && key != "vocabulary" && key != "items" &&
        key != "seed") {
      return fail(ErrorCode::kUsage, fmt::format("{}: {} is not a parameter of this source; available: dense, sparse, "
                                                 "vocabulary, items, seed",
                                                 source.text, key));
    }
  }
  return parameters;
}

struct Recipe {
  proto::Dataset description;
  std::uint64_t vocabulary;
  std::uint64_t seed;
};

Result<Recipe> recipe_of(const Source& source) {
  POPRUN_ASSIGN(const Parameters parameters, click_parameters(source));
  POPRUN_ASSIGN(const auto dense, integer_parameter(parameters, "dense", 13, 1, 4096));
  POPRUN_ASSIGN(const auto sparse, integer_parameter(parameters, "sparse", 26, 1, 4096));
  POPRUN_ASSIGN(const auto vocabulary, integer_parameter(parameters, "vocabulary", 3, 1, 1 << 30));
  POPRUN_ASSIGN(const auto items, integer_parameter(parameters, "items", 60'000, 1, std::uint64_t{1} << 40));
  POPRUN_ASSIGN(const auto seed, integer_parameter(parameters, "seed", 0, 0, ~std::uint64_t{0}));
  Recipe recipe{{}, vocabulary, seed};
  add_tensor(recipe.description, "dense", "f32", {static_cast<std::uint32_t>(dense)});
  add_tensor(recipe.description, "sparse", "i32", {static_cast<std::uint32_t>(sparse)});
  add_tensor(recipe.description, "labels", "i32", {});
  recipe.description.set_train_items(items);
  recipe.description.set_test_items(std::max<std::uint64_t>(1, items / 6));
  recipe.description.set_classes(2);
  recipe.description.set_mean(0);
  recipe.description.set_deviation(1);
  return recipe;
}

class SyntheticClicks final : public Dataset {
 public:
  explicit SyntheticClicks(Recipe recipe)
      : Dataset(std::move(recipe.description)),
        vocabulary_(recipe.vocabulary),
        train_key_(random_key(recipe.seed, "synthetic train clicks")),
        test_key_(random_key(recipe.seed, "synthetic test clicks")) {}

  Status read(const Sample& sample, int tensor, std::span<std::byte> destination) const override {
    POPRUN_CHECK(destination.size() == sample_bytes(description().tensors(tensor)));
    const std::uint64_t key = sample.split == proto::SPLIT_TEST ? test_key_ : train_key_;
    if (tensor == 2) {
      const std::int32_t label = clicked(key, sample.item) ? 1 : 0;
      std::memcpy(destination.data(), &label, sizeof(label));
      return {};
    }
    for (std::uint64_t i = 0; i < destination.size() / 4; ++i) {
      const float number = dense(key, sample.item, i);
      const std::int32_t id = sparse(key, sample.item, i);
      std::memcpy(destination.data() + i * 4, tensor == 0 ? static_cast<const void*>(&number) : &id, 4);
    }
    return {};
  }

 private:
  /// Returns word i of the item's tensor: its dense features, sparse features, or the noise of its label.
  static std::uint32_t word(std::uint64_t key, std::uint64_t item, std::uint64_t tensor, std::uint64_t i) {
    return philox(key, item, (tensor << 32U) + i / 4)[i % 4];
  }
  static float dense(std::uint64_t key, std::uint64_t item, std::uint64_t i) {
    return 2 * unit_float(word(key, item, 0, i)) - 1;
  }
  [[nodiscard]] std::int32_t sparse(std::uint64_t key, std::uint64_t item, std::uint64_t i) const {
    return static_cast<std::int32_t>(word(key, item, 1, i) % vocabulary_);
  }
  [[nodiscard]] bool clicked(std::uint64_t key, std::uint64_t item) const {
    const auto last = static_cast<float>(std::max<std::uint64_t>(1, vocabulary_ - 1));
    const float threshold = 2 * static_cast<float>(sparse(key, item, 0)) / last - 1;
    const float noise = 0.5F * (unit_float(word(key, item, 2, 0)) - 0.5F);
    return dense(key, item, 0) + noise > threshold;
  }

  std::uint64_t vocabulary_;
  std::uint64_t train_key_;
  std::uint64_t test_key_;
};

/// Stores no data: items are generated as they are read.
class StoredClicks final : public Stored {
 public:
  [[nodiscard]] std::uint64_t bytes() const override { return 0; }

  [[nodiscard]] Result<std::unique_ptr<Dataset>> view(const Source& source) const override {
    POPRUN_ASSIGN(Recipe recipe, recipe_of(source));
    return std::make_unique<SyntheticClicks>(std::move(recipe));
  }
};

}  // namespace

const DatasetFamily& synthetic_clicks() {
  static constexpr DatasetFamily kFamily = {
      .form = "synthetic:clicks,dense=N,sparse=N",
      .parameters = {},
      .stored = {},
      .accepts = [](std::string_view text) { return text == kClicks || text.starts_with("synthetic:clicks,"); },
      .describe = [](const Source& source) -> Result<proto::Dataset> {
        POPRUN_ASSIGN(Recipe recipe, recipe_of(source));
        return std::move(recipe.description);
      },
      .read = [](const Source& source) -> Result<std::shared_ptr<const Stored>> {
        POPRUN_TRY(recipe_of(source));
        return std::make_shared<StoredClicks>();
      },
  };
  return kFamily;
}

}  // namespace poprun::hostio::families
