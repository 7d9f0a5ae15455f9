#include "replica/compiler/planner/product_options.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "replica/base/text.h"

namespace poprun {
namespace {

constexpr std::string_view kAvailableMemoryKey = "memory.available-memory-proportion";
constexpr std::string_view kPartialsKey = "model.partials";

/// Formats a setting as it is written in the configuration: "memory.available-memory-proportion-operators = conv1=0.2".
template <typename T>
std::string shown(std::string_view key, const ProductSetting<T>& setting) {
  return fmt::format("{}{} = {}", key, setting.operators.empty() ? "" : "-operators", setting.text);
}

template <typename T>
bool is_everywhere(const ProductSetting<T>& setting) {
  return !setting.products && !setting.ipu && !setting.stage && setting.operators.empty();
}

/// Returns the value of the last setting that applies everywhere.
template <typename T>
T everywhere(const std::vector<ProductSetting<T>>& settings, T otherwise) {
  for (const ProductSetting<T>& setting : settings) {
    otherwise = is_everywhere(setting) ? setting.value : otherwise;
  }
  return otherwise;
}

template <typename T>
bool all_are(const std::vector<ProductSetting<T>>& settings, T value) {
  return std::ranges::all_of(settings, [&](const auto& s) { return s.operators.empty() && s.value == value; });
}

/// Explains why a setting applies to no product: "there is no matmul on IPU 2, only on IPUs 0, 1".
template <typename T>
std::string why_unused(const ProductSetting<T>& setting, std::span<const PlacedProduct> products) {
  const std::string kinds = !setting.products                           ? "convolution or matmul"
                            : *setting.products == ProductKind::kMatmul ? "matmul"
                                                                        : "convolution";
  if (!setting.stage && !setting.ipu) {
    return fmt::format("the model has no {}", kinds);
  }
  std::set<std::uint32_t> others;
  for (const PlacedProduct& product : products) {
    if (!setting.products || product.kind == *setting.products) {
      others.insert(setting.stage ? product.stage : product.ipu);
    }
  }
  const std::string_view place = setting.stage ? "in stage" : "on IPU";
  const std::uint32_t wanted = setting.stage ? *setting.stage : *setting.ipu;
  return fmt::format(
      "there is no {} {} {}{}", kinds, place, wanted,
      others.empty() ? ""
                     : fmt::format(", only {}{} {}", place, others.size() == 1 ? "" : "s", fmt::join(others, ", ")));
}

}  // namespace

bool is_default(const PlannerOptions& options) {
  return all_are(options.available_memory, kDefaultPermille) && all_are(options.partials, Precision::kFloat);
}

std::int64_t permille_everywhere(const PlannerOptions& options) {
  return everywhere(options.available_memory, kDefaultPermille);
}

Precision partials_everywhere(const PlannerOptions& options) {
  return everywhere(options.partials, Precision::kFloat);
}

template <typename T>
bool ProductSettings::Rule<T>::is_for(const PlacedProduct& product) const {
  return (!setting.products || *setting.products == product.kind) && (!setting.ipu || *setting.ipu == product.ipu) &&
         (!setting.stage || *setting.stage == product.stage) && (!operators || operators->finds(product.name));
}

template <typename T>
int ProductSettings::Rule<T>::rank() const {
  const int place = operators ? 3 : setting.stage ? 2 : setting.ipu ? 1 : 0;
  return 2 * place + (setting.products ? 1 : 0);
}

template <typename T>
Result<std::vector<ProductSettings::Rule<T>>> ProductSettings::rules_of(
    std::string_view key, const std::vector<ProductSetting<T>>& settings) {
  std::vector<Rule<T>> rules;
  for (const ProductSetting<T>& setting : settings) {
    Rule<T> rule{setting, std::nullopt};
    if (!setting.operators.empty()) {
      const Result<Pattern> pattern = Pattern::parse(setting.operators);
      if (!pattern) {
        return fail(ErrorCode::kUsage, fmt::format("{}: not a valid regular expression: {}", shown(key, setting),
                                                   pattern.error().message));
      }
      rule.operators = *pattern;
    }
    rules.push_back(std::move(rule));
  }
  return rules;
}

template <typename T>
const ProductSettings::Rule<T>* ProductSettings::deciding(const std::vector<Rule<T>>& rules,
                                                          const PlacedProduct& product) {
  const Rule<T>* found = nullptr;
  for (const Rule<T>& rule : rules) {
    if (rule.is_for(product) && (found == nullptr || rule.rank() >= found->rank())) {
      found = &rule;
    }
  }
  return found;
}

Result<ProductSettings> ProductSettings::make(const PlannerOptions& options) {
  ProductSettings made;
  POPRUN_ASSIGN(made.available_memory_, rules_of(kAvailableMemoryKey, options.available_memory));
  POPRUN_ASSIGN(made.partials_, rules_of(kPartialsKey, options.partials));
  return made;
}

ProductOptions ProductSettings::of(const PlacedProduct& product) const {
  ProductOptions options;
  if (const auto* rule = deciding(available_memory_, product)) {
    options.permille = rule->setting.value;
    options.permille_by = shown(kAvailableMemoryKey, rule->setting);
  }
  if (const auto* rule = deciding(partials_, product)) {
    options.partials = rule->setting.value;
    options.partials_by = shown(kPartialsKey, rule->setting);
  }
  return options;
}

template <typename T>
Status ProductSettings::note_unused(std::string_view key, const std::vector<Rule<T>>& rules,
                                    std::span<const PlacedProduct> products, std::vector<Note>& notes) {
  constexpr std::size_t kExamples = 4;
  for (const Rule<T>& rule : rules) {
    const ProductSetting<T>& setting = rule.setting;
    if (is_everywhere(setting) ||
        std::ranges::any_of(products, [&](const PlacedProduct& p) { return rule.is_for(p); })) {
      continue;
    }
    if (setting.operators.empty()) {
      notes.push_back({"option.no-effect",
                       fmt::format("{} has no effect: {}", shown(key, setting), why_unused(setting, products)),
                       {{"option", std::string{key}}}});
      continue;
    }
    std::vector<std::string> names;
    std::ranges::transform(products, std::back_inserter(names), &PlacedProduct::name);
    const std::string close = nearest(setting.operators, names);
    names.resize(std::min(names.size(), kExamples));
    return fail(ErrorCode::kUsage,
                fmt::format("{}: matches no convolution or matmul in the model; {}", shown(key, setting),
                            !close.empty()  ? fmt::format("did you mean {}?", close)
                            : names.empty() ? "the model has neither"
                                            : fmt::format("available: {} ...", fmt::join(names, ", "))));
  }
  return {};
}

Result<std::vector<Note>> ProductSettings::notes_of_no_effect(std::span<const PlacedProduct> products) const {
  std::vector<Note> notes;
  POPRUN_TRY(note_unused(kAvailableMemoryKey, available_memory_, products, notes));
  POPRUN_TRY(note_unused(kPartialsKey, partials_, products, notes));
  return notes;
}

std::vector<Note> ProductSettings::notes_of_unequal(std::span<const PlacedProduct> products) const {
  std::map<std::uint32_t, std::set<std::int64_t>> by_ipu;
  for (const PlacedProduct& product : products) {
    by_ipu[product.ipu].insert(of(product).permille);
  }
  std::vector<Note> notes;
  for (const auto& [ipu, found] : by_ipu) {
    if (found.size() < 2) {
      continue;
    }
    std::vector<std::string> texts;
    std::ranges::transform(found, std::back_inserter(texts), proportion_text);
    notes.push_back(
        {"products.unequal-proportions",
         fmt::format("{} has several values on IPU {} ({}): products that are otherwise equal cannot share code there, "
                     "which costs memory; set one value per IPU to avoid this",
                     kAvailableMemoryKey, ipu, fmt::join(texts, ", ")),
         {{"ipu", ipu}, {"proportions", found.size()}}});
  }
  return notes;
}

Attributes without_options(const Attributes& attributes) {
  Attributes rest;
  for (const auto& [name, value] : attributes.values()) {
    if (name != kAvailableMemoryAttribute && name != kPartialsAttribute) {
      rest.set(name, value);
    }
  }
  return rest;
}

void set_options(Attributes& attributes, const ProductOptions& options) {
  attributes = without_options(attributes);
  if (options.permille != kDefaultPermille) {
    attributes.set(kAvailableMemoryAttribute, options.permille);
  }
  if (options.partials == Precision::kHalf) {
    attributes.set(kPartialsAttribute, word_of(Precision::kHalf));
  }
}

std::int64_t permille_of(const Attributes& attributes) {
  return attributes.has(kAvailableMemoryAttribute) ? attributes.integer(kAvailableMemoryAttribute) : kDefaultPermille;
}

Precision partials_of(const Attributes& attributes) {
  return attributes.has(kPartialsAttribute) ? Precision::kHalf : Precision::kFloat;
}

std::string proportion_text(std::int64_t permille) {
  return fmt::format("{}", static_cast<double>(permille) / 1000);
}

}  // namespace poprun
