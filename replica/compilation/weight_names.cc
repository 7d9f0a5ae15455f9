#include "replica/compilation/weight_names.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "replica/base/text.h"

namespace poprun {
namespace {

constexpr const char* kOption = "model.initial-weights";

/// Names of the tensor that the embedding and the head share.
constexpr std::array<std::string_view, 6> kEmbedding = {"lm_head.weight",      "wte.weight",
                                                        "embed_tokens.weight", "word_embeddings.weight",
                                                        "shared.weight",       "predictions.decoder.weight"};
constexpr std::array<std::string_view, 2> kHeadBias = {"predictions.bias", "predictions.decoder.bias"};

/// Buffers that models compute themselves, but that Hugging Face's files may contain.
constexpr std::array<std::string_view, 5> kBuffers = {"position_ids", "token_type_ids", "masked_bias", "inv_freq",
                                                      "num_batches_tracked"};

/// Returns whether the name is `suffix`, or ends in the components of `suffix`.
bool ends_in(std::string_view name, std::string_view suffix) {
  return name.ends_with(suffix) && (name.size() == suffix.size() || name[name.size() - suffix.size() - 1] == '.');
}

bool any_ends(std::string_view name, std::span<const std::string_view> suffixes) {
  return std::ranges::any_of(suffixes, [&](std::string_view s) { return ends_in(name, s); });
}

bool tied(std::string_view a, std::string_view b) {
  return (any_ends(a, kEmbedding) && any_ends(b, kEmbedding)) || (any_ends(a, kHeadBias) && any_ends(b, kHeadBias));
}

/// Returns the name that newer versions use: "x.weight" for "x.gamma".
std::string modern(const std::string& name) {
  for (const auto& [old, now] : {std::pair{"gamma", "weight"}, std::pair{"beta", "bias"}}) {
    if (ends_in(name, old)) {
      return name.substr(0, name.size() - std::string_view(old).size()) + now;
    }
  }
  return name;
}

bool is_buffer(const std::string& name, const FileTensor& tensor) {
  const bool causal_mask = ends_in(name, "attn.bias") && tensor.shape.size() == 4;
  return causal_mask || any_ends(name, kBuffers);
}

bool is_float(const FileTensor& tensor) {
  constexpr std::array<std::string_view, 4> kFloats = {"f32", "f16", "bf16", "f64"};
  return std::ranges::find(kFloats, tensor.type) != kFloats.end();
}

/// A prefix that is added to the file's names, or removed from them.
struct PrefixRule {
  bool add = false;
  std::string prefix;

  friend auto operator<=>(const PrefixRule&, const PrefixRule&) = default;
};

/// The matches of a rule: names of weights, each with the modern name of its tensor in the file.
struct Matched {
  std::map<std::string, std::string> names;
  std::size_t fitting = 0;  ///< Matches with the same shape.
};

/// Returns whether `a` and `b` match the same weight or the same tensor.
bool share_a_name(const Matched& a, const Matched& b) {
  return std::ranges::any_of(a.names, [&](const auto& mine) {
    return std::ranges::any_of(
        b.names, [&](const auto& other) { return mine.first == other.first || mine.second == other.second; });
  });
}

class Matcher {
 public:
  Matcher(const std::vector<WantedWeight>& wanted, const FileTensors& file) : file_(file) {
    for (const WantedWeight& weight : wanted) {
      missing_[weight.name] = weight.shape;
    }
    count_ = missing_.size();
    for (const auto& [name, tensor] : file) {
      const std::string now = modern(name);
      unused_[file.contains(now) || wants(name) ? name : now] = name;
      if (!is_buffer(name, tensor)) {
        ++tensors_;
      }
    }
  }

  Result<WeightMatch> match(const MatchOptions& options) {
    note_old_names();
    match_own_names();
    while (match_prefix()) {
    }
    match_tied();
    POPRUN_TRY(check_copies());
    note_left_out();
    if (options.may_lack) {
      leave_other_sizes(options);
    }
    POPRUN_TRY(check_missing(options));
    POPRUN_TRY(check_fits(options));
    return std::move(result_);
  }

 private:
  /// Adds a note. `what` is the note's code without "weights.".
  void note(std::string_view what, const std::string& text, std::vector<Fact> facts = {}) {
    result_.notes.push_back({fmt::format("weights.{}", what), fmt::format("{}: {}", kOption, text), std::move(facts)});
  }

  /// Returns whether a weight has this name, with or without a prefix: layer scale, for example, is also called gamma.
  [[nodiscard]] bool wants(const std::string& name) const {
    return missing_.contains(name) || std::ranges::any_of(missing_, [&](const auto& weight) {
             return !file_.contains(weight.first) && (ends_in(weight.first, name) || ends_in(name, weight.first));
           });
  }

  /// Assigns the tensor of the file whose modern name is `now` to the weight.
  void take(const std::string& weight, const std::string& now) {
    shapes_[weight] = missing_.at(weight);
    result_.sources[weight] = unused_.at(now);
    unused_.erase(now);
    missing_.erase(weight);
  }

  void match_own_names() {
    for (const auto& [weight, shape] : std::map(missing_)) {
      if (unused_.contains(weight)) {
        take(weight, weight);
      }
    }
  }

  void note_old_names() {
    std::size_t count = 0;
    std::string example;
    for (const auto& [now, name] : unused_) {
      if (now != name) {
        ++count;
        example = example.empty() ? name : example;
      }
    }
    if (count > 0) {
      note("gamma-beta",
           fmt::format("gamma and beta are read as weight and bias in {}, for example '{}'", counted(count, "name"),
                       example),
           {{"names", count}});
    }
  }

  /// Returns every rule that matches something, with its matches.
  [[nodiscard]] std::map<PrefixRule, Matched> rules() const {
    std::map<PrefixRule, Matched> rules;
    for (const auto& [weight, shape] : missing_) {
      for (const auto& [now, name] : unused_) {
        const bool add = weight.size() > now.size();
        const std::string& whole = add ? weight : now;
        const std::string& part = add ? now : weight;
        if (whole.size() == part.size() || !ends_in(whole, part)) {
          continue;
        }
        Matched& matched = rules[{add, whole.substr(0, whole.size() - part.size())}];
        matched.names[weight] = now;
        if (file_.at(name).shape == shape) {
          ++matched.fitting;
        }
      }
    }
    return rules;
  }

  /// Applies the rule that fits the most weights. Returns false if no rule fits half of the model or of the file, as
  /// the prefix of a full model would, or if a rule that competes for the same names fits equally well.
  bool match_prefix() {
    const auto all = rules();
    const auto fitting = [](const auto& rule) { return rule.second.fitting; };
    const auto best = std::ranges::max_element(all, {}, fitting);
    if (best == all.end() || best->second.fitting == 0 || 2 * best->second.fitting < std::min(count_, tensors_)) {
      return false;
    }
    const auto rival = std::ranges::find_if(all, [&](const auto& other) {
      return other.first != best->first && fitting(other) == fitting(*best) && share_a_name(other.second, best->second);
    });
    if (rival != all.end()) {
      note("ambiguous-prefix",
           fmt::format("prefixes '{}' and '{}' match the names in the file equally well, so neither is used",
                       best->first.prefix, rival->first.prefix));
      return false;
    }
    const auto& [rule, matched] = *best;
    note("prefix",
         fmt::format("prefix '{}' {} {} in the file, for example '{}'", rule.prefix,
                     rule.add ? "added to" : "removed from", counted(matched.names.size(), "name"),
                     unused_.at(matched.names.begin()->second)),
         {{"prefix", rule.prefix}, {"names", matched.names.size()}});
    for (const auto& [weight, now] : matched.names) {
      take(weight, now);
    }
    return true;
  }

  /// Matches weights that the file contains only under the name of the weight to which they are tied.
  void match_tied() {
    for (const auto& [weight, shape] : std::map(missing_)) {
      const auto twin = std::ranges::find_if(unused_, [&, &weight = weight, &shape = shape](const auto& names) {
        return tied(weight, names.first) && file_.at(names.second).shape == shape;
      });
      const auto taken = std::ranges::find_if(shapes_, [&, &weight = weight, &shape = shape](const auto& known) {
        return tied(weight, known.first) && known.second == shape;
      });
      if (twin == unused_.end() && taken == shapes_.end()) {
        continue;
      }
      const std::string source = twin != unused_.end() ? twin->second : result_.sources.at(taken->first);
      note("tied", fmt::format("'{}' is tied to '{}' and gets its values", weight, source),
           {{"weight", weight}, {"source", source}});
      if (twin != unused_.end()) {
        take(weight, twin->first);
      } else {
        result_.sources[weight] = source;
        missing_.erase(weight);
      }
    }
  }

  /// Leaves out weights whose size differs, such as a new head. If most differ, the file belongs to a different model.
  void leave_other_sizes(const MatchOptions& options) {
    std::vector<std::string> others;
    for (const auto& [weight, shape] : shapes_) {
      if (file_.at(result_.sources.at(weight)).shape != shape) {
        others.push_back(weight);
      }
    }
    if (others.empty() || 2 * others.size() > shapes_.size()) {
      return;
    }
    const std::string& first = others.front();
    note("other-size",
         fmt::format("{} kept for {} whose size differs in the file, for example '{}' [{}], which is [{}] there",
                     options.otherwise, counted(others.size(), "weight"), first, fmt::join(shapes_.at(first), ","),
                     fmt::join(file_.at(result_.sources.at(first)).shape, ",")),
         {{"weights", others.size()}});
    for (const std::string& weight : others) {
      result_.absent.insert(weight);
      result_.sources.erase(weight);
      shapes_.erase(weight);
    }
  }

  [[nodiscard]] std::string size_remedy(const MatchOptions& options) const {
    return options.may_lack ? "; most weights differ in size: does the file belong to a different model?"
                            : "; if the weight belongs to a new head, model.initial-weights-partial = true keeps "
                              "its initialisation";
  }

  [[nodiscard]] Status check_fits(const MatchOptions& options) const {
    for (const auto& [weight, shape] : shapes_) {
      const std::string& name = result_.sources.at(weight);
      const FileTensor& tensor = file_.at(name);
      const std::string called = name == weight ? "" : fmt::format(" '{}'", name);
      if (tensor.shape != shape) {
        return fail(ErrorCode::kData,
                    fmt::format("{}: the model needs '{}' [{}], but the file has{} [{}]{}", kOption, weight,
                                fmt::join(shape, ","), called, fmt::join(tensor.shape, ","), size_remedy(options)));
      }
      if (!is_float(tensor)) {
        return fail(ErrorCode::kData, fmt::format("{}: '{}' has elements of type {}; weights must be F32, F16, BF16 or "
                                                  "F64",
                                                  kOption, name, tensor.type));
      }
    }
    return {};
  }

  /// Checks the second copies of tied weights in the file.
  Status check_copies() {
    for (const auto& [now, name] : std::map(unused_)) {
      const FileTensor& copy = file_.at(name);
      const auto first = std::ranges::find_if(
          shapes_, [&, &now = now](const auto& known) { return tied(now, known.first) && known.second == copy.shape; });
      if (first == shapes_.end()) {
        continue;
      }
      const std::string& source = result_.sources.at(first->first);
      if (file_.at(source).digest != copy.digest || file_.at(source).type != copy.type) {
        return fail(ErrorCode::kData, fmt::format("{}: '{}' and '{}' differ, but the model ties them; remove the wrong "
                                                  "one from the file",
                                                  kOption, name, source));
      }
      note("tied", fmt::format("'{}' equals '{}', to which the model ties it", name, source),
           {{"weight", name}, {"source", source}});
      unused_.erase(now);
    }
    return {};
  }

  void note_left_out() {
    std::vector<std::string> buffers;
    std::vector<std::string> others;
    for (const auto& [now, name] : unused_) {
      (is_buffer(name, file_.at(name)) ? buffers : others).push_back(name);
    }
    for (const auto& [names, what] : {std::pair{&buffers, "buffer"}, std::pair{&others, "tensor"}}) {
      if (!names->empty()) {
        note("ignored",
             fmt::format("ignored {} that the model {}, for example '{}'", counted(names->size(), what),
                         names == &buffers ? "computes itself" : "does not have", names->front()),
             {{"names", names->size()}});
      }
    }
  }

  Status check_missing(const MatchOptions& options) {
    if (missing_.empty()) {
      return {};
    }
    const auto& [name, shape] = *missing_.begin();
    if (options.may_lack && !result_.sources.empty()) {
      note("lacking",
           fmt::format("{} kept for {} that the file lacks, for example '{}'", options.otherwise,
                       counted(missing_.size(), "weight"), name),
           {{"weights", missing_.size()}});
      for (const auto& [weight, wanted] : missing_) {
        result_.absent.insert(weight);
      }
      return {};
    }
    return fail(
        ErrorCode::kData,
        fmt::format("{}: the model needs '{}' [{}], but the file has no tensor of that name ({} of "
                    "{} missing){}{}",
                    kOption, name, fmt::join(shape, ","), grouped(missing_.size()), counted(count_, "weight"),
                    near(name),
                    result_.sources.empty()
                        ? ""
                        : "; model.initial-weights-partial = true keeps the initialisation of missing weights"));
  }

  [[nodiscard]] std::string near(const std::string& weight) const {
    constexpr std::size_t kShown = 3;
    std::vector<std::string> names;
    for (const auto& [now, name] : unused_) {
      names.push_back(name);
    }
    if (const std::string one = nearest(weight, names); !one.empty()) {
      return fmt::format("; did you mean '{}' [{}]?", one, fmt::join(file_.at(one).shape, ","));
    }
    if (names.empty()) {
      return "";
    }
    const std::size_t more = names.size() - std::min(names.size(), kShown);
    names.resize(std::min(names.size(), kShown));
    return fmt::format("; available: {}{}", fmt::join(names, ", "),
                       more > 0 ? fmt::format(" and {} more", grouped(more)) : "");
  }

  const FileTensors& file_;
  std::map<std::string, Shape> missing_;       ///< Weights without a tensor, with their shapes.
  std::map<std::string, Shape> shapes_;        ///< Weights with a tensor of their own, with their shapes.
  std::map<std::string, std::string> unused_;  ///< Unmatched tensors, keyed by modern name.
  std::size_t count_ = 0;                      ///< Number of weights.
  std::size_t tensors_ = 0;                    ///< Tensors in the file, without buffers.
  WeightMatch result_;
};

}  // namespace

Result<WeightMatch> match_weights(const std::vector<WantedWeight>& wanted, const FileTensors& file,
                                  const MatchOptions& options) {
  return Matcher(wanted, file).match(options);
}

}  // namespace poprun
