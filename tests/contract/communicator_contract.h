#pragma once

#include <vector>

#include "tests/contract/background.h"
#include "tests/contract/failures.h"
#include "tests/contract/groups.h"
#include "tests/contract/movements.h"
#include "tests/contract/reductions.h"
#include "tests/contract/sentence.h"

/// Requirements on every Communicator, whichever transport carries the bytes. tests/unit/collectives runs these
/// sentences on threads, tests/mpi on processes; a new transport is finished when it passes them.
namespace poprun::contract {

/// Requirements on each single channel: the world and every group.
inline std::vector<Sentence> channel_sentences() {
  std::vector<Sentence> sentences(kReductions.begin(), kReductions.end());
  sentences.insert(sentences.end(), kMovements.begin(), kMovements.end());
  sentences.insert(sentences.end(), kBackground.begin(), kBackground.end());
  return sentences;
}

/// Requirements on several channels together.
inline std::vector<Sentence> group_sentences() {
  return {kGroups.begin(), kGroups.end()};
}

/// These need a world with a deadline below a second or two and one replica per process.
inline std::vector<Sentence> failure_sentences() {
  std::vector<Sentence> sentences(kFailures.begin(), kFailures.end());
  sentences.insert(sentences.end(), kGroupFailures.begin(), kGroupFailures.end());
  sentences.insert(sentences.end(), kBackgroundFailures.begin(), kBackgroundFailures.end());
  return sentences;
}

}  // namespace poprun::contract
