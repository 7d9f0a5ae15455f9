#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "proto/host_streams.pb.h"
#include "replica/base/error.h"

/// Decides which items are in batch k of replica r: a pure function of the Selection, the number of items and k
/// (ARCHITECTURE, law 6). It has no state, no cache and no dependency on gRPC, so replicas also use it to count steps.
///
///   one training step, 2 replicas, 2 micro-batches per step, micro-batch m of replica r:
///
///   epoch's permutation  | m0 r0 | m0 r1 | m1 r0 | m1 r1 | next step ...     | rest is left out
///                        |<- micro-batch->                |                  |<- of this epoch ->
///                        |<------- global batch --------->|
///
/// A sequential Selection takes the items in the dataset's order instead of a permutation. With G items in a global
/// batch and b in a micro-batch, global batch s of an epoch contains the items s * G to (s + 1) * G - 1. Within it,
/// micro-batch m of replica r contains the b items starting at (m * replicas + r) * b.
///
/// An evaluation covers each test item, or each training item, once: batch k of replica r contains the b items starting
/// at (k * replicas + r) * b. After the last item, batches are padded with the first items, which do not count again.
namespace poprun::hostio {

/// Number of global batches in one epoch; items left over after the last complete one are left out. Errors: kUsage if a
/// count of the Selection is zero, or the items do not fill one global batch.
Result<std::uint64_t> steps_per_epoch(std::uint64_t items, const proto::Selection& selection);

/// Number of batches that each replica needs in one evaluation for all replicas together to cover each item once.
/// Errors: kUsage if a count of the Selection is zero.
Result<std::uint64_t> evaluation_batches(std::uint64_t items, const proto::Selection& selection);

/// Up to this many items, every order of an epoch is equally likely. Above this, a Feistel network draws the order; it
/// can produce only a small fraction of all orders, but shows no bias in tests of a few positions.
inline constexpr std::uint64_t kShuffledMax = 1024;

/// Permutes 0..items-1 for one epoch by Fisher-Yates shuffle. Requires: items <= kShuffledMax. Cost: ~20 ns per item.
std::vector<std::uint64_t> shuffled(std::uint64_t key, std::uint64_t epoch, std::uint64_t items);

/// Returns the item at `position` of one epoch's permutation of 0..items-1, a bijection for each (key, epoch).
/// Requires: position < items <= 2^62. Cost: that of `shuffled` for few items, else about 0.2 us and at worst 0.8 us.
std::uint64_t permuted(std::uint64_t key, std::uint64_t epoch, std::uint64_t items, std::uint64_t position);

/// The batches of one Selection over a split of `items` items. A value; any thread may use it.
class Sampler {
 public:
  /// Number of batches in training, which never ends.
  static constexpr std::uint64_t kEndless = std::numeric_limits<std::uint64_t>::max();

  /// Errors: kUsage if the Selection is invalid; the message names the field and the reason.
  static Result<Sampler> make(const proto::Selection& selection, std::uint64_t items);

  /// Number of batches: evaluation_batches(), or kEndless.
  [[nodiscard]] std::uint64_t batch_count() const { return batch_count_; }

  [[nodiscard]] std::uint32_t micro_batch_size() const { return selection_.micro_batch_size(); }

  /// The seed and epoch that the dataset needs for batch `sequence` besides its items (dataset.h, Sample).
  [[nodiscard]] std::uint64_t seed() const { return selection_.seed(); }
  [[nodiscard]] std::uint64_t epoch_of(std::uint64_t sequence) const {
    return training_ ? sequence / selection_.micro_batches_per_step() / steps_per_epoch_ : 0;
  }

  /// Writes the items of batch `sequence`, with padding last, and returns how many of them are not padding. Requires:
  /// sequence < batch_count(), items.size() == micro_batch_size().
  std::size_t items_of(std::uint64_t sequence, std::span<std::uint64_t> items) const;

 private:
  Sampler() = default;

  proto::Selection selection_;
  bool training_ = false;
  std::uint64_t key_ = 0;
  std::uint64_t items_ = 0;
  std::uint64_t batch_count_ = 0;
  std::uint64_t steps_per_epoch_ = 0;
};

}  // namespace poprun::hostio
