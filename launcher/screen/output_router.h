#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/mpi/tagged_lines.h"
#include "launcher/outputs/result_files.h"
#include "launcher/placement/placement.h"
#include "launcher/screen/console.h"

namespace poprun::launcher {

/// Sends each line of mpirun's output to the screen, preceded by instance and host, and to the log of its replica.
/// mpirun's own messages are shown only on request.
class OutputRouter {
 public:
  struct Setup {
    std::int64_t only_instance = -1;  ///< Show only this instance; -1: all.
    bool show_mpirun = false;
    bool show_info = false;  ///< Also show the replicas' lines tagged I, which are always logged.
  };

  /// All references must outlive this.
  OutputRouter(Console& console, ReplicaLogs& logs, const Placement& placement, Setup setup);

  void take(std::string_view line, bool is_stderr);

  /// Shows mpirun's own lines if this was requested. They are held until this call, so that the root cause comes first.
  void release_mpirun_lines();

  /// Returns how many of mpirun's own lines are held.
  [[nodiscard]] std::size_t held_lines() const { return held_.size(); }

  [[nodiscard]] const MpirunNotices& notices() const { return notices_; }

  [[nodiscard]] bool has_lines(std::uint32_t instance) const { return has_lines_[instance]; }

  /// Returns the last lines of an instance that were not shown.
  [[nodiscard]] std::vector<std::string> hidden_lines(std::uint32_t instance) const;

 private:
  void take_mpirun(const std::string& line);
  void take_instance(const TaggedLine& line);
  [[nodiscard]] bool is_shown(std::uint32_t instance) const {
    return setup_.only_instance < 0 || setup_.only_instance == static_cast<std::int64_t>(instance);
  }

  Console& console_;
  ReplicaLogs& logs_;
  const Placement& placement_;
  Setup setup_;
  TagReader stdout_tags_;
  TagReader stderr_tags_;
  MpirunNotices notices_;
  std::vector<std::string> held_;
  std::vector<bool> has_lines_;                  ///< [num_instances]
  std::vector<std::deque<std::string>> hidden_;  ///< [num_instances] the last few lines not shown.
};

}  // namespace poprun::launcher
