#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

#include "hostio/datasets/dataset.h"
#include "hostio/datasets/token_windows.h"
#include "hostio/formats/open_file.h"

/// "tokens:FILE" and "tokens-u32:FILE": a file of little-endian token ids of 16 or 32 bits, with or without the header
/// of llm.c. With ",test=FILE", a second file is used for testing. The vocabulary is the largest id plus one, so a
/// description reads every file to its end. llm.c (https://github.com/karpathy/llm.c, dev/data/data_common.py) writes
/// 256 integers of 32 bits before the tokens: a magic number, a version, the number of tokens, and zeros.
namespace poprun::hostio::families {
namespace {

constexpr std::string_view kShort = "tokens:";
constexpr std::string_view kLong = "tokens-u32:";

constexpr std::uint64_t kHeaderBytes = 1024;

/// A kind of llm.c file, identified by its first number.
struct LlmcFile {
  std::uint32_t magic;
  std::uint32_t version;
  unsigned width;  ///< Bytes per token; 0 if the file has no tokens.
  std::string_view what;
};

constexpr std::array kLlmcFiles = {
    LlmcFile{20240520, 1, 2, "GPT-2 tokens"},  LlmcFile{20240801, 7, 4, "Llama 3 tokens"},
    LlmcFile{20240522, 1, 0, "an evaluation"}, LlmcFile{20240326, 0, 0, "a model's weights"},
    LlmcFile{20240327, 0, 0, "a debug state"},
};

/// A different file format: its first bytes, and what to do with such a file.
struct OtherFile {
  std::string_view begin;
  std::string_view remedy;
};

constexpr std::array kOtherFiles = {
    OtherFile{"\x93NUMPY", "is a NumPy array; use data.source = npy:tokens=FILE,labels=FILE"},
    OtherFile{"PK\x03\x04", "is a zip archive; use data.source = npz:FILE if NumPy wrote it"},
    OtherFile{"\x1F\x8B\x08", "is compressed with gzip; decompress it first"},
};

std::uint32_t word(const std::vector<std::byte>& bytes, std::size_t index) {
  std::uint32_t value = 0;
  std::memcpy(&value, bytes.data() + index * sizeof(value), sizeof(value));
  return value;
}

/// Returns the size of the file's header in bytes, or 0 if the file has no header. `width` is the width of the
/// requested tokens.
Result<std::uint64_t> header_bytes(const std::vector<std::byte>& begin, std::uint64_t file_bytes, unsigned width,
                                   const std::string& source) {
  const std::string_view text(reinterpret_cast<const char*>(begin.data()), begin.size());
  for (const OtherFile& other : kOtherFiles) {
    if (text.starts_with(other.begin)) {
      return fail(ErrorCode::kData, fmt::format("{}: the file {}", source, other.remedy));
    }
  }
  const auto* const known =
      begin.size() < kHeaderBytes ? kLlmcFiles.end() : std::ranges::find(kLlmcFiles, word(begin, 0), &LlmcFile::magic);
  if (known == kLlmcFiles.end()) {
    return 0;
  }
  const std::string what =
      fmt::format("{}: the file has the header of llm.c for {} (magic {})", source, known->what, known->magic);
  if (known->width != width) {
    return fail(ErrorCode::kData, known->width == 0
                                      ? fmt::format("{}, not for tokens; use the .bin files of llm.c's dev/data", what)
                                      : fmt::format("{}, {} bits each; use data.source = {}FILE", what,
                                                    8 * known->width, known->width == 2 ? kShort : kLong));
  }
  if (word(begin, 1) != known->version) {
    return fail(ErrorCode::kData, fmt::format("{}: the version must be {}, but it is {}; write the file again", what,
                                              known->version, word(begin, 1)));
  }
  const std::uint64_t needed = std::uint64_t{word(begin, 2)} * width;
  if (file_bytes - kHeaderBytes != needed) {
    return fail(ErrorCode::kData, fmt::format("{}: expected {} bytes for its {} tokens, found {}; write the file again",
                                              what, needed, word(begin, 2), file_bytes - kHeaderBytes));
  }
  return kHeaderBytes;
}

std::uint32_t largest_id(const Tokens& tokens) {
  std::uint32_t largest = 0;
  for (std::size_t at = 0; at < tokens.bytes.size(); at += tokens.width) {
    std::uint32_t id = 0;
    std::memcpy(&id, tokens.bytes.data() + at, tokens.width);
    largest = std::max(largest, id);
  }
  return largest;
}

/// Reads a file; messages call it `place`.
Result<Tokens> read_file(const std::string& file, unsigned width, const std::string& place, const FileScope& scope) {
  Tokens tokens;
  tokens.width = width;
  POPRUN_ASSIGN(const auto begin, read_bytes(file, scope, kHeaderBytes));
  POPRUN_ASSIGN(const OpenFile opened, OpenFile::open(file, scope));
  POPRUN_ASSIGN(const std::uint64_t header, header_bytes(begin, opened.size(), tokens.width, place));
  POPRUN_ASSIGN(tokens.bytes, read_bytes(file, scope, kWholeFile, header));
  if (tokens.bytes.size() % tokens.width != 0) {
    return fail(ErrorCode::kData,
                fmt::format("{}: the size must be a multiple of {} bytes, the size of a token, but it is {} bytes",
                            place, tokens.width, tokens.bytes.size()));
  }
  const std::uint32_t largest = largest_id(tokens);
  if (largest >= (1U << 31) - 2) {
    return fail(ErrorCode::kData,
                fmt::format("{}: token ids must be below {}, but one is {}", place, (1U << 31) - 2, largest));
  }
  tokens.facts = {.count = tokens.bytes.size() / tokens.width, .vocabulary = largest + 1};
  return tokens;
}

Result<Tokens> read_tokens(const Source& source) {
  const std::string_view prefix = source.text.starts_with(kShort) ? kShort : kLong;
  return read_token_files(source, prefix, [&](const std::string& file) {
    return read_file(file, prefix == kShort ? 2 : 4, fmt::format("{}{}", prefix, file), source.scope);
  });
}

}  // namespace

const DatasetFamily& tokens() {
  static constexpr DatasetFamily kFamily = {
      .form = "tokens:FILE, tokens-u32:FILE",
      .parameters = kTokenParameters,
      .stored = {},
      .accepts = [](std::string_view text) { return text.starts_with(kShort) || text.starts_with(kLong); },
      .describe = [](const Source& source) -> Result<proto::Dataset> {
        POPRUN_ASSIGN(const Tokens tokens, read_tokens(source));
        return describe_token_windows(tokens.facts, source, source.text);
      },
      .read = [](const Source& source) -> Result<std::shared_ptr<const Stored>> {
        POPRUN_ASSIGN(Tokens tokens, read_tokens(source));
        return stored_tokens(std::move(tokens), source.text);
      },
  };
  return kFamily;
}

}  // namespace poprun::hostio::families
