#include "launcher/job/checkpoints.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <utility>

#include <asio/post.hpp>
#include <fmt/format.h>

#include "launcher/verdict/same_numerics.h"
#include "replica/base/rare.h"
#include "replica/base/text.h"

namespace poprun::launcher {
namespace {

namespace fs = std::filesystem;

constexpr double kBetweenNotesSeconds = 60;

constexpr const char* kAuto = "auto";

/// Returns the checkpoints to try for `--resume DIR`, in order: DIR itself and then the earlier checkpoints beside it
/// or, if DIR is not a checkpoint, the checkpoints in DIR.
std::vector<std::string> candidates(const std::string& folder) {
  const fs::path path = fs::path(folder).lexically_normal();
  fs::path named = path.has_filename() ? path : path.parent_path();
  std::error_code unused;
  if (const fs::path meant = fs::canonical(named, unused); step_of(named) == 0 && step_of(meant) > 0) {
    named = meant;  // Resolves a link such as latest -> step-20.
  }
  const std::uint64_t step = step_of(named);
  if (step > 0) {
    std::vector<std::string> all =
        checkpoints_in(named.has_parent_path() ? named.parent_path().string() : std::string("."));
    std::erase_if(all, [step](const std::string& other) { return step_of(other) > step; });
    return all;
  }
  std::vector<std::string> all = checkpoints_in(named);
  return all.empty() ? checkpoints_in(named / "checkpoints") : all;
}

/// Returns the seconds since the checkpoint was written.
double age_of(const Checkpoint& checkpoint) {
  std::error_code error;
  const auto written = fs::last_write_time(fs::path(checkpoint.folder) / kManifestFile, error);
  const std::chrono::duration<double> age = fs::file_time_type::clock::now() - written;
  return error ? 0 : std::max(0.0, age.count());
}

constexpr double kNoticeSeconds = 2;  // Time allowed for a request to reach every replica.
constexpr double kLateSeconds = 5;    // After this further time, a request is assumed to have arrived too late.

}  // namespace

JobCheckpoints::JobCheckpoints(const World& world, asio::io_context& loop, const Options& options, Console& console)
    : world_(world),
      loop_(loop),
      options_(options),
      console_(console),
      writer_({.folder = options.checkpoints.dir,
               .metrics = options.output.dir + "/metrics.csv",
               .keep = options.checkpoints.keep,
               .may_replace = options.output.overwrite},
              [this](std::uint64_t step, const Result<CheckpointWriter::Stored>& news) {
                asio::post(loop_, [this, step, news] { on_news(step, news); });
              }),
      requests_(options.checkpoints.every.seconds) {}

Status JobCheckpoints::find(const std::string& onnx_sha256) {
  const bool trains = options_.subcommand() == Subcommand::kRun && !options_.config.inference();
  if (!trains) {
    return {};
  }
  POPRUN_ASSIGN(resumed_, latest());
  if (resumed_) {
    POPRUN_TRY(check_same_job(*resumed_, options_.config, onnx_sha256));
    last_step_ = resumed_step();
    last_at_ = world_.now() - age_of(*resumed_);
    console_.say(fmt::format("resuming from {}, after step {}", resumed_->folder, last_step_));
  }
  identity_.set_onnx_sha256(onnx_sha256);
  const std::vector<std::string> earlier = checkpoints_in(options_.checkpoints.dir);
  has_earlier_ = !earlier.empty();
  std::error_code error;
  const bool is_here =
      resumed_ && fs::equivalent(fs::absolute(resumed_->folder).parent_path(), options_.checkpoints.dir, error);
  goes_on_ = options_.checkpoints.resume == kAuto || is_here;
  if (goes_on_) {
    writer_.go_on(is_here ? resumed_step() : 0);
  } else if (!options_.output.overwrite && has_earlier_) {
    return fail(ErrorCode::kUsage,
                fmt::format("{} holds checkpoints of an earlier run ({}); add --resume auto to resume from them, add "
                            "--overwrite to replace them, or choose a different folder",
                            options_.checkpoints.dir, fs::path(earlier.front()).filename().string()));
  }
  return {};
}

Status JobCheckpoints::take_folder() {
  const CheckpointInterval& every = options_.checkpoints.every;
  if (every.steps > 0 || every.seconds > 0 || (goes_on_ && has_earlier_)) {
    POPRUN_TRY(writer_.take_folder());
    set_aside_damaged();
  }
  return {};
}

/// Renames damaged checkpoints, so that they no longer count as the latest.
void JobCheckpoints::set_aside_damaged() {
  for (const std::string& folder : damaged_) {
    std::error_code unused;
    if (fs::equivalent(fs::path(folder).parent_path(), options_.checkpoints.dir, unused)) {
      std::rename(folder.c_str(), (folder + ".damaged").c_str());
    }
  }
}

Result<std::optional<Checkpoint>> JobCheckpoints::latest() {
  if (options_.checkpoints.resume.empty()) {
    return std::nullopt;
  }
  const bool is_auto = options_.checkpoints.resume == kAuto;
  const std::string& folder = is_auto ? options_.checkpoints.dir : options_.checkpoints.resume;
  POPRUN_TRY(check_can_list(folder));
  const std::vector<std::string> all = is_auto ? checkpoints_in(options_.checkpoints.dir) : candidates(folder);
  if (all.empty() && is_auto) {
    console_.say(fmt::format("note: --resume auto: no checkpoint in {}, so the job starts from the beginning",
                             options_.checkpoints.dir));
    return std::nullopt;
  }
  if (all.empty()) {
    return fail(
        ErrorCode::kUsage,
        fmt::format(
            "--resume {}: this folder has no checkpoint; give a folder step-N, or one that contains such folders",
            folder));
  }
  std::vector<std::string> unreadable;
  for (const std::string& candidate : all) {
    Result<Checkpoint> read = read_checkpoint(candidate);
    if (read) {
      return std::move(*read);
    }
    // A checkpoint that cannot be read at the moment may be intact, so it keeps its name.
    const bool is_damaged = read.error().code == ErrorCode::kData;
    if (is_damaged) {
      POPRUN_RARE("resume.damaged");
    }
    (is_damaged ? damaged_ : unreadable).push_back(candidate);
    console_.say(fmt::format("note: a checkpoint {}: {}{}", is_damaged ? "is damaged" : "cannot be read",
                             read.error().message, candidate == all.back() ? "" : "; trying the previous checkpoint"));
  }
  if (!unreadable.empty()) {
    return fail(
        ErrorCode::kHostResources,
        fmt::format("--resume {}: found {}, but none is usable: {} cannot be read{}; see above for the reason, make {} "
                    "readable, and run the job again",
                    options_.checkpoints.resume, counted(all.size(), "checkpoint"), unreadable.size(),
                    damaged_.empty() ? "" : ", and the others are damaged", unreadable.size() == 1 ? "it" : "them"));
  }
  return fail(ErrorCode::kData, fmt::format("--resume {}: found {}, but none is complete; remove them to start over",
                                            options_.checkpoints.resume, counted(all.size(), "checkpoint")));
}

Status JobCheckpoints::take_data(const proto::Dataset& dataset) {
  if (resumed_ && resumed_->manifest.dataset_fingerprint() != dataset.fingerprint()) {
    return fail(ErrorCode::kData, fmt::format("--resume {}: the files of data.source {} differ from those of the "
                                              "checkpoint; restore the old files, or start over",
                                              resumed_->folder, options_.config.data().source()));
  }
  identity_.set_dataset_fingerprint(dataset.fingerprint());
  has_data_ = true;
  identify();
  return {};
}

Status JobCheckpoints::take_numerics(const proto::JoinRequest& request) {
  if (resumed_) {
    POPRUN_TRY(check_numerics_of_checkpoint(resumed_->manifest, request));
  }
  if (!std::exchange(has_numerics_, true)) {
    add_numerics(request, identity_);
    identify();
  }
  return {};
}

void JobCheckpoints::identify() {
  if (has_data_ && has_numerics_) {
    *identity_.mutable_config() = options_.config;
    writer_.identify(identity_);
  }
}

std::optional<std::uint64_t> JobCheckpoints::due(std::uint64_t step, std::uint64_t steps, double now) {
  step_ = step;
  return requests_.due(step, steps, writer_.begun(), now);
}

void JobCheckpoints::on_news(std::uint64_t step, const Result<CheckpointWriter::Stored>& news) {
  const bool was_wished = requests_.came(step);
  const double now = world_.now();
  if (news) {
    ++stored_;
    last_ = *news;
    last_step_ = step;
    last_at_ = now;
    if (was_wished || told_at_ || options_.verbosity > 0) {
      console_.say(
          fmt::format("checkpoint after step {}: {} in {:.2f} s", step, mebibytes_text(news->bytes), news->seconds));
    }
    told_at_.reset();
    tell_of_slowness(*news);
  } else if (now - told_at_.value_or(-kBetweenNotesSeconds) >= kBetweenNotesSeconds) {
    told_at_ = now;
    console_.say(fmt::format("note: no checkpoint after step {}: {}; {}{}", step, news.error().message,
                             last_step_ > 0 ? fmt::format("the checkpoint after step {} is kept", last_step_)
                                            : "there is no earlier checkpoint",
                             news.error().code == ErrorCode::kUsage ? "" : "; trying again"));
  }
}

/// Warns the user, once, if the next checkpoint was due before this one was stored. Replicas then wait or skip it.
void JobCheckpoints::tell_of_slowness(const CheckpointWriter::Stored& stored) {
  const std::uint64_t every = options_.checkpoints.every.steps;
  if (every > 0 && step_ >= stored.step + every && !std::exchange(slowness_told_, true)) {
    console_.say(
        fmt::format("note: the checkpoint after step {} took {:.0f} s to store, and the next one is already due, so "
                    "replicas wait or skip checkpoints; set --checkpoint-every to more than {} steps",
                    stored.step, stored.seconds, every));
  }
}

std::string JobCheckpoints::summary() const {
  return stored_ == 0
             ? ""
             : fmt::format("{} in {}, the last after step {}: {} in {:.2f} s", grouped(stored_),
                           options_.checkpoints.dir, grouped(last_.step), mebibytes_text(last_.bytes), last_.seconds);
}

/// Estimates how many steps the job completes in `seconds`, judging by its speed since the first step seen.
double CheckpointRequests::steps_in(double seconds, std::uint64_t step, double now) {
  if (!first_) {
    first_ = Mark{step, now};
  }
  const double elapsed = now - first_->at;
  return elapsed > 0 ? static_cast<double>(step - first_->step) / elapsed * seconds : 0;
}

std::optional<std::uint64_t> CheckpointRequests::due(std::uint64_t step, std::uint64_t steps, std::uint64_t begun,
                                                     double now) {
  const double notice = steps_in(kNoticeSeconds, step, now);
  if (every_seconds_ > 0) {
    due_at_ = due_at_.value_or(now + every_seconds_);
    if (now >= *due_at_) {
      due_at_ = now + every_seconds_;
      wished_ = true;
    }
  }
  const bool missed = request_ && begun < request_->first_step && step > request_->last_step &&
                      now - request_->asked_at > kNoticeSeconds + kLateSeconds;
  if (request_ ? !missed : !wished_) {
    return std::nullopt;
  }
  const std::uint64_t after = std::min(steps, step + 1 + static_cast<std::uint64_t>(std::ceil(notice)));
  if (!request_) {
    wished_ = false;
    request_ = Request{.first_step = after};
  }
  request_->last_step = after;
  request_->asked_at = now;
  return after;
}

bool CheckpointRequests::came(std::uint64_t step) {
  const bool answers = request_ && step >= request_->first_step;
  if (answers) {
    request_.reset();
  }
  return answers;
}

}  // namespace poprun::launcher
