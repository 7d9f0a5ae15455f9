#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "hostio/datasets/dataset.h"
#include "hostio/datasets/token_windows.h"
#include "hostio/formats/file_bytes.h"

/// "tokens:FILE" and "tokens-u32:FILE": a file of nothing but token ids, little-endian, 16 or 32
/// bits each. The vocabulary is the largest id plus one, so a description reads the whole file.
namespace poprun::hostio::families {
namespace {

constexpr std::string_view kShort = "tokens:";
constexpr std::string_view kLong = "tokens-u32:";

std::uint32_t largest_id(const Tokens& tokens) {
  std::uint32_t largest = 0;
  for (std::size_t at = 0; at < tokens.bytes.size(); at += tokens.width) {
    std::uint32_t id = 0;
    std::memcpy(&id, tokens.bytes.data() + at, tokens.width);
    largest = std::max(largest, id);
  }
  return largest;
}

Result<Tokens> read_tokens(const Source& source) {
  const std::string_view prefix = source.text.starts_with(kShort) ? kShort : kLong;
  Tokens tokens;
  tokens.width = prefix == kShort ? 2 : 4;
  POPRUN_ASSIGN(tokens.bytes, read_bytes(source.text.substr(prefix.size()), source.scope));
  if (tokens.bytes.size() % tokens.width != 0) {
    return fail(ErrorCode::kData,
                fmt::format("{}: needed a multiple of {} bytes, the size of a token, had {} bytes",
                            source.text, tokens.width, tokens.bytes.size()));
  }
  const std::uint32_t largest = largest_id(tokens);
  if (largest >= (1U << 31) - 2) {
    return fail(ErrorCode::kData, fmt::format("{}: needed token ids below {}, had {}", source.text,
                                              (1U << 31) - 2, largest));
  }
  tokens.vocabulary = largest + 1;
  return tokens;
}

}  // namespace

const DatasetFamily& tokens() {
  static constexpr DatasetFamily kFamily = {
      .form = "tokens:FILE (16 bits per token), tokens-u32:FILE",
      .parameters = kTokenParameters,
      .accepts =
          [](std::string_view text) { return text.starts_with(kShort) || text.starts_with(kLong); },
      .describe = [](const Source& source) -> Result<proto::Dataset> {
        POPRUN_ASSIGN(const Tokens tokens, read_tokens(source));
        return describe_token_windows(tokens, source, source.text);
      },
      .load = [](const Source& source) -> Result<std::unique_ptr<Dataset>> {
        POPRUN_ASSIGN(Tokens tokens, read_tokens(source));
        return make_token_windows(std::move(tokens), source, source.text);
      },
  };
  return kFamily;
}

}  // namespace poprun::hostio::families
