#include "hostio/datasets/dataset.h"
#include "hostio/datasets/token_windows.h"
#include "hostio/formats/open_file.h"

/// "text:FILE" and "text:TRAIN,test=TEST": any files as tokens, one per byte. Ids 0 to 255 are the bytes, and id 256 is
/// the mask token.
namespace poprun::hostio::families {
namespace {

constexpr std::string_view kTextPrefix = "text:";

Result<Tokens> read_text(const Source& source) {
  return read_token_files(source, kTextPrefix, [&](const std::string& file) -> Result<Tokens> {
    POPRUN_ASSIGN(std::vector<std::byte> bytes, read_bytes(file, source.scope));
    const TokenFacts facts{.count = bytes.size(), .vocabulary = 256, .specials = 1};
    return Tokens{.facts = facts, .bytes = std::move(bytes), .width = 1};
  });
}

}  // namespace

const DatasetFamily& text() {
  static constexpr DatasetFamily kFamily = {
      .form = "text:FILE",
      .parameters = kTokenParameters,
      .stored = {},
      .accepts = [](std::string_view text) { return text.starts_with(kTextPrefix); },
      .describe = [](const Source& source) -> Result<proto::Dataset> {
        POPRUN_ASSIGN(const Tokens tokens, read_text(source));
        return describe_token_windows(tokens.facts, source, source.text);
      },
      .read = [](const Source& source) -> Result<std::shared_ptr<const Stored>> {
        POPRUN_ASSIGN(Tokens tokens, read_text(source));
        return stored_tokens(std::move(tokens), source.text);
      },
  };
  return kFamily;
}

}  // namespace poprun::hostio::families
