#include "launcher/screen/job_rows.h"

#include <gtest/gtest.h>

namespace poprun::launcher::job_rows_test {
namespace {

std::string time_of(double busy_seconds, double idle_seconds) {
  proto::IpuTime time;
  time.set_busy_seconds(busy_seconds);
  time.set_idle_seconds(idle_seconds);
  return time_text(time);
}

proto::HostTime host(double to_device, double from_device, double stream, double calls, double call) {
  proto::HostTime host;
  host.set_bytes_to_device(to_device);
  host.set_bytes_from_device(from_device);
  host.set_stream_seconds(stream);
  host.set_calls(calls);
  host.set_call_seconds(call);
  return host;
}

TEST(JobRows, GiveBothTimesInOneUnit) {
  EXPECT_EQ(time_of(1.709e-3, 715.9e-6), "1.709 ms busy, 0.716 ms idle");
  EXPECT_EQ(time_of(600e-6, 500e-6), "0.600 ms busy, 0.500 ms idle");
  EXPECT_EQ(time_of(115.2e-6, 0), "115.2 us busy, 0.0 us idle");
  EXPECT_EQ(time_of(0.4, 0.7), "0.40 s busy, 0.70 s idle");
}

TEST(JobRows, GiveMemoryWithoutZeroes) {
  proto::IpuMemory memory;
  memory.set_peak(2'621'440);
  memory.set_capacity(940'572'672);
  memory.set_always_live(38'400);
  EXPECT_EQ(memory_text(memory, false), "2.5 MiB peak of 897.0 MiB, 37.5 KiB always live");
  EXPECT_EQ(memory_text(memory, true, ", planned"),
            "2.5 MiB peak of 897.0 MiB, 37.5 KiB always live, planned: the fullest");
}

TEST(JobRows, TellTheHostsPartOfAStepAndWhatComesBesides) {
  EXPECT_EQ(host_text(host(602'112.0 * 20, 80'000, 2.19e-3, 1, 1.68e-3)),
            "11.5 MiB in, 78.1 KiB out, 2.190 ms included; 1 call, 1.680 ms on top (fitted)");
  EXPECT_EQ(host_text(host(12.5, 0, 1e-6, 1.0 / 100, 18.5e-6)),
            "12 B in, 0 B out, 1.0 us included; 1 call in 100, 18.5 us on top (fitted)");
  EXPECT_EQ(host_text(host(12.5, 0, 1e-6, 1, 0)), "12 B in, 0 B out, 1.0 us included");  // The call's is unknown.
  proto::HostTime counted = host(12.5, 0, 1e-6, 1, 0.16);
  counted.set_calls_are_counted(true);
  EXPECT_EQ(host_text(counted), "12 B in, 0 B out, 1.0 us included; 1 call, 160.000 ms included (device.host-call)");
}

TEST(JobRows, TellWhatOfTransfersByIoTilesIsHidden) {
  proto::DeviceTime device;
  device.set_io_seconds(5.01e-3);
  device.set_io_waited_seconds(1.81e-3);
  JobRows rows;
  add_device_time(rows, device, {}, {});
  EXPECT_EQ(rows.back().second, "5.010 ms, 3.200 ms of it overlapped with the other tiles' work");
}

TEST(JobRows, ShowRatesBelowTenWithTwoDigits) {
  EXPECT_EQ(rate_text(0.2374), "0.24 samples/s");
  EXPECT_EQ(rate_text(2.4), "2.4 samples/s");
  EXPECT_EQ(rate_text(9.97), "10 samples/s");
  EXPECT_EQ(rate_text(10.4), "10 samples/s");
  EXPECT_EQ(rate_text(5119.7), "5,120 samples/s");
  EXPECT_EQ(rate_text(0), "0 samples/s");
}

}  // namespace
}  // namespace poprun::launcher::job_rows_test
