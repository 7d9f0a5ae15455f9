#pragma once

#include "replica/program/program.h"

namespace poprun {

/// Replication analysis (XLA: HloReplicationAnalysis): finds what is equal on all replicas by construction, and marks
/// in the Program what the replicas of one host may therefore share. The marks change neither values, addresses nor
/// device times; without them, every replica computes and stores everything itself. `EqualValues` says what is equal.
///
///   Tensor.common          always live, equal whenever a step reads it, and written only by initialisers, by streams
///                          of weights, by divisible steps and by owners. Views of such a tensor are common, too.
///   Execute.divisible      an update (Operator::on_shards) in place, from equal operands, of common tensors alone:
///                          each replica can compute a part (owned_part) of the elements for all.
///   Tensor.owner           results of updates that sum over elements (LAMB, LARS, Adafactor) or are not elementwise
///                          (Muon): one replica of the host, the owner, computes them for all. The same replica
///                          computes copies of these weights, and what only it needs, such as norms.
///   AllReduce.divisible    reduced tensors that only divisible steps read, so that each replica needs only its own
///                          part, or only the steps of one owner (AllReduce.owners).
///   Step.completes         divisible tensors that no step names between this one, which runs once, and the all-reduce:
///                          they can be reduced, and the rest of them forgotten, while the backward pass goes on.
///
/// Not marked, so private: tensors off-chip, shards, the momentum of Muon, and what is rounded stochastically.
/// `verify_replication` (proofs/replication.h) checks the marks. Cost: a few passes over the steps, in which calls are
/// inlined.
void mark_replication(Program& program);

}  // namespace poprun
