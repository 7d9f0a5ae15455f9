#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hostio/datasets/dataset.h"
#include "hostio/datasets/source.h"
#include "replica/base/error.h"

/// Language-model samples cut from one long sequence of tokens.
///
///   T  sequence length    M  masks per sequence
///
/// The last tokens are for testing: those of the source's test part or, without one, the last 5 %. Each part is cut
/// into windows of T tokens from its beginning; an incomplete last window is dropped.
///
///   task=next-token   tokens i32[T], labels i32[T]: label t is token t + 1 of the long sequence.
///   task=masked-lm    tokens i32[T], segments i32[T] (0), positions i32[M], labels i32[M],
///                     next_sentence i32 (-1: none).
///   task=question-answering
///                     tokens i32[T], segments i32[T], labels i32[2]: the first and the last position of the answer.
///
/// masked-lm follows Devlin et al., "BERT", arXiv:1810.04805, section 3.1: each epoch draws M positions per window. Of
/// the tokens at these positions, 80 % become the mask token, 10 % a random token, and 10 % stay unchanged. `positions`
/// lists the positions in ascending order, and `labels` their original tokens. Windows contain neither [CLS] nor [SEP].
/// The draw is a function of (seed, epoch, split, item); evaluation always uses the draw of epoch 0.
///
/// question-answering turns any tokens into a task with the tensors of SQuAD. The question is token 0, which becomes a
/// copy of the token at a random position of the window (drawn as for masked-lm); its segment is 0. The rest of the
/// window, segment 1, is the text. The answer begins at the first occurrence of the question in the text, and ends at
/// the last one.
///
/// Parameters of the source: task (next-token), sequence-length (128), masks (15 % of T, rounded up), mask-token (the
/// first id that the data does not use).
namespace poprun::hostio {

/// The source parameters, for DatasetFamily::parameters.
inline constexpr std::array<std::string_view, 4> kTokenParameters = {"task", "sequence-length", "masks", "mask-token"};

/// Properties of a sequence of tokens that its description includes.
struct TokenFacts {
  std::uint64_t count = 0;                       ///< Number of tokens in both parts.
  std::optional<std::uint64_t> test_count = {};  ///< Number of tokens in the test part, if the source has one.
  std::uint32_t vocabulary = 0;                  ///< All ids are below this number.
  std::uint32_t specials = 0;  ///< Number of ids, starting at `vocabulary`, that masking uses; the last is the mask.
};

struct Tokens {
  TokenFacts facts;
  std::vector<std::byte> bytes;  ///< facts.count little-endian integers.
  unsigned width = 1;            ///< Bytes per token: 1, 2 or 4.
};

/// Reads the tokens of a source whose text is `prefix` followed by "TRAIN" or "TRAIN,test=TEST". `read` reads one file;
/// all files have the same width. Errors: those of `read` and of check_room (open_file.h).
Result<Tokens> read_token_files(const Source& source, std::string_view prefix,
                                const std::function<Result<Tokens>(const std::string& file)>& read);

/// Describes the dataset made of `tokens`, which messages call `name`. Errors: kUsage if a parameter is out of range;
/// kData if the tokens do not fill one window in each part.
Result<proto::Dataset> describe_token_windows(const TokenFacts& tokens, const Source& source, std::string_view name);

/// Returns the tokens as stored data, whose view() has the errors of describe_token_windows.
std::shared_ptr<const Stored> stored_tokens(Tokens tokens, std::string_view name);

}  // namespace poprun::hostio
