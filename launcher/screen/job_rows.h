#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "proto/profile.pb.h"
#include "proto/program.pb.h"
#include "replica/base/listed_rows.h"
#include "replica/base/text.h"

/// Rows that --dry-run, `estimate --compile` and the summary of a job have in common.
namespace poprun::launcher {

/// Pairs of a name and its value, each of which becomes one line.
using JobRows = std::vector<std::pair<std::string, std::string>>;

/// Returns one line per row. The values are aligned in one column.
std::string to_text(const JobRows& rows);

struct ShownIpus {
  bool all = false;            ///< If false, show only the IPUs that `listed_rows` selects.
  std::string_view elsewhere;  ///< Clause that says where the other IPUs are shown, such as "which -v lists".
};

/// Calls row(ipu, stands_out) for each shown IPU, and adds a row wherever some are left out.
template <typename Range, typename Key, typename Row>
void add_ipus(JobRows& rows, const Range& ipus, Key key, const ShownIpus& shown, Row row) {
  for (const ListedRow& listed : shown.all ? all_rows(static_cast<std::size_t>(ipus.size())) : listed_by(ipus, key)) {
    if (listed.left_out > 0) {
      rows.emplace_back("..", fmt::format("{}, {}", counted(listed.left_out, "IPU"), shown.elsewhere));
    }
    row(static_cast<int>(listed.index), listed.stands_out);
  }
}

/// Adds the batch sizes of a job.
void add_batch_sizes(JobRows& rows, const proto::BatchSizes& sizes);

/// Formats the time of a job: "1.5 ms", "33.8 min", "5.7 h" or "12.0 days".
std::string run_time_text(double seconds);

/// Describes the training steps of a disturbed Pod: "steps of 1.2 ms (median; 90 % 1.3 ms, ..); 5.7 h for the job, ..".
std::string disturbed_text(const proto::DisturbedTime& time);

/// Adds the device time of a step or, in inference, of a batch: the total, host transfers and overhead, transfers by
/// I/O tiles and, if there are several IPUs, their utilisation and each IPU's time.
void add_device_time(JobRows& rows, const proto::DeviceTime& device, const proto::RunConfig& config,
                     const ShownIpus& shown);

/// Returns `2.5 MiB peak of 897.0 MiB, 37.5 KiB always live`: the sum of all tiles' peaks, and the sum of the bytes
/// that are always live. If the IPU has the fullest tile of all IPUs, a mark follows `suffix`.
std::string memory_text(const proto::IpuMemory& memory, bool has_fullest_tile, std::string_view suffix = "");

/// Returns `tile 952 is the fullest, 12,345 of 638,976 B; 37 kinds of tiles`; if that tile exceeds its limit, also says
/// by how much. Only tiles are reported as over the limit, because only they decide whether a job fits.
std::string tiles_text(const proto::IpuMemory& memory);

/// Returns `1.709 ms busy, 0.716 ms idle`, both in the unit that is appropriate for their sum.
std::string time_text(const proto::IpuTime& time);

/// Returns `12.3 KiB in, 12 B out, 3.8 us included; 1 call, 1.450 ms on top (fitted)`.
std::string host_text(const proto::HostTime& host);

/// Returns `device clock, mk2, within 5 % of chips`, or `device clock, mk2, never compared` if the error is 0.
std::string device_clock_text(std::string_view ipu, double compared_error);

/// Returns a number of samples or items per second: `1,234`, or `0.24` below 10.
std::string rate_number(double per_second);

/// Returns `1,234 samples/s`.
std::string rate_text(double samples_per_second);

}  // namespace poprun::launcher
