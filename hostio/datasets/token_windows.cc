#include "hostio/datasets/token_windows.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "replica/base/random.h"

namespace poprun::hostio {
namespace {

constexpr std::uint64_t kSequenceMax = 1 << 16;

enum class Task : std::uint8_t { kNextToken, kMaskedLm, kQuestionAnswering };

constexpr std::array<std::string_view, 3> kTasks = {"next-token", "masked-lm", "question-answering"};

struct Windows {
  Task task = Task::kNextToken;
  std::uint32_t T = 0;
  std::uint32_t M = 0;  ///< Only for task masked-lm.
  std::uint32_t mask_token = 0;
  std::uint32_t classes = 0;
  std::uint64_t train_tokens = 0;  ///< Number of tokens before the test part.
  std::uint64_t train_items = 0;
  std::uint64_t test_items = 0;
};

/// Returns the number of windows of T tokens in a part. With next-token, a window's last label is the token after it.
std::uint64_t windows_in(std::uint64_t tokens, const Windows& windows) {
  const std::uint64_t beyond = windows.task == Task::kNextToken ? 1 : 0;
  return tokens > beyond ? (tokens - beyond) / windows.T : 0;
}

Result<Task> task_of(const Source& source) {
  const std::string name = source.parameter("task", std::string{kTasks[0]});
  const auto found = std::ranges::find(kTasks, name);
  if (found == kTasks.end()) {
    return fail(ErrorCode::kUsage,
                fmt::format("data.task = {} is not allowed; allowed: {}", name, fmt::join(kTasks, ", ")));
  }
  const Task task{static_cast<std::uint8_t>(found - kTasks.begin())};
  if (task != Task::kMaskedLm && (source.parameters.contains("masks") || source.parameters.contains("mask-token"))) {
    return fail(ErrorCode::kUsage,
                fmt::format("data.masks and data.mask-token need data.task = masked-lm, but it is {}", name));
  }
  return task;
}

/// Sets the fields that only masked-lm uses.
Status set_masks(const TokenFacts& tokens, const Source& source, Windows& windows) {
  const std::uint64_t usual = (std::uint64_t{windows.T} * 15 + 99) / 100;
  POPRUN_ASSIGN(const std::uint64_t masks, integer_parameter(source.parameters, "masks", usual, 1, windows.T));
  const std::uint64_t unused = std::uint64_t{tokens.vocabulary} + tokens.specials - (tokens.specials > 0 ? 1 : 0);
  POPRUN_ASSIGN(const std::uint64_t mask_token,
                integer_parameter(source.parameters, "mask-token", unused, 0, (1U << 31) - 2));
  windows.M = static_cast<std::uint32_t>(masks);
  windows.mask_token = static_cast<std::uint32_t>(mask_token);
  windows.classes = std::max(windows.classes, windows.mask_token + 1);
  return {};
}

Result<Windows> windows_of(const TokenFacts& tokens, const Source& source, std::string_view name) {
  Windows windows;
  POPRUN_ASSIGN(windows.task, task_of(source));
  const std::uint64_t least = windows.task == Task::kQuestionAnswering ? 2 : 1;
  POPRUN_ASSIGN(const std::uint64_t length,
                integer_parameter(source.parameters, "sequence-length", 128, least, kSequenceMax));
  windows.T = static_cast<std::uint32_t>(length);
  windows.classes = tokens.vocabulary;
  if (windows.task == Task::kMaskedLm) {
    windows.classes += tokens.specials;
    POPRUN_TRY(set_masks(tokens, source, windows));
  }
  const std::uint64_t test_tokens = tokens.test_count.value_or(tokens.count / 20);
  windows.train_tokens = tokens.count - test_tokens;
  windows.train_items = windows_in(windows.train_tokens, windows);
  windows.test_items = windows_in(test_tokens, windows);
  if (windows.train_items == 0 || windows.test_items == 0) {
    return fail(ErrorCode::kData,
                fmt::format("{}: {} tokens, of which the last {}{} are the test part, do not fill a sequence of {} "
                            "tokens in each part; lower data.sequence-length or use more text",
                            name, tokens.count, test_tokens, tokens.test_count ? "" : " (5 %)", windows.T));
  }
  return windows;
}

proto::Dataset description_of(const Windows& windows) {
  proto::Dataset description;
  add_tensor(description, "tokens", "i32", {windows.T});
  switch (windows.task) {
    case Task::kNextToken:
      add_tensor(description, "labels", "i32", {windows.T});
      break;
    case Task::kMaskedLm:
      add_tensor(description, "segments", "i32", {windows.T});
      add_tensor(description, "positions", "i32", {windows.M});
      add_tensor(description, "labels", "i32", {windows.M});
      add_tensor(description, "next_sentence", "i32", {});
      break;
    case Task::kQuestionAnswering:
      add_tensor(description, "segments", "i32", {windows.T});
      add_tensor(description, "labels", "i32", {2});
      description.set_label_classes(windows.T < windows.classes ? windows.T : 0);
      break;
  }
  description.set_train_items(windows.train_items);
  description.set_test_items(windows.test_items);
  description.set_classes(windows.classes);
  description.set_mean(0);
  description.set_deviation(1);
  return description;
}

class StoredTokens final : public Stored {
 public:
  StoredTokens(Tokens tokens, std::string_view name) : tokens_(std::move(tokens)), name_(name) {}

  [[nodiscard]] std::uint64_t bytes() const override { return tokens_.bytes.size(); }

  [[nodiscard]] Result<std::unique_ptr<Dataset>> view(const Source& source) const override;

  [[nodiscard]] const Tokens& tokens() const { return tokens_; }

 private:
  Tokens tokens_;
  std::string name_;
};

class TokenWindows final : public Dataset {
 public:
  TokenWindows(std::shared_ptr<const StoredTokens> stored, const Windows& windows)
      : Dataset(description_of(windows)), stored_(std::move(stored)), tokens_(stored_->tokens()), windows_(windows) {}

  Status read(const Sample& sample, int tensor, std::span<std::byte> destination) const override {
    POPRUN_CHECK(destination.size() == sample_bytes(description().tensors(tensor)));
    const std::vector<std::int32_t> values = windows_.task == Task::kNextToken  ? next_token(sample, tensor)
                                             : windows_.task == Task::kMaskedLm ? masked(sample, tensor)
                                                                                : question(sample, tensor);
    std::memcpy(destination.data(), values.data(), destination.size());
    return {};
  }

 private:
  /// Returns token `i` of the sequence.
  [[nodiscard]] std::int32_t token(std::uint64_t i) const {
    std::uint32_t value = 0;
    std::memcpy(&value, tokens_.bytes.data() + i * tokens_.width, tokens_.width);
    return static_cast<std::int32_t>(value);
  }

  /// Returns T tokens of the sample's window, starting at its token `first`.
  [[nodiscard]] std::vector<std::int32_t> window(const Sample& sample, std::uint64_t first) const {
    const std::uint64_t part = sample.split == proto::SPLIT_TEST ? windows_.train_tokens : 0;
    std::vector<std::int32_t> values(windows_.T);
    for (std::uint64_t t = 0; t < windows_.T; ++t) {
      values[t] = token(part + sample.item * windows_.T + first + t);
    }
    return values;
  }

  [[nodiscard]] std::vector<std::int32_t> next_token(const Sample& sample, int tensor) const {
    return window(sample, tensor == 0 ? 0 : 1);
  }

  [[nodiscard]] std::vector<std::int32_t> masked(const Sample& sample, int tensor) const {
    if (tensor == 1) {
      return std::vector<std::int32_t>(windows_.T, 0);
    }
    if (tensor == 4) {
      return {-1};
    }
    std::vector<std::int32_t> tokens = window(sample, 0);
    const std::vector<Mask> masks = draw(sample);
    std::vector<std::int32_t> slots(windows_.M);
    for (std::size_t k = 0; k < masks.size(); ++k) {
      slots[k] = tensor == 2 ? static_cast<std::int32_t>(masks[k].position) : tokens[masks[k].position];
      if (masks[k].replacement >= 0) {
        tokens[masks[k].position] = masks[k].replacement;
      }
    }
    return tensor == 0 ? tokens : slots;
  }

  [[nodiscard]] std::vector<std::int32_t> question(const Sample& sample, int tensor) const {
    std::vector<std::int32_t> tokens = window(sample, 0);
    const auto text = tokens.begin() + 1;
    if (tensor == 1) {
      tokens.front() = 0;
      std::fill(text, tokens.end(), 1);
      return tokens;
    }
    const bool is_test = sample.split == proto::SPLIT_TEST;
    const std::uint64_t key = random_key(sample.seed, is_test ? "test questions" : "train questions");
    tokens.front() = text[philox(key, sample.item, sample.epoch)[0] % (windows_.T - 1)];
    if (tensor == 0) {
      return tokens;
    }
    const auto first = std::find(text, tokens.end(), tokens.front()) - tokens.begin();
    const auto last = tokens.rend() - std::find(tokens.rbegin(), tokens.rend(), tokens.front()) - 1;
    return {static_cast<std::int32_t>(first), static_cast<std::int32_t>(last)};
  }

  struct Mask {
    std::uint32_t position;
    std::int32_t replacement;  ///< -1 if the token is kept.
  };

  /// Draws the positions, with the first steps of a Fisher-Yates shuffle, and then their replacements.
  [[nodiscard]] std::vector<Mask> draw(const Sample& sample) const {
    const std::uint64_t key = random_key(sample.seed, sample.split == proto::SPLIT_TEST ? "test masks" : "train masks");
    POPRUN_CHECK(windows_.M <= windows_.T);
    std::vector<std::uint32_t> positions(windows_.T);
    std::iota(positions.begin(), positions.end(), 0U);
    std::vector<Mask> masks;
    for (std::uint32_t k = 0; k < windows_.M; ++k) {
      const auto words = philox(key, sample.item, sample.epoch * kSequenceMax + k);
      std::swap(positions[k], positions[k + words[0] % (windows_.T - k)]);
      const float kind = unit_float(words[1]);
      masks.push_back({positions[k], kind < 0.8F   ? static_cast<std::int32_t>(windows_.mask_token)
                                     : kind < 0.9F ? static_cast<std::int32_t>(words[2] % tokens_.facts.vocabulary)
                                                   : -1});
    }
    std::ranges::sort(masks, {}, &Mask::position);
    return masks;
  }

  std::shared_ptr<const StoredTokens> stored_;  ///< Shared by the jobs that read from it.
  const Tokens& tokens_;                        ///< Tokens of `stored_`.
  Windows windows_;
};

Result<std::unique_ptr<Dataset>> StoredTokens::view(const Source& source) const {
  POPRUN_ASSIGN(const Windows windows, windows_of(tokens_.facts, source, name_));
  return std::make_unique<TokenWindows>(std::static_pointer_cast<const StoredTokens>(shared_from_this()), windows);
}

}  // namespace

Result<Tokens> read_token_files(const Source& source, std::string_view prefix,
                                const std::function<Result<Tokens>(const std::string& file)>& read) {
  const SplitNames files = split_names(std::string_view(source.text).substr(prefix.size()));
  POPRUN_ASSIGN(Tokens tokens, read(files.train));
  if (files.test) {
    POPRUN_ASSIGN(const Tokens test, read(*files.test));
    const std::size_t train_bytes = tokens.bytes.size();
    POPRUN_TRY(source.scope.resize(tokens.bytes, train_bytes + test.bytes.size(), source.text));
    std::ranges::copy(test.bytes, tokens.bytes.begin() + static_cast<std::ptrdiff_t>(train_bytes));
    tokens.facts.count += test.facts.count;
    tokens.facts.test_count = test.facts.count;
    tokens.facts.vocabulary = std::max(tokens.facts.vocabulary, test.facts.vocabulary);
  }
  return tokens;
}

Result<proto::Dataset> describe_token_windows(const TokenFacts& tokens, const Source& source, std::string_view name) {
  POPRUN_ASSIGN(const Windows windows, windows_of(tokens, source, name));
  return description_of(windows);
}

std::shared_ptr<const Stored> stored_tokens(Tokens tokens, std::string_view name) {
  return std::make_shared<StoredTokens>(std::move(tokens), name);
}

}  // namespace poprun::hostio
