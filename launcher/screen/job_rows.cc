#include "launcher/screen/job_rows.h"

#include <algorithm>
#include <cmath>

namespace poprun::launcher {

std::string to_text(const JobRows& rows) {
  std::string text;
  for (const auto& [name, value] : rows) {
    text += fmt::format("{:<14} {}\n", name, value);
  }
  return text;
}

void add_batch_sizes(JobRows& rows, const proto::BatchSizes& sizes) {
  rows.emplace_back("batch sizes",
                    fmt::format("compute {}, micro {}, replica {}, global {} samples",
                                grouped(sizes.compute_batch_size()), grouped(sizes.micro_batch_size()),
                                grouped(sizes.replica_batch_size()), grouped(sizes.global_batch_size())));
}

std::string run_time_text(double seconds) {
  constexpr double kMinute = 60;
  constexpr double kHour = 60 * kMinute;
  constexpr double kDay = 24 * kHour;
  return seconds < 2 * kMinute ? duration_text(seconds)
         : seconds < 2 * kHour ? fmt::format("{:.1f} min", seconds / kMinute)
         : seconds < 4 * kDay  ? fmt::format("{:.1f} h", seconds / kHour)
                               : fmt::format("{:.1f} days", seconds / kDay);
}

std::string disturbed_text(const proto::DisturbedTime& time) {
  const bool varies = time.slowest_step_seconds() > time.median_step_seconds();
  std::string text = fmt::format("steps of {}", duration_text(time.median_step_seconds()));
  if (varies) {
    text += fmt::format(" (median; 90 % {}, 99 % {}, slowest {})", duration_text(time.step_seconds_90()),
                        duration_text(time.step_seconds_99()), duration_text(time.slowest_step_seconds()));
  }
  text +=
      fmt::format("; {} for the job, {}", run_time_text(time.total_seconds()), rate_text(time.samples_per_second()));
  if (time.losses() > 0) {
    const bool one = time.losses() == 1;
    text += fmt::format("; {} {} of it and {} {}", one ? "a loss costs" : fmt::format("{} losses cost", time.losses()),
                        run_time_text(time.lost_seconds()), one ? "repeats" : "repeat",
                        counted(time.repeated_steps(), "step"));
  }
  return text;
}

void add_device_time(JobRows& rows, const proto::DeviceTime& device, const proto::RunConfig& config,
                     const ShownIpus& shown) {
  rows.emplace_back(
      config.inference() ? "device batch" : "device step",
      fmt::format("{}, {}{} ({})", duration_text(device.step_seconds()), rate_text(device.samples_per_second()),
                  device.timed_replicas() > 0 ? fmt::format(" of {} replicas", grouped(device.timed_replicas())) : "",
                  device_clock_text(config.device().ipu(), device.compared_error())));
  if (device.has_disturbed()) {
    rows.emplace_back("  what if", disturbed_text(device.disturbed()));
  }
  if (device.host().calls() > 0) {
    rows.emplace_back("  host", host_text(device.host()));
  }
  if (device.io_seconds() > 0) {
    rows.emplace_back("  I/O tiles", fmt::format("{}, {} of it overlapped with the other tiles' work",
                                                 duration_text(device.io_seconds()),
                                                 duration_text(device.io_seconds() - device.io_waited_seconds())));
  }
  if (device.ipus_size() > 1) {
    rows.emplace_back("utilisation",
                      fmt::format("{:.1f} % of {} IPUs", 100 * device.utilisation(), device.ipus_size()));
    add_ipus(rows, device.ipus(), &proto::IpuTime::busy_seconds, shown, [&](int ipu, bool busiest) {
      rows.emplace_back(fmt::format("IPU {} time", ipu),
                        time_text(device.ipus(ipu)) + (busiest ? ": the busiest" : ""));
    });
  }
}

std::string memory_text(const proto::IpuMemory& memory, bool has_fullest_tile, std::string_view suffix) {
  return fmt::format("{} peak of {}, {} always live{}{}", mebibytes_text(memory.peak()),
                     mebibytes_text(memory.capacity()), mebibytes_text(memory.always_live()), suffix,
                     has_fullest_tile ? ": the fullest" : "");
}

std::string tiles_text(const proto::IpuMemory& memory) {
  const std::uint64_t peak = memory.fullest_tile_peak();
  const std::uint64_t limit = memory.bytes_per_tile();
  return fmt::format("tile {} is the fullest, {} of {} B{}; {} of tiles", memory.fullest_tile(), grouped(peak),
                     grouped(limit), peak > limit ? fmt::format(", {} B over", grouped(peak - limit)) : "",
                     counted(memory.tile_classes(), "kind"));
}

std::string time_text(const proto::IpuTime& time) {
  const double busy = time.busy_seconds();
  const double idle = time.idle_seconds();
  if (busy + idle >= 1) {
    return fmt::format("{:.2f} s busy, {:.2f} s idle", busy, idle);
  }
  return busy + idle >= 1e-3 ? fmt::format("{:.3f} ms busy, {:.3f} ms idle", busy * 1e3, idle * 1e3)
                             : fmt::format("{:.1f} us busy, {:.1f} us idle", busy * 1e6, idle * 1e6);
}

std::string host_text(const proto::HostTime& host) {
  const auto size = [](double bytes) {
    return bytes < 1024      ? fmt::format("{:.0f} B", bytes)
           : bytes < 1048576 ? fmt::format("{:.1f} KiB", bytes / 1024)
                             : fmt::format("{:.1f} MiB", bytes / 1048576);
  };
  const std::string streams = fmt::format("{} in, {} out, {} included", size(host.bytes_to_device()),
                                          size(host.bytes_from_device()), duration_text(host.stream_seconds()));
  if (host.call_seconds() == 0) {
    return streams;
  }
  const std::string calls = host.calls() == 1  ? "1 call"
                            : host.calls() < 1 ? fmt::format("1 call in {:.0f}", 1 / host.calls())
                                               : fmt::format("{:.0f} calls", host.calls());
  return fmt::format("{}; {}, {} {}", streams, calls, duration_text(host.call_seconds()),
                     host.calls_are_counted() ? "included (device.host-call)" : "on top (fitted)");
}

std::string device_clock_text(std::string_view ipu, double compared_error) {
  return fmt::format(
      "device clock, {}, {}", ipu,
      compared_error > 0 ? fmt::format("within {:.0f} % of chips", 100 * compared_error) : "never compared");
}

std::string rate_number(double per_second) {
  const double rate = std::max(0.0, per_second);
  return rate < 10 ? fmt::format("{:.2g}", rate) : grouped(static_cast<std::uint64_t>(std::llround(rate)));
}

std::string rate_text(double samples_per_second) {
  return rate_number(samples_per_second) + " samples/s";
}

}  // namespace poprun::launcher
