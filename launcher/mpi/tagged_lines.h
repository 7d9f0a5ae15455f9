#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Parsers of the tags that mpirun and replicas write in front of a line, and of the failure messages of mpirun and
/// ssh. The failure messages exist only as English text, so they have to be searched for words, which is done only
/// here. Errors from our own programs arrive as Facts (replica/base/error.h).
namespace poprun::launcher {

struct TaggedLine {
  std::uint32_t rank = 0;
  bool is_stderr = false;
  std::string text;

  friend bool operator==(const TaggedLine&, const TaggedLine&) = default;
};

/// Reassembles the lines of many ranks from `mpirun --tag-output`, which writes `[jobid,rank]<stdout>:` in front of
/// every piece that it reads, even after an incomplete line of the same or a different rank.
class TagReader {
 public:
  struct Output {
    std::vector<TaggedLine> lines;        ///< Complete lines of ranks.
    std::optional<std::string> untagged;  ///< A line of mpirun itself.
  };

  /// Takes one line of mpirun's output, without its newline.
  Output take(std::string_view line);

 private:
  std::map<std::pair<std::uint32_t, bool>, std::string> pieces_;  ///< Incomplete lines by rank and stream.
};

/// A line that a replica tagged at its source: `[replica 3 @ host] I message` (replica/base/log.h).
struct ReplicaLine {
  std::uint32_t replica = 0;
  char level = 'I';  ///< D, I, W or E.
};

std::optional<ReplicaLine> parse_replica_line(std::string_view text);

/// mpirun's report on the rank that ended first.
struct RankEnd {
  std::uint32_t rank = 0;
  int signal = 0;     ///< 0 if no signal ended the rank.
  int exit_code = 0;  ///< Valid only if no signal ended the rank.

  friend bool operator==(const RankEnd&, const RankEnd&) = default;
};

/// mpirun's report on a rank that it could not start.
struct StartFailure {
  std::string node;        ///< Host, as mpirun names it.
  std::string lacks;       ///< Path of the program or folder that could not be used on the host, or empty.
  std::string problem;     ///< Message of mpirun or our remote shell, if `lacks` is empty.
  bool no_daemon = false;  ///< The remote shell did not start Open MPI's daemon on the host.

  friend bool operator==(const StartFailure&, const StartFailure&) = default;
};

/// Definite facts about the job's failure, as reported by mpirun.
struct MpirunFindings {
  std::optional<StartFailure> start_failure = {};
  std::optional<RankEnd> rank_end = {};       ///< The first end of a rank that mpirun noticed.
  std::optional<std::string> lost_node = {};  ///< The host whose daemon mpirun can no longer reach.

  friend bool operator==(const MpirunFindings&, const MpirunFindings&) = default;
};

/// Collects mpirun's own lines and finds the reason for its failure in them.
class MpirunNotices {
 public:
  void take(std::string_view line);

  [[nodiscard]] const MpirunFindings& findings() const { return findings_; }

  /// Returns the reason why nothing could be started, in one line, or "" if mpirun gave no reason.
  [[nodiscard]] std::string essential() const;

  /// Returns whether mpirun reported that a daemon did not start, but neither mpirun nor a remote shell gave a reason
  /// that we recognise. If so, the daemon's host may be down.
  [[nodiscard]] bool misses_a_daemon() const;

  /// Returns whether mpirun failed because it did not recognise arguments on its own command line.
  [[nodiscard]] bool refuses_arguments() const;

 private:
  /// Consecutive lines, up to the next separator line, from mpirun or from a host.
  struct Notice {
    std::vector<std::string> lines;
    bool by_host = false;  ///< The lines come from a host or its remote shell.
  };

  std::vector<Notice> notices_ = {{}};
  std::size_t lines_ = 0;  ///< Total number in all notices; at most 200.
  MpirunFindings findings_;
  StartFailure being_read_;
  std::optional<std::uint32_t> named_rank_;  ///< A rank whose exit code follows in one of the next lines.

  [[nodiscard]] std::string known_reason() const;
  [[nodiscard]] std::string line_with(std::string_view part) const;
  void keep(std::string_view line, bool by_host);
  void take_of_host(std::string_view host, std::string_view text);
  void read_start_failure(std::string_view line);
  void read_rank_end(std::string_view line);
};

}  // namespace poprun::launcher
