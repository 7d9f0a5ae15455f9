#include "hostio/sampling/sampling.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "replica/base/random.h"

namespace poprun::hostio {
namespace {

Status check_positive(std::uint32_t value, const char* name) {
  if (value == 0) {
    return fail(ErrorCode::kUsage, fmt::format("selection: {} must be > 0, but it is 0", name));
  }
  return {};
}

Status check_counts(const proto::Selection& selection) {
  POPRUN_TRY(check_positive(selection.replica_count(), "replica_count"));
  POPRUN_TRY(check_positive(selection.micro_batch_size(), "micro_batch_size"));
  POPRUN_TRY(check_positive(selection.micro_batches_per_step(), "micro_batches_per_step"));
  return {};
}

/// Returns the number of samples that all replicas process at a time. The product of 32-bit factors cannot overflow.
std::uint64_t samples_at_once(const proto::Selection& selection) {
  return std::uint64_t{selection.replica_count()} * selection.micro_batch_size();
}

}  // namespace

Result<std::uint64_t> steps_per_epoch(std::uint64_t items, const proto::Selection& selection) {
  POPRUN_TRY(check_counts(selection));
  // Dividing twice equals dividing by the product, which might overflow.
  const std::uint64_t steps = items / selection.micro_batches_per_step() / samples_at_once(selection);
  if (steps == 0) {
    return fail(ErrorCode::kUsage, fmt::format("the dataset has {} training items, fewer than one global batch "
                                               "(replicas x samples x micro-batches = {} x {} x {}); use a smaller "
                                               "micro-batch-size, gradient-accumulation or number of replicas",
                                               items, selection.replica_count(), selection.micro_batch_size(),
                                               selection.micro_batches_per_step()));
  }
  return steps;
}

Result<std::uint64_t> evaluation_batches(std::uint64_t items, const proto::Selection& selection) {
  POPRUN_TRY(check_counts(selection));
  const std::uint64_t at_once = samples_at_once(selection);
  return items / at_once + (items % at_once != 0 ? 1 : 0);
}

std::vector<std::uint64_t> shuffled(std::uint64_t key, std::uint64_t epoch, std::uint64_t items) {
  POPRUN_CHECK(items <= kShuffledMax);
  std::vector<std::uint64_t> order(items);
  std::iota(order.begin(), order.end(), std::uint64_t{0});
  for (std::uint64_t left = items; left > 1; --left) {
    const auto words = philox(key, left, epoch);
    const std::uint64_t word = std::uint64_t{words[0]} << 32 | words[1];
    // Taking 64 random bits modulo `left` favours no item by more than 1 in 2^54.
    std::swap(order[left - 1], order[word % left]);
  }
  return order;
}

std::uint64_t permuted(std::uint64_t key, std::uint64_t epoch, std::uint64_t items, std::uint64_t position) {
  // A Feistel network permutes the smallest square of a power of two that holds all items; a value outside 0..items-1
  // is permuted again until it is inside, so the result stays a bijection. Black and Rogaway, "Ciphers with arbitrary
  // finite domains", CT-RSA 2002.
  constexpr unsigned kRounds = 8;
  POPRUN_CHECK(position < items);
  if (items <= kShuffledMax) {
    return shuffled(key, epoch, items)[position];
  }
  const auto half_bits = std::max<std::uint64_t>(1, (std::bit_width(items - 1) + 1) / 2);
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  std::uint64_t value = position;
  do {
    std::uint64_t left = value >> half_bits;
    std::uint64_t right = value & mask;
    for (unsigned round = 0; round < kRounds; ++round) {
      const std::uint64_t mixed = left ^ (philox(key, right, epoch * kRounds + round)[0] & mask);
      left = right;
      right = mixed;
    }
    value = (left << half_bits) | right;
  } while (value >= items);
  return value;
}

Result<Sampler> Sampler::make(const proto::Selection& selection, std::uint64_t items) {
  POPRUN_TRY(check_counts(selection));
  if (selection.replica() >= selection.replica_count()) {
    return fail(ErrorCode::kUsage, fmt::format("selection: replica must be < {}, but it is {}",
                                               selection.replica_count(), selection.replica()));
  }
  Sampler sampler;
  if (selection.split() == proto::SPLIT_TRAIN) {
    POPRUN_ASSIGN(sampler.steps_per_epoch_, hostio::steps_per_epoch(items, selection));
    sampler.training_ = true;
    sampler.batch_count_ = kEndless;
  } else if (selection.split() == proto::SPLIT_TEST || selection.split() == proto::SPLIT_TRAIN_ONCE) {
    POPRUN_ASSIGN(sampler.batch_count_, evaluation_batches(items, selection));
  } else {
    return fail(ErrorCode::kUsage,
                fmt::format("selection: split must be SPLIT_TRAIN, SPLIT_TEST or SPLIT_TRAIN_ONCE, but its value is {}",
                            static_cast<int>(selection.split())));
  }
  sampler.selection_ = selection;
  sampler.key_ = random_key(selection.seed(), "epoch permutation");
  sampler.items_ = items;
  return sampler;
}

std::size_t Sampler::items_of(std::uint64_t sequence, std::span<std::uint64_t> items) const {
  POPRUN_CHECK(sequence < batch_count_ && items.size() == micro_batch_size());
  const auto first_of = [&](std::uint64_t slot) {
    return (slot * selection_.replica_count() + selection_.replica()) * micro_batch_size();
  };
  if (!training_) {
    const std::uint64_t first = first_of(sequence);
    for (std::uint64_t j = 0; j < items.size(); ++j) {
      items[j] = (first + j) % items_;
    }
    return first < items_ ? std::min<std::uint64_t>(items.size(), items_ - first) : 0;
  }
  const std::uint64_t micro_batches = selection_.micro_batches_per_step();
  const std::uint64_t step = sequence / micro_batches;
  // Micro-batches continue through the permutation after those of the epoch's earlier steps.
  const std::uint64_t slot = (step % steps_per_epoch_) * micro_batches + sequence % micro_batches;
  const bool shuffles = !selection_.sequential() && items_ <= kShuffledMax;
  const std::vector<std::uint64_t> order =
      shuffles ? shuffled(key_, epoch_of(sequence), items_) : std::vector<std::uint64_t>{};
  for (std::uint64_t j = 0; j < items.size(); ++j) {
    const std::uint64_t position = first_of(slot) + j;
    items[j] = shuffles                  ? order[position]
               : selection_.sequential() ? position
                                         : permuted(key_, epoch_of(sequence), items_, position);
  }
  return items.size();
}

}  // namespace poprun::hostio
