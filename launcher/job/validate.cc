#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "launcher/job/questions.h"
#include "launcher/job/reports.h"
#include "launcher/job/subcommands.h"
#include "launcher/options/config_file.h"
#include "launcher/options/option_table.h"
#include "launcher/options/parse.h"
#include "launcher/screen/validation_table.h"
#include "launcher/validation/comparison.h"

namespace poprun::launcher {
namespace {

namespace fs = std::filesystem;

/// Returns the folders that contain rows: those of the request or, if it names none, that of the installation or else
/// that of the sources.
Result<std::vector<fs::path>> row_folders(const ValidateRequest& request) {
  if (!request.folders.empty()) {
    return std::vector<fs::path>(request.folders.begin(), request.folders.end());
  }
  for (const fs::path& candidate : {fs::path(installed_folder()) / "validate", fs::path("deploy/validate")}) {
    if (std::error_code error; fs::is_directory(candidate, error)) {
      return std::vector{candidate};
    }
  }
  return fail(ErrorCode::kUsage,
              "no folder with published results is installed; name one with --rows, such as deploy/validate of the "
              "sources");
}

/// Returns the files `*.cfg` of a folder, sorted. Errors: kUsage if there are none.
Result<std::vector<fs::path>> rows_in(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".cfg") {
      files.push_back(fs::absolute(entry.path()));
    }
  }
  if (files.empty()) {
    return fail(ErrorCode::kUsage,
                fmt::format("--rows {}: {}; a result is a file NAME.cfg with a section [published]", folder.string(),
                            error ? error.message() : "the folder contains no result"));
  }
  std::ranges::sort(files);
  return files;
}

/// Checks that our value for this job, product or all-reduce can be given in the unit of the published value.
Status check_unit(const fs::path& file, const Options& options) {
  std::string speed = "samples/s";
  if (const auto* estimate = std::get_if<EstimateRequest>(&options.request)) {
    speed = estimate->micro->has_all_reduce_bytes() ? "GB/s" : "TFLOP/s";
  }
  const std::string& unit = options.published.unit;
  return unit == speed || unit == "s"
             ? Status{}
             : fail(ErrorCode::kUsage, fmt::format("{}: published.unit = {} does not fit what is compared; use {} or s",
                                                   file.string(), unit, speed));
}

/// Returns the options of a row: those of `profile --no-run` or, if the row names a product or an all-reduce, of
/// `estimate`. Errors: kUsage as for any train.cfg, and if the file has no published value or a unit that does not fit.
Result<Options> options_of_row(const fs::path& file) {
  POPRUN_ASSIGN(const Published published, published_in(file.string()));
  const std::vector<std::string>& own = published.options;
  const bool is_micro = std::ranges::any_of(own, [](const std::string& word) {
    const OptionRow* row = word.starts_with("--") ? find_row(word.substr(2, word.find('=') - 2)) : nullptr;
    return row != nullptr && row->section == "estimate";
  });
  std::vector<std::string> arguments = {is_micro ? "estimate" : "profile"};
  if (!is_micro) {
    arguments.insert(arguments.end(), {"--no-run", "--allow-out-of-memory"});
  }
  arguments.insert(arguments.end(), own.begin(), own.end());
  arguments.push_back(file.string());
  POPRUN_ASSIGN(Options options, parse_options(arguments));
  POPRUN_TRY(check_unit(file, options));
  return options;
}

/// Fills in our value for a row if its job compiles. Returns the exit code.
int compare_job(const Options& options, Console& console, const Waiting& waiting, validation::Row& row) {
  const Result<proto::CompileQuestion> question = compile_question(options, console);
  if (!question) {
    return console.say(question.error());
  }
  return ask_replica<proto::CompileAnswer>(
      "--compile", question->SerializeAsString(), console,
      [&](const proto::CompileAnswer& answer) {
        const proto::CompiledJob& job = answer.job();
        const double items =
            static_cast<double>(job.batch_sizes().global_batch_size()) * row.published.items_per_sample;
        const double seconds = job.device().step_seconds();
        row.ours = row.published.unit == "s" || seconds == 0 ? seconds : items / seconds;
        row.items_per_step = items;
        row.accumulation = std::max(1U, options.config.training().gradient_accumulation());
        row.shortage = job.shortage();
        row.stated_error = job.device().compared_error();
        return std::string{};
      },
      waiting);
}

int compare_micro(const Options& options, Console& console, validation::Row& row) {
  return ask_micro(options, console, [&](const proto::MicroAnswer& answer) {
    row.ours = row.published.unit == "TFLOP/s" ? teraflops_per_second(answer)
               : row.published.unit == "GB/s"  ? gigabytes_per_second(answer)
                                               : answer.seconds();
    row.stated_error = answer.compared_error();
    return std::string{};
  });
}

/// Compares one row. If that is impossible, prints the reason, and marks the row as failed. Returns the exit code.
int compare_row(const fs::path& file, Console& console, const Waiting& waiting, validation::Row& row) {
  row.name = file.stem();
  const Result<Options> options = options_of_row(file);
  if (!options) {
    row.failure = "cannot be compared";
    return console.say(options.error());
  }
  row.published = options->published;
  const auto& topology = options->config.topology();
  row.replicas = topology.num_replicas();
  row.ipus = std::uint64_t{topology.num_replicas()} * topology.ipus_per_replica();
  const int code = options->subcommand() == Subcommand::kEstimate ? compare_micro(*options, console, row)
                                                                  : compare_job(*options, console, waiting, row);
  if (code != 0 || row.ours == 0) {
    row.failure = "cannot be compared";
  }
  return code;
}

}  // namespace

int validate(const Options& options, Console& console) {
  const auto& request = std::get<ValidateRequest>(options.request);
  const Result<std::vector<fs::path>> folders = row_folders(request);
  if (!folders) {
    return console.say(folders.error());
  }
  std::vector<fs::path> files;
  for (const fs::path& folder : *folders) {
    const Result<std::vector<fs::path>> own = rows_in(folder);
    if (!own) {
      return console.say(own.error());
    }
    files.insert(files.end(), own->begin(), own->end());
  }
  int code = 0;
  const fs::path started_in = fs::current_path();
  std::vector<validation::Row> rows;
  const auto began = std::chrono::steady_clock::now();
  for (const fs::path& file : files) {
    const std::string doing = fmt::format("{} of {}: {}", rows.size() + 1, files.size(), file.stem().string());
    console.say(doing);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - began;
    const double left = seconds_left(elapsed.count(), rows.size(), files.size());
    fs::current_path(file.parent_path());  // A row names files relative to its own folder.
    const int own = compare_row(file, console, {.doing = doing, .seconds = left}, rows.emplace_back());
    if (own > 128) {
      return own;  // A signal asked the launcher to end.
    }
    code = code == 0 ? own : code;
  }
  const std::string table = validation_table(rows);
  console.page(options.form == AnswerForm::kText ? table : answer_text(validation::answer_of(rows), options.form));
  std::error_code error;
  fs::current_path(started_in, error);
  report_text(options, console, "published results", table);
  return code;
}

}  // namespace poprun::launcher
