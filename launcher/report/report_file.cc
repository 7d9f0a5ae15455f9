#include "launcher/report/report_file.h"

#include <filesystem>
#include <sstream>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/gzip_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <nlohmann/json.hpp>

#include "launcher/outputs/profile_file.h"
#include "launcher/outputs/read_file.h"
#include "launcher/outputs/replica_samples.h"
#include "launcher/outputs/result_files.h"
#include "launcher/report/device_trace.h"
#include "launcher/report/memory_viz.h"
#include "replica/base/sha256.h"

namespace poprun::launcher {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::uint64_t kFileBytesMax = std::uint64_t{1} << 31;
constexpr int kSchema = 1;

/// Returns the page without data. It lies in PREFIX/share/poprun-emu or, in a build folder, in share.
Result<std::string> empty_page() {
  std::error_code error;
  const fs::path prefix = fs::read_symlink("/proc/self/exe", error).parent_path().parent_path();
  for (const char* const place : {"share/poprun-emu/report.html", "share/report.html"}) {
    if (fs::is_regular_file(prefix / place, error)) {
      return read_file((prefix / place).string(), kFileBytesMax);
    }
  }
  return fail(
      ErrorCode::kUsage,
      "this build has no page for report.html, because esbuild or uPlot was missing; run deploy/setup and build "
      "again");
}

Result<std::string> if_there(const fs::path& file) {
  std::error_code error;
  return fs::is_regular_file(file, error) ? read_file(file.string(), kFileBytesMax) : std::string{};
}

/// Converts a table with a heading to an object with a list of strings for each column. A last line that is incomplete
/// is left out.
Json columns_of(const std::string& csv) {
  std::vector<std::pair<std::string, Json>> columns;
  std::istringstream lines(csv);
  for (std::string line; std::getline(lines, line) && !lines.eof();) {
    std::vector<std::string> cells;
    std::istringstream cut(line);
    for (std::string cell; std::getline(cut, cell, ',');) {
      cells.push_back(std::move(cell));
    }
    if (columns.empty()) {
      for (std::string& name : cells) {
        columns.emplace_back(std::move(name), Json::array());
      }
      continue;
    }
    for (std::size_t k = 0; k < columns.size(); ++k) {
      columns[k].second.push_back(k < cells.size() ? cells[k] : "");
    }
  }
  Json table = Json::object();
  for (auto& [name, values] : columns) {
    table[name] = std::move(values);
  }
  return table;
}

Result<Json> json_of(const ReportedJob& job) {
  Json json = {{"name", job.name}};
  if (job.profile) {
    POPRUN_ASSIGN(const std::string profile, message_json(*job.profile, JsonKeys::kCamelCase, JsonEnums::kNumbers));
    json["profile"] = Json::parse(profile);
  }
  if (!job.metrics.empty()) {
    json["metrics"] = columns_of(job.metrics);
  }
  if (!job.replicas.empty()) {
    json["replicas"] = columns_of(job.replicas);
  }
  if (!job.failure.empty()) {
    json["failure"] = job.failure;
  }
  if (!job.check.empty()) {
    json["check"] = Json::parse(job.check, nullptr, /*allow_exceptions=*/false);
  }
  if (!job.text.empty()) {
    json["text"] = job.text;
  }
  if (!job.scaling.empty()) {
    json["scaling"] = Json::parse(job.scaling, nullptr, /*allow_exceptions=*/false);
  }
  return json;
}

std::string compressed(const std::string& data) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::GzipOutputStream::Options options;
  options.compression_level = 9;
  google::protobuf::io::GzipOutputStream gzip(&stream, options);
  google::protobuf::io::CodedOutputStream(&gzip).WriteString(data);
  gzip.Close();
  return bytes;
}

}  // namespace

Result<ReportedJob> read_reported_job(const std::string& folder) {
  const fs::path path(folder);
  ReportedJob job;
  job.name = path.lexically_normal().filename().string();
  std::error_code error;
  if (job.name.empty() || job.name == ".") {
    job.name = fs::canonical(path, error).filename().string();
  }
  // Both files contain the same message; profile.pb is faster to read.
  for (const char* const name : {"profile.pb", "profile.json"}) {
    if (!job.profile && fs::is_regular_file(path / name, error)) {
      POPRUN_ASSIGN(job.profile, read_any_profile((path / name).string()));
    }
  }
  POPRUN_ASSIGN(job.metrics, if_there(path / "metrics.csv"));
  POPRUN_ASSIGN(job.replicas, if_there(path / kReplicaSamples));
  POPRUN_ASSIGN(job.failure, if_there(path / "failure.txt"));
  POPRUN_ASSIGN(job.check, if_there(path / "check.json"));
  if (!job.profile && job.metrics.empty() && job.failure.empty() && job.check.empty()) {
    return fail(ErrorCode::kData, fmt::format("{}: this folder contains no results of a job, such as profile.json or "
                                              "metrics.csv; name the --output-dir of a job",
                                              folder));
  }
  return job;
}

Result<std::string> page_data(const std::vector<ReportedJob>& jobs) {
  Json data = {{"schema", kSchema}, {"version", POPRUN_VERSION}, {"jobs", Json::array()}};
  for (const ReportedJob& job : jobs) {
    POPRUN_ASSIGN(Json json, json_of(job));
    data["jobs"].push_back(std::move(json));
  }
  return data.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

Status write_report(const std::string& path, const std::vector<ReportedJob>& jobs) {
  POPRUN_ASSIGN(const std::string page, empty_page());
  POPRUN_ASSIGN(const std::string data, page_data(jobs));
  constexpr std::string_view kMark = "/*DATA*/";
  const std::size_t mark = page.find(kMark);
  POPRUN_CHECK(mark != std::string::npos);
  const std::string_view all(page);
  return write_whole_file(path, {all.substr(0, mark), base64(compressed(data)), all.substr(mark + kMark.size())});
}

Result<std::uint64_t> write_traces(const std::string& folder, const proto::Profile& profile) {
  const DeviceTrace trace = device_trace(profile.report());
  POPRUN_TRY(write_whole_file(fmt::format("{}/{}", folder, kTraceFile), {trace.bytes}));
  POPRUN_TRY(write_whole_file(folder + "/memory.pickle", {memory_snapshot(profile.report(), SnapshotOf::kIpus)}));
  POPRUN_TRY(write_whole_file(folder + "/memory-tiles.pickle",
                              {memory_snapshot(profile.report(), SnapshotOf::kFullestTiles)}));
  return trace.left_out;
}

}  // namespace poprun::launcher
