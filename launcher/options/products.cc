#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "launcher/options/option_table.h"
#include "launcher/options/option_values.h"
#include "launcher/options/rules.h"
#include "replica/base/text.h"
#include "replica/device/product.h"

namespace poprun::launcher {
namespace {

using proto::ProductSetting;

constexpr std::string_view kProportion = "memory.available-memory-proportion";
constexpr std::string_view kProportionOperators = "memory.available-memory-proportion-operators";
constexpr std::string_view kPartials = "model.partials";
constexpr std::string_view kPartialsOperators = "model.partials-operators";

/// The smallest proportion that Graphcore advises, because of poplin::createWeights() (section 2.1 of the note on the
/// available memory proportion).
constexpr std::uint32_t kLeastAdvisedPermille = 50;

constexpr std::uint32_t kMostIpus = 64;
constexpr std::size_t kMostSettings = 256;

/// A fraction of memory, in thousandths.
struct Proportion {
  static constexpr std::string_view kAllowed = "a number from 0 to 1 with at most 3 decimals";
  static constexpr std::string_view kLetter = "X";

  static bool read(const std::string& text, ProductSetting& setting) {
    const Read<double> value = Real{0, 1}.read(text);
    const double thousandths = value ? std::round(*value * 1000) : 0;
    if (!value || std::abs(*value * 1000 - thousandths) > 1e-9) {
      return false;
    }
    setting.set_permille(static_cast<std::uint32_t>(thousandths));
    return true;
  }
};

struct PartialSums {
  static constexpr std::string_view kAllowed = "float or half";
  static constexpr std::string_view kLetter = "TYPE";

  static bool read(const std::string& text, ProductSetting& setting) {
    setting.set_partials(text);
    return find_choice<Precision>(text).has_value();
  }
};

struct Slices {
  static constexpr std::string_view kAllowed = "a whole number from 1 to 4096";
  static constexpr std::string_view kLetter = "N";

  static bool read(const std::string& text, ProductSetting& setting) {
    const Read<std::uint64_t> value = Integer{1, 4096}.read(text);
    setting.set_slices(value ? static_cast<std::uint32_t>(*value) : 1);
    return value.has_value();
  }
};

/// Splits `text` at spaces. Backslashes are kept, because regular expressions need them.
std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) {
    words.push_back(std::move(word));
  }
  return words;
}

/// Returns the number after `beginning`, such as 3 for "ipu" and "ipu3". Returns nothing for any other text.
std::optional<std::uint32_t> index_after(std::string_view beginning, std::string_view text) {
  if (!text.starts_with(beginning)) {
    return std::nullopt;
  }
  text.remove_prefix(beginning.size());
  const auto index = parse_number<std::uint32_t>(text);
  return index && *index < kMostIpus ? index : std::nullopt;
}

/// Parses "matmuls", "ipu1" or "stage2.convolutions". Capitals are accepted, because PopTorch writes "IPU0".
bool read_where(std::string where, ProductSetting& setting) {
  std::ranges::transform(where, where.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  const std::size_t dot = where.find('.');
  const std::string place = where.substr(0, dot);
  std::string kind = dot == std::string::npos ? "" : where.substr(dot + 1);
  if (const auto ipu = index_after("ipu", place)) {
    setting.set_ipu(*ipu);
  } else if (const auto stage = index_after("stage", place)) {
    setting.set_stage(*stage);
  } else if (dot == std::string::npos) {
    kind = place;
  } else {
    return false;
  }
  if (find_choice<ProductKind>(kind)) {
    setting.set_products(kind);
    return true;
  }
  return dot == std::string::npos && kind.empty() && (setting.has_ipu() || setting.has_stage());
}

/// Returns a text that identifies the scope of a setting. No two settings of a key can have the same scope.
std::string scope_of(ProductSetting setting) {
  setting.clear_text();
  setting.clear_value();
  return setting.SerializeAsString();
}

/// Settings in the form of one value, one value per IPU, or values with a place or kind.
template <typename Value>
struct Everywhere {
  [[nodiscard]] Read<std::vector<ProductSetting>> read(const std::string& text) const {
    std::string blanks = text;
    std::ranges::replace(blanks, ',', ' ');
    const std::vector<std::string> words = words_of(blanks);
    const auto plain =
        std::ranges::count_if(words, [](const std::string& w) { return w.find('=') == std::string::npos; });
    std::vector<ProductSetting> settings;
    std::set<std::string> scopes;
    std::uint32_t ipu = 0;
    for (const std::string& word : words) {
      ProductSetting setting;
      setting.set_text(word);
      const std::size_t equals = word.rfind('=');
      const bool is_plain = equals == std::string::npos;
      if (is_plain && plain > 1) {
        setting.set_text(fmt::format("ipu{}={}", ipu, word));
        setting.set_ipu(ipu++);
      }
      if (!Value::read(is_plain ? word : word.substr(equals + 1), setting) ||
          (!is_plain && !read_where(word.substr(0, equals), setting))) {
        return refused(fmt::format("; '{}' is not valid", word));
      }
      if (!scopes.insert(scope_of(setting)).second) {
        return refused(fmt::format("; '{}' applies to the same products as an earlier setting", word));
      }
      settings.push_back(std::move(setting));
    }
    if (settings.empty() || settings.size() > kMostSettings || ipu > kMostIpus) {
      return refused("");
    }
    return settings;
  }

 private:
  static tl::unexpected<std::string> refused(const std::string& why) {
    return tl::unexpected<std::string>{fmt::format(
        "{0}; or one per IPU, separated by blanks; also WHERE={1}, where WHERE is convolutions, matmuls, ipuN or "
        "stageN, or a place and a kind, such as stage2.matmuls{2}",
        Value::kAllowed, Value::kLetter, why)};
  }
};

/// Settings in the form REGEX=VALUE, any number of them.
template <typename Value>
struct ByOperator {
  [[nodiscard]] Read<std::vector<ProductSetting>> read(const std::string& text) const {
    std::vector<ProductSetting> settings;
    for (const std::string& word : words_of(text)) {
      ProductSetting setting;
      setting.set_text(word);
      const std::size_t equals = word.rfind('=');
      if (equals == std::string::npos || equals == 0 || !Value::read(word.substr(equals + 1), setting)) {
        return refused(fmt::format("; '{}' is not valid", word));
      }
      const Read<std::string> pattern = Regex{}.read(word.substr(0, equals));
      if (!pattern) {
        return refused(fmt::format("; '{}' is not {}", word.substr(0, equals), pattern.error()));
      }
      setting.set_operators(*pattern);
      settings.push_back(std::move(setting));
    }
    if (settings.empty() || settings.size() > kMostSettings) {
      return refused("");
    }
    return settings;
  }

 private:
  static tl::unexpected<std::string> refused(const std::string& why) {
    return tl::unexpected<std::string>{fmt::format(
        "REGEX={0}, several of them separated by blanks, where {0} is {1}{2}", Value::kLetter, Value::kAllowed, why)};
  }
};

using Settings = google::protobuf::RepeatedPtrField<ProductSetting>;

Settings& proportions(Options& options) {
  return *options.config.mutable_memory()->mutable_available_memory_proportion();
}
Settings& partials(Options& options) {
  return *options.config.mutable_model()->mutable_partials();
}

Settings& serialised(Options& options) {
  return *options.config.mutable_model()->mutable_serialised_matmuls();
}

Settings& serialised_sequence(Options& options) {
  return *options.config.mutable_model()->mutable_serialised_sequence();
}

/// Returns a function that replaces all earlier settings, so that only the last value counts.
auto replaces(Settings& (*field)(Options&)) {
  return [field](Options& options, const std::vector<ProductSetting>& given) {
    field(options) = Settings(given.begin(), given.end());
  };
}

auto adds(Settings& (*field)(Options&)) {
  return [field](Options& options, const std::vector<ProductSetting>& given) {
    field(options).Add(given.begin(), given.end());
  };
}

template <typename Kind, typename Store>
OptionRow repeated_key(std::string_view name, const char* placeholder, const char* help, Kind kind, Store store) {
  OptionRow row = file_key(std::string{name}, placeholder, "", help, kind, store);
  row.arity = Arity::kRepeated;
  return row;
}

/// Calls `shown` for the key with which `setting` was written.
std::string shown(const Options& options, std::string_view everywhere, const ProductSetting& setting) {
  return shown(options,
               setting.operators().empty() ? std::string{everywhere} : fmt::format("{}-operators", everywhere));
}

/// Returns the largest number of IPUs per replica that the job may use, including the other numbers that a check tries.
std::uint32_t most_ipus(const Options& options) {
  std::uint32_t most = options.config.topology().ipus_per_replica();
  if (const auto* check = std::get_if<CheckRequest>(&options.request)) {
    for (const std::uint32_t ipus : check->ipus) {
      most = std::max(most, ipus);
    }
  }
  return most;
}

/// Rejects settings for IPUs that no replica has. Adds a note if a list leaves out IPUs, which then use the default,
/// `otherwise`.
Status check_ipus(Options& options, std::string_view key, const Settings& settings, std::string_view otherwise) {
  const std::uint32_t ipus = most_ipus(options);
  std::set<std::uint32_t> named;
  bool has_default = false;
  for (const ProductSetting& setting : settings) {
    if (setting.has_ipu()) {
      named.insert(setting.ipu());
    }
    has_default = has_default || (setting.operators().empty() && !setting.has_ipu() && !setting.has_stage() &&
                                  setting.products().empty());
  }
  if (!named.empty() && *named.rbegin() >= ipus) {
    const std::uint32_t highest = *named.rbegin();
    return fail(ErrorCode::kUsage, fmt::format("{}: a replica with --ipus-per-replica = {} has no IPU {}; IPUs are "
                                               "numbered from 0; set --ipus-per-replica {} or do not name this IPU",
                                               shown(options, key), ipus, highest, highest + 1));
  }
  if (!named.empty() && named.size() < options.config.topology().ipus_per_replica() && !has_default) {
    options.notes.push_back(fmt::format("{}: IPUs that are not listed use {}", shown(options, key), otherwise));
  }
  return {};
}

Status check_partials(const Options& options) {
  for (const ProductSetting& setting : options.config.model().partials()) {
    if (choice_of<Precision>(setting.partials()) == Precision::kHalf && !is_half(options)) {
      return fail(ErrorCode::kUsage,
                  fmt::format("{} needs model.precision = half, but it is float", shown(options, kPartials, setting)));
    }
    if (options.subcommand() == Subcommand::kCheck && (setting.has_ipu() || setting.has_stage())) {
      return fail(ErrorCode::kUsage,
                  fmt::format("{}: check splits the model in several ways that must give identical bits, but partial "
                              "sums set by IPU or stage depend on the split; choose the operators by name with {}",
                              shown(options, kPartials), kPartialsOperators));
    }
  }
  return {};
}

void note_small_proportions(Options& options) {
  for (const ProductSetting& setting : options.config.memory().available_memory_proportion()) {
    if (setting.permille() < kLeastAdvisedPermille) {
      options.notes.push_back(
          fmt::format("{}: Graphcore advises against values below 0.05 for poplin::createWeights(): with so little "
                      "memory, operands crowd onto few tiles and need more code and exchange",
                      shown(options, kProportion, setting)));
    }
  }
  auto& notes = options.notes;
  notes.erase(std::unique(notes.begin(), notes.end()), notes.end());
}

}  // namespace

std::vector<OptionRow> memory_proportion_rows() {
  return {file_key(std::string{kProportion}, "LIST", "0.6",
                   "Fraction of a tile's memory that the temporaries of a convolution or matmul may use: one number, "
                   "or one per IPU, such as 0.15 0.25; also convolutions=X, matmuls=X, ipu1=X, stage2=X and "
                   "stage2.matmuls=X. A stage takes precedence over an IPU",
                   Everywhere<Proportion>{}, replaces(proportions)),
          repeated_key(kProportionOperators, "REGEX=X",
                       "Proportion X for operators whose output tensor's name matches REGEX, and for their gradients; "
                       "overrides all other proportions. Several REGEX=X are separated by blanks",
                       ByOperator<Proportion>{}, adds(proportions))};
}

std::vector<OptionRow> partials_rows() {
  return {file_key(std::string{kPartials}, "LIST", word_of(Precision{}),
                   "With half precision, type of the partial sums of convolutions and matmuls: float or half, or one "
                   "per IPU; also convolutions=TYPE, matmuls=TYPE, ipu1=TYPE, stage2=TYPE and stage2.matmuls=TYPE",
                   Everywhere<PartialSums>{}, replaces(partials)),
          repeated_key(kPartialsOperators, "REGEX=TYPE",
                       "Partial sums of type TYPE for operators whose output tensor's name matches REGEX, and for "
                       "their gradients; overrides all other types. Several REGEX=TYPE are separated by blanks",
                       ByOperator<PartialSums>{}, adds(partials))};
}

std::vector<OptionRow> serialisation_rows() {
  return {
      file_key("model.embedding-serialisation-factor", "N", "1",
               "Compute the gradient of the largest embedding table, and the output projection of the same size "
               "with its gradients, in N slices of the vocabulary, one after the other, so that the gradients of "
               "only one slice are live at a time. Like optimum-graphcore's embedding_serialization_factor; losses "
               "may differ in their last bits",
               Integer{1, 4096}),
      repeated_key("model.serialised-matmuls", "REGEX=N",
                   "Compute dense layers whose output tensor's name matches REGEX, and their gradients, in N "
                   "slices of the output channels, like PopTorch's serializedMatMul in mode OutputChannels. "
                   "Separate several settings with blanks",
                   ByOperator<Slices>{}, adds(serialised)),
      repeated_key("model.serialised-sequence", "REGEX=N",
                   "Compute dense layers whose output tensor's name matches REGEX in N slices of the sequence, like "
                   "PopTorch's serializedMatMul in mode InputChannels. If a cross-entropy is all that reads the "
                   "output, it is cut, too. Separate several settings with blanks",
                   ByOperator<Slices>{}, adds(serialised_sequence))};
}

Status check_products(Options& options) {
  POPRUN_TRY(check_partials(options));
  POPRUN_TRY(check_ipus(options, kPartials, partials(options), word_of(Precision{})));
  POPRUN_TRY(check_ipus(options, kProportion, proportions(options), "0.6"));
  note_small_proportions(options);
  return {};
}

}  // namespace poprun::launcher
