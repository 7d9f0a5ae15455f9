#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "replica/base/error.h"
#include "replica/base/note.h"
#include "replica/base/pattern.h"
#include "replica/choices/choices.h"
#include "replica/device/product.h"
#include "replica/graph/types.h"

/// A job's settings for its convolutions and matmuls, and the rule that decides which setting applies to a product.
///
///   available-memory-proportion = 0.6 ipu1=0.3 stage2.matmuls=0.2
///   available-memory-proportion-operators = ^layer4=0.1
///
///   ^layer4          most specific: operators selected by name
///   stage2.matmuls   a stage; a setting for one kind of product overrides one for both kinds
///   ipu1             an IPU, by the same rule
///   0.6              everywhere, by the same rule
///
/// A stage is more specific than an IPU, because an IPU may hold several stages. Among equally specific settings, the
/// last one applies.
namespace poprun {

/// Default fraction of a tile's memory that the temporaries of a product may use, in thousandths; PopLibs' own default.
inline constexpr std::int64_t kDefaultPermille = 600;

/// One setting, for one or both kinds of product, in one place or everywhere.
template <typename T>
struct ProductSetting {
  std::string text = {};                     ///< Original text, for messages: "stage2.matmuls=0.2".
  std::optional<ProductKind> products = {};  ///< Kind of product; nothing for both kinds.
  /// At most one of `ipu`, `stage` and `operators` is given.
  std::optional<std::uint32_t> ipu = {};
  std::optional<std::uint32_t> stage = {};
  std::string operators = {};  ///< ECMAScript pattern to search for in output names; empty if there is none.
  T value = {};
};

struct PlannerOptions {
  std::vector<ProductSetting<std::int64_t>> available_memory = {};  ///< In thousandths, 0 to 1000.
  std::vector<ProductSetting<Precision>> partials = {};             ///< kHalf requires half precision.
};

/// Returns whether every product has the defaults, so that no setting has to be resolved.
bool is_default(const PlannerOptions& options);

/// Return the general settings: the fraction of a tile's memory, in thousandths, and the type of partial sums.
std::int64_t permille_everywhere(const PlannerOptions& options);
Precision partials_everywhere(const PlannerOptions& options);

/// A convolution or matmul of the forward pass. Its gradients inherit its settings.
struct PlacedProduct {
  ProductKind kind = ProductKind::kMatmul;
  std::uint32_t ipu = 0;
  std::uint32_t stage = 0;
  std::string name = {};  ///< Name of its first output, without the prefix that evaluation adds.
};

struct ProductOptions {
  std::int64_t permille = kDefaultPermille;
  Precision partials = Precision::kFloat;
  /// The deciding setting, such as "memory.available-memory-proportion = ipu1=0.3"; empty if none applies.
  std::string permille_by = {};
  std::string partials_by = {};
};

/// Looks up products in a job's settings. Deterministic. Cost per product: linear in the number of settings.
class ProductSettings {
 public:
  /// Compiles the patterns. Errors: kUsage if a pattern is not a valid regular expression.
  static Result<ProductSettings> make(const PlannerOptions& options);

  [[nodiscard]] ProductOptions of(const PlacedProduct& product) const;

  /// Returns a one-line note for each setting that applies to none of the job's products. Errors: kUsage if a pattern
  /// matches no name; the message suggests the nearest name.
  [[nodiscard]] Result<std::vector<Note>> notes_of_no_effect(std::span<const PlacedProduct> products) const;

  /// Returns a note for each IPU whose products have different proportions of memory, because identical products with
  /// different proportions cannot share code (Graphcore's note on the available memory proportion, section 3).
  [[nodiscard]] std::vector<Note> notes_of_unequal(std::span<const PlacedProduct> products) const;

 private:
  template <typename T>
  struct Rule {
    ProductSetting<T> setting;
    std::optional<Pattern> operators;

    [[nodiscard]] bool is_for(const PlacedProduct& product) const;
    /// Returns a rank that is higher for more specific rules.
    [[nodiscard]] int rank() const;
  };

  template <typename T>
  static Result<std::vector<Rule<T>>> rules_of(std::string_view key, const std::vector<ProductSetting<T>>& settings);
  template <typename T>
  static const Rule<T>* deciding(const std::vector<Rule<T>>& rules, const PlacedProduct& product);
  template <typename T>
  static Status note_unused(std::string_view key, const std::vector<Rule<T>>& rules,
                            std::span<const PlacedProduct> products, std::vector<Note>& notes);

  std::vector<Rule<std::int64_t>> available_memory_;
  std::vector<Rule<Precision>> partials_;
};

/// Attributes that hold an operation's options. Its gradients and clones inherit them. Default values are not stored.
inline constexpr const char* kAvailableMemoryAttribute = "available_memory";
inline constexpr const char* kPartialsAttribute = "partials";

void set_options(Attributes& attributes, const ProductOptions& options);

Attributes without_options(const Attributes& attributes);

std::int64_t permille_of(const Attributes& attributes);
Precision partials_of(const Attributes& attributes);

/// Formats thousandths as in a job's configuration: "0.25", "0.6", "1".
std::string proportion_text(std::int64_t permille);

}  // namespace poprun
