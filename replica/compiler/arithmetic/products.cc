#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "replica/compiler/job/pass.h"
#include "replica/compiler/planner/product_options.h"
#include "replica/ops/face/operator.h"

/// Sets the options that the job requests on the forward pass's convolutions and matmuls. Their gradients later inherit
/// these options.
namespace poprun::passes::products {
namespace {

constexpr std::string_view kName = "products";

bool applies(const CompileOptions& options) {
  return !is_default(options.planner);
}

/// Returns the product and its place in the model, or nothing for an operation that is not a product.
std::optional<PlacedProduct> product_of(const Job& job, const Operation& operation) {
  const Operator* op = find_operator(operation.kind);
  if (op == nullptr || op->product == nullptr) {
    return std::nullopt;
  }
  const std::string& name = job.graph.tensor(operation.outputs.at(0)).name;
  return PlacedProduct{.kind = op->product(signature_of(job.graph, operation)).kind,
                       .ipu = job.ipu_of_stage.at(operation.origin.stage),
                       .stage = operation.origin.stage,
                       .name = name.substr(name.starts_with(kEvaluationPrefix) ? kEvaluationPrefix.size() : 0)};
}

Status run(const CompileOptions& options, Job& job) {
  POPRUN_ASSIGN(const ProductSettings settings, ProductSettings::make(options.planner));
  std::vector<PlacedProduct> products;
  for (const Place place : forward_places(job)) {
    for (Operation& operation : job.graph.at(place).operations) {
      if (std::optional<PlacedProduct> product = product_of(job, operation)) {
        const ProductOptions asked = settings.of(*product);
        if (asked.partials == Precision::kHalf && !options.precision.half) {
          return fail(ErrorCode::kUsage,
                      fmt::format("{} needs model.precision = half, but it is float", asked.partials_by));
        }
        set_options(operation.attributes, asked);
        products.push_back(*std::move(product));
      }
    }
  }
  POPRUN_ASSIGN(const std::vector<Note> unused, settings.notes_of_no_effect(products));
  job.notes.insert(job.notes.end(), unused.begin(), unused.end());
  const std::vector<Note> unequal = settings.notes_of_unequal(products);
  job.notes.insert(job.notes.end(), unequal.begin(), unequal.end());
  return {};
}

/// Returns the value of the most specific setting that matches a product, or `otherwise` if no setting matches it.
template <typename T>
T expected(const std::vector<ProductSetting<T>>& settings, const PlacedProduct& product, T otherwise) {
  const auto last = [&](auto is_such) -> std::optional<T> {
    for (auto it = settings.rbegin(); it != settings.rend(); ++it) {
      if ((!it->products || it->products == product.kind) && is_such(*it)) {
        return it->value;
      }
    }
    return std::nullopt;
  };
  using Setting = ProductSetting<T>;
  const auto is_named = [&](const Setting& s) {
    return !s.operators.empty() && Pattern(s.operators).finds(product.name);
  };
  const auto is_nowhere = [](const Setting& s) { return s.operators.empty() && !s.ipu && !s.stage; };
  std::optional<T> found = last([&](const Setting& s) { return s.products && is_named(s); });
  found = found ? found : last(is_named);
  for (const bool by_kind : {true, false}) {
    found = found
                ? found
                : last([&](const Setting& s) { return s.stage == product.stage && s.products.has_value() == by_kind; });
  }
  for (const bool by_kind : {true, false}) {
    found = found ? found
                  : last([&](const Setting& s) { return s.ipu == product.ipu && s.products.has_value() == by_kind; });
  }
  for (const bool by_kind : {true, false}) {
    found = found ? found : last([&](const Setting& s) { return is_nowhere(s) && s.products.has_value() == by_kind; });
  }
  return found.value_or(otherwise);
}

/// Checks that only options of products changed, and that each product has the values of its most specific settings.
Status verify(const CompileOptions& options, const Job& before, const Job& after) {
  for (std::size_t f = 0; f < before.graph.functions.size(); ++f) {
    for (std::size_t r = 0; r < before.graph.functions[f].regions.size(); ++r) {
      const std::vector<Operation>& was = before.graph.at({f, r}).operations;
      const std::vector<Operation>& is = after.graph.at({f, r}).operations;
      if (was.size() != is.size()) {
        return fail(ErrorCode::kBug, fmt::format("pass {}: adds or drops operations", kName));
      }
      for (std::size_t k = 0; k < is.size(); ++k) {
        if (was[k].kind != is[k].kind || was[k].inputs != is[k].inputs || was[k].outputs != is[k].outputs ||
            was[k].origin != is[k].origin || was[k].attributes != without_options(is[k].attributes)) {
          return fail(ErrorCode::kBug, fmt::format("pass {}: changes more than the options of {}", kName, is[k].kind));
        }
      }
    }
  }
  for (const Place place : forward_places(after)) {
    for (const Operation& operation : after.graph.at(place).operations) {
      const std::optional<PlacedProduct> product = product_of(after, operation);
      if (product &&
          (permille_of(operation.attributes) !=
               expected(options.planner.available_memory, *product, kDefaultPermille) ||
           partials_of(operation.attributes) != expected(options.planner.partials, *product, Precision::kFloat))) {
        return pass_bug(kName, after.graph, operation.outputs.at(0),
                        "does not have the options of its most specific setting");
      }
    }
  }
  return {};
}

}  // namespace

Pass pass() {
  return {kName, applies, run, verify};
}

}  // namespace poprun::passes::products
