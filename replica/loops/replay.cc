#include "replica/loops/replay.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "replica/base/sha256.h"
#include "replica/base/text.h"
#include "replica/machine/machine.h"
#include "replica/program/host_contract.h"

namespace poprun {
namespace {

constexpr std::size_t kSubjectsMax = 16;  ///< Differences for which a majority is asked.
constexpr std::string_view kAdvice =
    "test the memory and the processors there, then continue with --resume auto (--restarts does so by itself)";

std::string_view view_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Digest digest_of_bytes(std::span<const std::byte> bytes) {
  Sha256 sha;
  sha.add(view_of(bytes));
  Digest digest{};
  std::memcpy(digest.data(), sha.digest_bytes().data(), digest.size());
  return digest;
}

bool is_variable(const proto::Tensor& tensor) {
  return tensor.role() == proto::ROLE_PARAMETER || tensor.role() == proto::ROLE_OPTIMIZER_STATE ||
         tensor.role() == proto::ROLE_BUFFER;
}

tl::unexpected<Error> depends_on_all() {
  return fail(
      ErrorCode::kUsage,
      "--replay-every: all replicas share means in every micro-batch (model.norm-span), so no other replica can "
      "compute it again; use a smaller span, or leave it out");
}

/// Finds what a replay compares: walks the steps in the order in which they run.
class Planner {
 public:
  Planner(const Program& program, std::size_t replicas) : program_(program), replicas_(replicas) {
    for (int t = 0; t < program.tensors_size(); ++t) {
      const proto::Tensor& tensor = program.tensors(t);
      if (is_variable(tensor) && tensor.role() != proto::ROLE_BUFFER) {
        state_.insert(tensor.has_residence() ? tensor.residence().tensor() : static_cast<std::uint32_t>(t));
      }
    }
  }

  Result<ReplayPlan> plan(const proto::Function& train) {
    while (plan_.steps < static_cast<std::size_t>(train.steps_size()) &&
           !is_update(train.steps(static_cast<int>(plan_.steps)))) {
      POPRUN_TRY(visit(train.steps(static_cast<int>(plan_.steps))));
      ++plan_.steps;
    }
    for (const std::uint32_t number : mixed_) {
      plan_.compared.erase(number);
    }
    return std::move(plan_);
  }

 private:
  [[nodiscard]] const google::protobuf::RepeatedPtrField<proto::Step>& inner(const proto::Step& step) const {
    return step.has_call() ? find_function(program_, step.call().function())->steps() : step.repeat().steps();
  }

  /// Returns whether a step tells the host of its end, or changes weights or their state.
  [[nodiscard]] bool is_update(const proto::Step& step) const {
    const auto& steps = inner(step);
    return step.has_stream_out() ||
           std::any_of(steps.begin(), steps.end(), [&](const auto& s) { return is_update(s); }) ||
           std::ranges::any_of(tensors_of(step).writes, [&](std::uint32_t tensor) { return state_.contains(tensor); });
  }

  Status visit(const proto::Step& step) {
    if (step.has_gather_rows()) {
      return fail(
          ErrorCode::kUsage,
          "--replay-every: the contrastive loss of each micro-batch compares the samples of all replicas, so no "
          "replica can compute that of another; leave it out");
    }
    // The second round of a repeat may read what the first one mixed.
    for (std::uint32_t round = 0; round < std::min(std::max(step.repeat().count(), 1U), 2U); ++round) {
      for (const proto::Step& step_inside : inner(step)) {
        POPRUN_TRY(visit(step_inside));
      }
    }
    const std::size_t given = step.has_all_reduce() ? step.all_reduce().group() : step.reduce_scatter().group();
    const std::size_t group = given % replicas_;  // 0: all replicas.
    if (group > 0) {
      plan_.group = std::lcm(plan_.group, group);
    }
    const StepTensors tensors = tensors_of(step);
    const bool mixes = step.has_scatter_rows() || (group == 0 && (step.has_all_reduce() || step.has_reduce_scatter()));
    if (mixes && !has_mixed_ && std::ranges::any_of(tensors.reads, [&](auto id) { return is_of_forward_pass(id); })) {
      return depends_on_all();
    }
    has_mixed_ = has_mixed_ || mixes;
    const auto is_shard = [&](auto id) { return !program_.tensors(static_cast<int>(id)).shard_of().empty(); };
    const auto differs = [&](auto id) { return is_shard(id) || sums_.contains(id); };
    // Gathered tensors are equal on all replicas, although their shards differ.
    const bool is_mixed = mixes || std::ranges::any_of(tensors.writes, is_shard) ||
                          (!step.has_all_gather() && std::ranges::any_of(tensors.reads, differs));
    std::vector<std::uint32_t>& compared = plan_.compared[step.number()];
    compared.clear();
    for (const std::uint32_t tensor : tensors.writes) {
      if (is_mixed) {
        sums_.insert(tensor);
        mixed_.insert(step.number());
      } else if (!keeps_other_bytes(step, tensor)) {
        sums_.erase(tensor);
        if (!program_.tensors(static_cast<int>(tensor)).common()) {
          compared.push_back(tensor);
        }
      }
    }
    return {};
  }

  [[nodiscard]] bool is_of_forward_pass(std::uint32_t tensor) const {
    const proto::Role role = program_.tensors(static_cast<int>(tensor)).role();
    return role != proto::ROLE_GRADIENT && role != proto::ROLE_METRIC && role != proto::ROLE_BUFFER;
  }

  /// Returns whether a step writes only one entry of a tensor. The other entries may be older than this step.
  [[nodiscard]] bool keeps_other_bytes(const proto::Step& step, std::uint32_t tensor) const {
    return step.has_stash() || is_remote(program_.tensors(static_cast<int>(tensor)));
  }

  const Program& program_;
  std::size_t replicas_;
  ReplayPlan plan_;
  std::set<std::uint32_t> state_;  ///< Tensors that hold weights and their state between steps.
  bool has_mixed_ = false;         ///< Whether an exchange among all replicas was visited.
  std::set<std::uint32_t> sums_;   ///< Tensors whose values depend on all micro-batches, or on a replica's shards.
  std::set<std::uint32_t> mixed_;  ///< Steps that write such tensors.
};

}  // namespace

Result<ReplayPlan> plan_replay(const Program& program, std::size_t replicas) {
  POPRUN_ASSIGN(ReplayPlan plan,
                Planner(program, replicas).plan(*find_function(program, name_of(JobFunction::kTrain))));
  return plan.group < replicas ? Result<ReplayPlan>(std::move(plan)) : depends_on_all();
}

Digest ValueHashes::whole() const {
  return digest_of_bytes(std::as_bytes(std::span(hashes_)));
}

void ValueHashes::after(const proto::Step& step) {
  const auto found = plan_.compared.find(step.number());
  if (found == plan_.compared.end()) {
    return;
  }
  for (const std::uint32_t tensor : found->second) {
    hashes_.push_back(digest_of_bytes(engine_.inspect(tensor)));
    places_.push_back({tensor, engine_.micro_batch(), step.number()});
  }
}

Result<std::unique_ptr<Replay>> Replay::create(const Program& program, const LoopPorts& ports,
                                               const StatisticsBackup& statistics, std::uint64_t micro_batches,
                                               Serve serve) {
  POPRUN_ASSIGN(ReplayPlan plan, plan_replay(program, ports.communicator.size()));
  std::unique_ptr<Replay> replay(
      new Replay(program, std::move(plan), ports, statistics, micro_batches, std::move(serve)));
  POPRUN_ASSIGN(replay->host_, ports.communicator.group(Group::host()));
  std::uint32_t first = index_of(ports.communicator.self());
  POPRUN_TRY(replay->host_->broadcast(std::as_writable_bytes(std::span(&first, 1)), ReplicaId{0}, "first of the host"));
  replay->first_of_host_.resize(replay->replicas_);
  POPRUN_TRY(ports.communicator.all_gather(std::as_bytes(std::span(&first, 1)),
                                           std::as_writable_bytes(std::span(replay->first_of_host_)), "hosts"));
  return replay;
}

Replay::Replay(const Program& program, ReplayPlan plan, const LoopPorts& ports, const StatisticsBackup& statistics,
               std::uint64_t micro_batches, Serve serve)
    : program_(program),
      plan_(std::move(plan)),
      ports_(ports),
      statistics_(statistics),
      micro_batches_(micro_batches),
      serve_(std::move(serve)),
      self_(index_of(ports.communicator.self())),
      replicas_(ports.communicator.size()) {
  // Half the job away, a replica is on another host if there are several.
  const std::size_t groups = replicas_ / plan_.group;
  shift_ = plan_.group * (groups / 2);
  third_ = groups > 2 ? shift_ + plan_.group : shift_;
  for (int t = 0; t < program.tensors_size(); ++t) {
    const proto::Tensor& tensor = program.tensors(t);
    if (is_variable(tensor) && !is_remote(tensor) && tensor.shard_of().empty() &&
        (tensor.always_live() || tensor.has_residence())) {
      variables_.push_back(static_cast<std::uint32_t>(t));
    }
  }
}

std::size_t Replay::replayed_by(std::size_t subject, std::size_t shift) const {
  return (subject + replicas_ - shift) % replicas_;
}

Status Replay::run(Engine& engine, std::uint64_t step) {
  POPRUN_TRY(compare_state(engine, step));
  ValueHashes again(plan_, engine);
  POPRUN_TRY(rehearse(engine, step, shift_, again));
  ValueHashes own(plan_, engine);
  engine.add_observer(own);
  const EngineBreak before_update{plan_.steps, [&] {
                                    engine.remove_observer(own);
                                    return compare(engine, step, own, again);
                                  }};
  const Status ran = engine.run(name_of(JobFunction::kTrain), before_update);
  engine.remove_observer(own);
  if (ran) {
    ++replayed_;
  }
  return ran;
}

/// Computes the micro-batches of the replica `shift` replicas further on, from the state at the beginning of the step.
Status Replay::rehearse(Engine& engine, std::uint64_t step, std::size_t shift, ValueHashes& hashes) {
  const ReplicaId subject{static_cast<std::uint32_t>((self_ + shift) % replicas_)};
  const std::unique_ptr<HostStream> stream = ports_.peer_stream(subject, (step - 1) * micro_batches_);
  BatchWindow window(program_, JobStream::kTrain, *stream);
  window.begin();
  statistics_.restore(engine);
  serve_(&window);
  const Status ran = engine.rehearse(name_of(JobFunction::kTrain), plan_.steps, subject, hashes);
  serve_(nullptr);
  statistics_.restore(engine);
  return ran;
}

/// Compares what each replica computed with what another computed for it.
Status Replay::compare(Engine& engine, std::uint64_t step, const ValueHashes& own, const ValueHashes& again) {
  const std::array<Digest, 2> mine = {own.whole(), again.whole()};
  std::vector<std::array<Digest, 2>> all(replicas_);
  POPRUN_TRY(ports_.communicator.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)),
                                            "hashes of a replay"));
  std::vector<std::size_t> subjects;
  for (std::size_t subject = 0; subject < replicas_ && subjects.size() < kSubjectsMax; ++subject) {
    if (all[subject][0] != all[replayed_by(subject, shift_)][1]) {
      subjects.push_back(subject);
    }
  }
  if (subjects.empty()) {
    return {};
  }
  ValueHashes third(plan_, engine);
  POPRUN_TRY(rehearse(engine, step, third_, third));
  std::set<std::string> verdicts;
  for (const std::size_t subject : subjects) {
    POPRUN_ASSIGN(std::string text, verdict(subject, {&own, &again, &third}));
    verdicts.insert(std::move(text));
  }
  return fail_together(subjects.front(), fmt::format("silent data corruption in step {}: {}; {}", step,
                                                     fmt::join(verdicts, "; "), kAdvice));
}

/// Returns who is wrong about the micro-batches of a replica, and from which value on. Collective.
Result<std::string> Replay::verdict(std::size_t subject, const std::array<const ValueHashes*, 3>& hashes) {
  const std::array<std::size_t, 3> by = {subject, replayed_by(subject, shift_), replayed_by(subject, third_)};
  std::array<std::vector<Digest>, 3> found;
  for (std::size_t k = 0; k < by.size(); ++k) {
    found[k] = hashes[k]->hashes();  // All replicas compute equally many values.
    POPRUN_TRY(ports_.communicator.broadcast(std::as_writable_bytes(std::span(found[k])),
                                             ReplicaId{static_cast<std::uint32_t>(by[k])}, "hashes of values"));
  }
  std::size_t value = 0;
  while (value + 1 < found[0].size() && found[0][value] == found[1][value] && found[0][value] == found[2][value]) {
    ++value;
  }
  const std::string text = text_of(program_, hashes[0]->place(value));
  const bool first_pair = found[0][value] == found[1][value];
  const bool outer_pair = found[0][value] == found[2][value];
  const bool last_pair = found[1][value] == found[2][value];
  const auto wrong = [&](std::size_t who, std::size_t a, std::size_t b) {
    const std::string others = by[a] == by[b] ? fmt::format("replica {} computed it twice, with one result", by[a])
                                              : fmt::format("replicas {} and {} agree on another value", by[a], by[b]);
    return fmt::format("replica {} computed a wrong {}{} ({})", by[who], text,
                       by[who] == subject ? "" : fmt::format(" for replica {}", subject), others);
  };
  if (last_pair && !first_pair) {
    return wrong(0, 1, 2);
  }
  if (outer_pair && !first_pair) {
    return wrong(1, 0, 2);
  }
  if (first_pair && !outer_pair) {
    return wrong(2, 0, 1);
  }
  return fmt::format("replicas {}, {} and {} computed three different {}", by[0], by[1], by[2], text);
}

/// Lets one replica report the failure, and the others wait for the end of the job.
Status Replay::fail_together(std::size_t speaker, std::string message) {
  if (self_ != speaker) {
    POPRUN_TRY(ports_.communicator.barrier());
  }
  return fail(ErrorCode::kInfrastructure, std::move(message));
}

Status Replay::compare_state(const Engine& engine, std::uint64_t step) {
  const Digest none{};
  std::vector<Digest> mine(variables_.size(), none);
  for (std::size_t v = 0; v < variables_.size(); ++v) {
    const Engine::Resident resident = engine.resident(variables_[v]);
    const bool is_others = engine.is_shared(variables_[v]) && v % host_->size() != index_of(host_->self());
    if (!resident.is_shard && !is_others) {
      mine[v] = digest_of_bytes(resident.bytes);
    }
  }
  std::vector<Digest> all(mine.size() * replicas_);
  POPRUN_TRY(ports_.communicator.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)),
                                            "hashes of the state"));
  for (std::size_t v = 0; v < variables_.size(); ++v) {
    std::map<Digest, std::vector<std::size_t>> holders;
    for (std::size_t replica = 0; replica < replicas_; ++replica) {
      if (const Digest& digest = all[replica * mine.size() + v]; digest != none) {
        holders[digest].push_back(replica);
      }
    }
    if (holders.size() > 1) {
      return blame_holders(
          holders, engine.is_shared(variables_[v]),
          fmt::format("before step {}: '{}'", step, program_.tensors(static_cast<int>(variables_[v])).name()));
    }
  }
  return {};
}

/// Returns an error that names the replicas whose copies differ from the majority; without a majority, all replicas.
Status Replay::blame_holders(const std::map<Digest, std::vector<std::size_t>>& holders, bool is_shared,
                             const std::string& what) {
  const auto copies = [](const auto& holder) { return holder.second.size(); };
  const auto most = std::ranges::max_element(holders, {}, copies);
  const bool is_majority = std::ranges::count(holders, copies(*most), copies) == 1;
  std::vector<std::size_t> suspects;
  for (const auto& [digest, replicas] : holders) {
    if (!is_majority || digest != most->first) {
      suspects.insert(suspects.end(), replicas.begin(), replicas.end());
    }
  }
  std::vector<std::string> names;
  for (const std::size_t replica : suspects) {
    names.push_back(is_shared ? fmt::format("the host of replica {}", first_of_host_[replica])
                              : fmt::format("replica {}", replica));
  }
  return fail_together(suspects.front(),
                       fmt::format("silent data corruption {} {} {}{}; {}", what,
                                   is_majority ? "is wrong on" : "differs between", fmt::join(names, " and "),
                                   is_majority ? fmt::format(" ({} other copies agree)", copies(*most)) : "", kAdvice));
}

Note Replay::note(const Engine& engine) const {
  const bool has_one_image = host_->size() == replicas_ && std::ranges::any_of(variables_, [&](std::uint32_t variable) {
                               return engine.is_shared(variable);
                             });
  return {"corruption.none",
          fmt::format("in {}, other replicas computed every micro-batch again with the same SHA-256 for every value{}",
                      counted(replayed_, "step"),
                      has_one_image ? ", but nothing compares weights, which the replicas of this host share: use "
                                      "several hosts or --memory.private true"
                                    : ", and all copies of the weights were equal"),
          {{"steps", replayed_}}};
}

}  // namespace poprun
