#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <regex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "replica/base/error.h"
#include "replica/device/product.h"
#include "replica/graph/attributes.h"

/// A job's settings for its convolutions and matmuls, and the rule which of them applies to one.
///
///   available-memory-proportion = 0.6 ipu1=0.3 stage2.matmuls=0.2
///   available-memory-proportion-operators = ^layer4=0.1
///
///   ^layer4          narrowest: operators by name
///   stage2.matmuls   a stage; first the setting for the kind of product, then the one for both
///   ipu1             an IPU, likewise
///   0.6              everywhere, likewise
///
/// A stage is narrower than an IPU, since it lies on one, and IPUs may hold several. Of settings that are equally
/// narrow the last one decides.
namespace poprun {

/// Type of partial sums.
enum class Partials : std::uint8_t { kFloat, kHalf };

/// Part of a tile's memory that a product's temporary values may take, in thousandths. 600 is PopLibs' default (seed
/// 003, section 1.1).
inline constexpr std::int64_t kDefaultPermille = 600;

/// One setting, for products of one kind or both, in one place or everywhere.
template <typename T>
struct ProductSetting {
  std::string text = {};                     ///< As written, for messages: "stage2.matmuls=0.2".
  std::optional<ProductKind> products = {};  ///< Nothing: both kinds.
  /// At most one of these is given.
  std::optional<std::uint32_t> ipu = {};
  std::optional<std::uint32_t> stage = {};
  std::string operators = {};  ///< Searched for in output names (ECMAScript); empty: not by name.
  T value = {};
};

/// In the order in which they were written.
struct PlannerOptions {
  std::vector<ProductSetting<std::int64_t>> available_memory = {};  ///< In thousandths, 0 to 1000.
  std::vector<ProductSetting<Partials>> partials = {};              ///< kHalf needs half precision.
};

/// Whether every product has the defaults: then no setting has to be resolved.
bool is_default(const PlannerOptions& options);

/// Settings that apply everywhere except where narrower ones do: the part of a tile's memory, in thousandths, and the
/// type of partial sums.
std::int64_t permille_everywhere(const PlannerOptions& options);
Partials partials_everywhere(const PlannerOptions& options);

/// A convolution or matmul of the forward pass. Its gradients have its settings.
struct PlacedProduct {
  ProductKind kind = ProductKind::kMatmul;
  std::uint32_t ipu = 0;
  std::uint32_t stage = 0;
  std::string name = {};  ///< Its first output's, without what evaluation puts before it.
};

/// The settings of one product.
struct ProductOptions {
  std::int64_t permille = kDefaultPermille;
  Partials partials = Partials::kFloat;
  /// "memory.available-memory-proportion = ipu1=0.3"; empty if no setting is for the product.
  std::string permille_by = {};
  std::string partials_by = {};
};

/// Looks up products in a job's settings. Deterministic. Cost: settings, for each product.
class ProductSettings {
 public:
  /// Errors: kUsage, a pattern that is none.
  static Result<ProductSettings> make(const PlannerOptions& options);

  [[nodiscard]] ProductOptions of(const PlacedProduct& product) const;

  /// Notes about settings that apply to none of the job's products, one line each.
  /// Errors: kUsage, names whose pattern matches none, with the nearest one.
  [[nodiscard]] Result<std::vector<std::string>> notes_of_no_effect(std::span<const PlacedProduct> products) const;

  /// One line for each IPU whose products have unequal proportions of memory: equal products with unequal proportions
  /// cannot share code (Graphcore's note on the available memory proportion, section 3).
  [[nodiscard]] std::vector<std::string> notes_of_unequal(std::span<const PlacedProduct> products) const;

 private:
  template <typename T>
  struct Rule {
    ProductSetting<T> setting;
    std::optional<std::regex> operators;

    [[nodiscard]] bool is_for(const PlacedProduct& product) const;
    /// The narrower of two has the higher rank.
    [[nodiscard]] int rank() const;
  };

  template <typename T>
  static Result<std::vector<Rule<T>>> rules_of(std::string_view key, const std::vector<ProductSetting<T>>& settings);
  template <typename T>
  static const Rule<T>* deciding(const std::vector<Rule<T>>& rules, const PlacedProduct& product);
  template <typename T>
  static Status note_unused(std::string_view key, const std::vector<Rule<T>>& rules,
                            std::span<const PlacedProduct> products, std::vector<std::string>& notes);

  std::vector<Rule<std::int64_t>> available_memory_;
  std::vector<Rule<Partials>> partials_;
};

/// Where an operation's options stand among its attributes, which its gradients and clones inherit. Neither is there
/// where it has its default.
inline constexpr const char* kAvailableMemoryAttribute = "available_memory";
inline constexpr const char* kPartialsAttribute = "partials";

void set_options(Attributes& attributes, const ProductOptions& options);

Attributes without_options(const Attributes& attributes);

/// The inverse, for products anywhere in a job's graph.
std::int64_t permille_of(const Attributes& attributes);
Partials partials_of(const Attributes& attributes);

/// "0.25", "0.6", "1": thousandths as the job writes them.
std::string proportion_text(std::int64_t permille);

}  // namespace poprun
