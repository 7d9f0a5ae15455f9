#include "launcher/outputs/checkpoint_writer.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <google/protobuf/util/message_differencer.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/outputs/growing_file.h"
#include "launcher/outputs/result_files.h"
#include "launcher/outputs/safetensors.h"
#include "replica/base/rare.h"
#include "replica/base/text.h"

namespace poprun::launcher {
namespace {

namespace fs = std::filesystem;

constexpr double kMetricsSecondsMax = 30;  // Longest wait for rows, which arrive on another stream.
constexpr std::chrono::milliseconds kBetweenLooks{20};

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

CheckpointWriter::CheckpointWriter(Setup setup, News news) : setup_(std::move(setup)), news_(std::move(news)) {}

CheckpointWriter::~CheckpointWriter() {
  if (open_) {
    drop();
  }
}

Status CheckpointWriter::take_folder() {
  if (lock_) {
    return {};
  }
  if (const std::error_code error = make_folder(setup_.folder)) {
    return fail(ErrorCode::kUsage,
                fmt::format("--checkpoint-dir {} cannot be created: {}", setup_.folder, error.message()));
  }
  POPRUN_ASSIGN(FolderLock lock, FolderLock::take("--checkpoint-dir", setup_.folder));
  if (const auto others = checkpoints_in(setup_.folder); !goes_on_ && !setup_.may_replace && !others.empty()) {
    return fail(ErrorCode::kUsage, fmt::format("--checkpoint-dir {}: this folder contains checkpoints of another job "
                                               "({}); choose a different folder, or add --overwrite to replace them",
                                               setup_.folder, fs::path(others.front()).filename().string()));
  }
  remove_parts(setup_.folder);  // This comes first, because interrupted checkpoints may fill the disk.
  const std::string probe = fmt::format("{}/.poprun-emu-{}", setup_.folder, getpid());
  rmdir(probe.c_str());  // A crash may have left it, and in a container, process ids repeat.
  if (mkdir(probe.c_str(), 0700) == 0) {
    rmdir(probe.c_str());
  } else if (errno != ENOSPC && errno != EDQUOT) {  // A full disk may regain space.
    return fail(ErrorCode::kUsage, fmt::format("--checkpoint-dir {}: nothing can be created in this folder: {}",
                                               setup_.folder, std::strerror(errno)));
  }
  lock_ = std::move(lock);
  return {};
}

std::string CheckpointWriter::part_folder(std::uint64_t step) const {
  return fmt::format("{}/step-{}.{}.part", setup_.folder, step, lock_ ? lock_->epoch() : 0);
}

CheckpointWriter::Part* CheckpointWriter::find(std::uint32_t replica) {
  if (!open_) {
    return nullptr;
  }
  const auto found = std::ranges::find(open_->parts, replica, &Part::replica);
  return found == open_->parts.end() ? nullptr : &*found;
}

void CheckpointWriter::begin(const proto::StatePart& part, Done done) {
  const std::uint64_t step = part.host().step();
  if (open_ && step < open_->step) {
    POPRUN_RARE("checkpoint.part-too-late");
    done(Outcome::kSuperseded);
    return;
  }
  if (open_ && (step > open_->step || find(part.replica()) != nullptr)) {
    POPRUN_RARE("checkpoint.superseded");
    settle(Outcome::kSuperseded);
  }
  if (!open_) {
    open_checkpoint(part);
  }
  if (part.replica() == 0) {
    open_->host = part.host();
  }
  open_->parts.push_back(
      {.replica = part.replica(), .slices = {part.slices().begin(), part.slices().end()}, .done = std::move(done)});
  if (const Status agrees = check_part(part); !agrees && open_->status) {
    open_->status = agrees;
  }
  for (const proto::StateSlice& slice : part.slices()) {
    const bool fits = slice.variable() < open_->bytes.size() && slice.bytes() <= open_->bytes[slice.variable()] &&
                      slice.offset() <= open_->bytes[slice.variable()] - slice.bytes();
    if (!fits && open_->status) {
      open_->status = fail(ErrorCode::kBug,
                           fmt::format("checkpoint after step {}: replica {} sent bytes that belong to no variable",
                                       step, part.replica()));
    }
  }
  if (open_->parts.size() == open_->parts_expected) {
    begun_ = step;
  }
}

/// Checks that a part agrees with the job and with the first part of its checkpoint.
Status CheckpointWriter::check_part(const proto::StatePart& part) const {
  const std::uint64_t total = total_steps_;
  if (total > 0 && open_->step > total) {
    return fail(ErrorCode::kBug, fmt::format("checkpoint after step {}: replica {} sent it, but the job has only {}",
                                             open_->step, part.replica(), counted(total, "step")));
  }
  const bool same = std::ranges::equal(part.variables(), open_->variables, [](const auto& one, const auto& other) {
    return google::protobuf::util::MessageDifferencer::Equals(one, other);
  });
  if (!same || part.parts() != open_->parts_expected) {
    return fail(ErrorCode::kBug, fmt::format("checkpoint after step {}: replica {} and replica {} disagree about its "
                                             "variables or parts",
                                             open_->step, part.replica(),
                                             open_->parts.empty() ? part.replica() : open_->parts.front().replica));
  }
  return {};
}

void CheckpointWriter::open_checkpoint(const proto::StatePart& part) {
  open_ = Open{};
  open_->step = part.host().step();
  open_->parts_expected = part.parts();
  open_->began = now_seconds();
  open_->variables = {part.variables().begin(), part.variables().end()};
  open_->status = take_folder();
  if (open_->status) {
    open_->status = create_state_file(part);
  }
}

/// Checks that all parts together contain each byte of each variable exactly once.
Status CheckpointWriter::check_coverage() const {
  std::vector<proto::StateSlice> slices;
  for (const Part& part : open_->parts) {
    slices.insert(slices.end(), part.slices.begin(), part.slices.end());
  }
  std::ranges::sort(slices, {}, [](const proto::StateSlice& slice) {
    return std::tuple(slice.variable(), slice.offset(), slice.bytes());
  });
  auto slice = slices.begin();
  for (std::size_t v = 0; v < open_->bytes.size(); ++v) {
    std::uint64_t covered = 0;
    for (; slice != slices.end() && slice->variable() == v && slice->offset() == covered; ++slice) {
      covered += slice->bytes();
    }
    if (covered != open_->bytes[v] || (slice != slices.end() && slice->variable() == v)) {
      return fail(ErrorCode::kBug,
                  fmt::format("checkpoint after step {}: the parts do not contain each byte of '{}' exactly once: {} "
                              "of {} B precede the first gap or overlap",
                              open_->step, open_->variables[v].name(), covered, open_->bytes[v]));
    }
  }
  return {};
}

Status CheckpointWriter::create_state_file(const proto::StatePart& part) {
  const std::string folder = part_folder(open_->step);
  const std::string path = fmt::format("{}/{}", folder, kStateFile);
  std::vector<TensorEntry> entries;
  std::uint64_t end = 0;
  for (const proto::StateVariable& variable : part.variables()) {
    entries.push_back({variable.name(),
                       dtype_of(variable.type()),
                       {variable.shape().begin(), variable.shape().end()},
                       end,
                       end + variable.bytes()});
    end += variable.bytes();
  }
  const std::string header = safetensors_header(entries);
  for (const TensorEntry& entry : entries) {
    open_->begins.push_back(header.size() + entry.begin);
    open_->bytes.push_back(entry.end - entry.begin);
  }
  std::error_code error;
  fs::remove_all(folder, error);
  if (mkdir(folder.c_str(), 0777) != 0) {
    return cannot_write(folder, errno);
  }
  open_->file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (open_->file < 0) {
    return cannot_write(path, errno);
  }
  // Reserves the space, so that a full disk is reported now, or later if the file system cannot reserve space.
  const auto size = static_cast<off_t>(header.size() + end);
  while (fallocate(open_->file, 0, 0, size) != 0 && (errno == ENOSPC || errno == EDQUOT)) {
    const int reason = errno;
    if (!make_room()) {
      return cannot_write(path, reason);
    }
  }
  return write_at(open_->file, path, header, 0);
}

void CheckpointWriter::write(std::uint32_t replica, std::string_view bytes) {
  Part* const part = find(replica);
  while (part != nullptr && open_->status && !bytes.empty()) {
    if (part->slice == part->slices.size()) {
      open_->status = fail(ErrorCode::kBug, fmt::format("checkpoint after step {}: replica {} sent "
                                                        "more than it announced",
                                                        open_->step, replica));
      return;
    }
    const proto::StateSlice& slice = part->slices[part->slice];
    const std::string_view piece = bytes.substr(0, slice.bytes() - part->written);
    const std::uint64_t at = open_->begins[slice.variable()] + slice.offset() + part->written;
    open_->status = write_at(open_->file, part_folder(open_->step), piece, at);
    bytes.remove_prefix(piece.size());
    part->written += piece.size();
    if (part->written == slice.bytes()) {
      ++part->slice;
      part->written = 0;
    }
  }
}

void CheckpointWriter::end(std::uint32_t replica) {
  Part* const part = find(replica);
  if (part == nullptr || part->ended) {
    return;
  }
  part->ended = true;
  if (open_->status && part->slice < part->slices.size()) {
    open_->status = fail(ErrorCode::kBug, fmt::format("checkpoint after step {}: replica {} sent "
                                                      "less than it announced",
                                                      open_->step, replica));
  }
  const bool here = open_->parts.size() == open_->parts_expected && std::ranges::all_of(open_->parts, &Part::ended);
  if (!here && open_->status) {
    return;
  }
  if (open_->status) {
    open_->status = complete();
  }
  const std::uint64_t step = open_->step;
  const Stored stored{step, stored_bytes_, now_seconds() - open_->began};
  const Status status = open_->status;
  if (!status && status.error().facts.shortage) {
    make_room();  // Frees space for the next attempt.
  }
  settle(status ? Outcome::kStored : status.error().code == ErrorCode::kUsage ? Outcome::kRefused : Outcome::kFailed);
  if (status || !metrics_ended_) {
    news_(step, status ? Result<Stored>(stored) : tl::unexpected<Error>{status.error()});
  }
}

void CheckpointWriter::cancel(std::uint32_t replica) {
  if (find(replica) != nullptr) {
    POPRUN_RARE("checkpoint.part-cut-off");
    settle(Outcome::kFailed);
  }
}

Status CheckpointWriter::close_state_file() {
  const std::string path = fmt::format("{}/{}", part_folder(open_->step), kStateFile);
  const bool synced = fsync(open_->file) == 0;
  const int reason = errno;
  const bool closed = close(std::exchange(open_->file, -1)) == 0;
  return synced && closed ? Status{} : cannot_write(path, synced ? errno : reason);
}

Status CheckpointWriter::complete() {
  const std::string folder = part_folder(open_->step);
  POPRUN_TRY(check_coverage());
  POPRUN_TRY(close_state_file());
  POPRUN_TRY(write_manifest(folder));  // Writes the last file, and syncs `folder` (write_whole_file).
  POPRUN_TRY(lock_->check());
  POPRUN_TRY(take_name(folder));
  has_stored_ = true;  // The checkpoint exists even if the sync fails, and a restart must not reject it.
  POPRUN_TRY(sync_folder(setup_.folder));
  whole_.insert(open_->step);
  prune();
  return {};
}

/// Waits until metrics.csv has all rows up to the checkpoint, and copies these rows.
Status CheckpointWriter::await_metrics(const std::string& to) const {
  const std::uint64_t lines = 1 + open_->host.metric_rows();
  const std::string& from = setup_.metrics;
  for (const double until = now_seconds() + kMetricsSecondsMax; now_seconds() < until;
       std::this_thread::sleep_for(kBetweenLooks)) {
    const bool is_last_look = metrics_ended_ || metrics_held_;
    if (is_last_look) {
      POPRUN_RARE("checkpoint.without-metrics");
    }
    POPRUN_ASSIGN(const bool copied, copy_lines(from, to, lines));
    if (copied) {
      return {};
    }
    if (is_last_look) {
      return fail(ErrorCode::kInfrastructure,
                  fmt::format("the checkpoint needs {} lines of {}, which {}", lines, from,
                              metrics_ended_ ? "ended with fewer" : "cannot be written now"));
    }
  }
  return fail(ErrorCode::kInfrastructure,
              fmt::format("{} did not reach {} lines within {} s", from, lines, kMetricsSecondsMax));
}

Status CheckpointWriter::write_manifest(const std::string& folder) {
  POPRUN_TRY(await_metrics(fmt::format("{}/{}", folder, kMetricsFile)));
  proto::CheckpointManifest manifest = identity_;
  manifest.set_format(kCheckpointFormat);
  manifest.set_version(POPRUN_VERSION);
  *manifest.mutable_host() = open_->host;
  manifest.set_epoch(lock_->epoch());
  POPRUN_TRY(add_to_manifest(folder, kStateFile, manifest));
  POPRUN_TRY(add_to_manifest(folder, kMetricsFile, manifest));
  POPRUN_ASSIGN(const std::string text, manifest_text(manifest));
  stored_bytes_ = manifest.files(0).bytes() + manifest.files(1).bytes() + text.size();
  return write_whole_file(fmt::format("{}/{}", folder, kManifestFile), {text});
}

/// Gives the folder its final name, replacing any checkpoint of the same step.
Status CheckpointWriter::take_name(const std::string& folder) const {
  const std::string name = fmt::format("{}/step-{}", setup_.folder, open_->step);
  if (std::rename(folder.c_str(), name.c_str()) != 0) {
    std::error_code unused;
    if (renameat2(AT_FDCWD, folder.c_str(), AT_FDCWD, name.c_str(), RENAME_EXCHANGE) == 0) {
      POPRUN_RARE("checkpoint.same-step");
      POPRUN_TRY(sync_folder(setup_.folder));
      fs::remove_all(folder, unused);
    } else if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP) {
      return cannot_write(name, errno);
    } else {  // Network file systems cannot exchange names.
      remove_checkpoint(name);
      if (std::rename(folder.c_str(), name.c_str()) != 0) {
        return cannot_write(name, errno);
      }
    }
  }
  return {};
}

/// Removes old checkpoints. When a new job has stored its first checkpoint, removes those of earlier jobs. Otherwise,
/// removes the checkpoints older than the last `keep` intact ones. Only checkpoints that this job has stored or read
/// count as intact. If this job resumed from an earlier step, checkpoints of later steps stay: they are its own,
/// bit-identical to those that it will take.
void CheckpointWriter::prune() {
  std::vector<std::string> old = checkpoints_in(setup_.folder);
  if (std::exchange(goes_on_, true)) {
    const auto newest = whole_.upper_bound(open_->step);
    const auto count = static_cast<std::uint64_t>(std::distance(whole_.begin(), newest));
    if (count < setup_.keep) {
      return;
    }
    const std::uint64_t oldest = *std::prev(newest, setup_.keep);
    std::erase_if(old, [oldest](const std::string& other) { return step_of(other) >= oldest; });
  } else {
    std::erase_if(old, [this](const std::string& other) { return step_of(other) == open_->step; });
  }
  std::ranges::for_each(old, remove_checkpoint);
}

/// Removes the oldest checkpoint to make room on a full disk, but never the last one that is known to be intact.
/// Returns whether a checkpoint was removed.
bool CheckpointWriter::make_room() {
  const auto newest = whole_.upper_bound(open_->step);
  if (!goes_on_ || newest == whole_.begin()) {
    return false;
  }
  std::vector<std::string> all = checkpoints_in(setup_.folder);
  std::erase_if(all, [last = *std::prev(newest)](const std::string& other) { return step_of(other) >= last; });
  if (all.empty()) {
    return false;
  }
  POPRUN_RARE("checkpoint.makes-room");
  std::error_code unused;
  remove_checkpoint(all.back());
  return !fs::exists(all.back(), unused);
}

/// Reports the outcome to all senders of parts and closes the checkpoint. Drops the checkpoint unless it was stored.
void CheckpointWriter::settle(Outcome outcome) {
  const std::vector<Part> parts = std::move(open_->parts);
  if (outcome != Outcome::kStored) {
    begun_ = 0;
    drop();
  }
  open_.reset();
  for (const Part& part : parts) {
    part.done(outcome);
  }
}

void CheckpointWriter::drop() {
  if (open_->file >= 0) {
    close(open_->file);
  }
  if (lock_) {
    std::error_code unused;
    fs::remove_all(part_folder(open_->step), unused);
  }
}

}  // namespace poprun::launcher
