#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// What mpirun and replicas write in front of a line, read back, and what mpirun and ssh say of
/// their failures. Theirs have no other form than English, so this is the one place that looks for
/// words: what our own programs know of an error comes as Facts (replica/base/error.h).
namespace poprun::launcher {

struct TaggedLine {
  std::uint32_t rank = 0;
  bool is_stderr = false;
  std::string text;

  friend bool operator==(const TaggedLine&, const TaggedLine&) = default;
};

/// Puts the lines of many ranks together again from `mpirun --tag-output`, which writes
/// `[jobid,rank]<stdout>:` in front of every piece it reads, also in the middle of a long line or
/// between two ranks' half lines.
class TagReader {
 public:
  struct Output {
    std::vector<TaggedLine> lines;        ///< Complete lines of ranks.
    std::optional<std::string> untagged;  ///< A line of mpirun itself.
  };

  /// `line` is one line of mpirun's output without its end.
  Output take(std::string_view line);

 private:
  std::map<std::pair<std::uint32_t, bool>, std::string>
      pieces_;  ///< Begun lines by rank and stream.
};

/// A line that a replica tagged at its source: `[replica 3 @ host] I message` (replica/base/log.h).
struct ReplicaLine {
  std::uint32_t replica = 0;
  char level = 'I';  ///< D, I, W or E.
};

/// Nothing where `text` has no such tag.
std::optional<ReplicaLine> parse_replica_line(std::string_view text);

/// What mpirun says about the rank that ended first.
struct RankEnd {
  std::uint32_t rank = 0;
  int signal = 0;     ///< 0 where it exited.
  int exit_code = 0;  ///< Where it exited.

  friend bool operator==(const RankEnd&, const RankEnd&) = default;
};

/// What mpirun says about a rank that it could not start.
struct StartFailure {
  std::string node;     ///< As mpirun calls the host.
  std::string lacks;    ///< Path of the program or folder that could not be used there; else empty,
  std::string problem;  ///< and this is what mpirun or our remote shell says.
  bool no_daemon = false;  ///< The remote shell did not start Open MPI's daemon on the host.

  friend bool operator==(const StartFailure&, const StartFailure&) = default;
};

/// What mpirun knows for certain of how the job failed.
struct MpirunFindings {
  std::optional<StartFailure> start_failure = {};
  std::optional<RankEnd> rank_end = {};       ///< Of the rank that it noticed first.
  std::optional<std::string> lost_node = {};  ///< The host whose daemon it can't reach any more.

  friend bool operator==(const MpirunFindings&, const MpirunFindings&) = default;
};

/// Collects mpirun's own lines and finds in them why it failed.
class MpirunNotices {
 public:
  void take(std::string_view line);

  [[nodiscard]] const MpirunFindings& findings() const { return findings_; }

  /// Why nothing could be started, in one line; empty if mpirun said nothing.
  [[nodiscard]] std::string essential() const;

  /// Whether it said that some daemon did not come up, and neither it nor a remote shell said why
  /// in words that we know: the host may be down.
  [[nodiscard]] bool misses_a_daemon() const;

  /// Whether the reason is mpirun's own command line, with arguments that it does not know.
  [[nodiscard]] bool refuses_arguments() const;

 private:
  /// Lines between two rulers, or outside of them until the next ruler.
  struct Notice {
    std::vector<std::string> lines;
    bool by_host = false;  ///< A line of a host or its remote shell.
  };

  std::vector<Notice> notices_ = {{}};
  std::size_t lines_ = 0;  ///< Of all notices, at most 200.
  MpirunFindings findings_;
  StartFailure being_read_;
  std::optional<std::uint32_t> named_rank_;  ///< "Process name" was read, its exit code not yet.

  [[nodiscard]] std::string known_reason() const;
  [[nodiscard]] std::string line_with(std::string_view part) const;
  void keep(std::string_view line, bool by_host);
  void take_of_host(std::string_view host, std::string_view text);
  void read_start_failure(std::string_view line);
  void read_rank_end(std::string_view line);
};

}  // namespace poprun::launcher
