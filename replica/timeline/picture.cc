#include "replica/timeline/picture.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "replica/base/error.h"
#include "replica/base/text.h"
#include "replica/timeline/timeline.h"

namespace poprun {
namespace {

using Steps = google::protobuf::RepeatedPtrField<proto::Step>;

/// Columns shown at each end of a long picture.
constexpr std::int64_t kEnd = 12;

/// A part of a stage at work.
struct Work {
  const proto::Part* part;
  std::int64_t micro_batch;
};

using Column = std::vector<Work>;

/// Columns that repeat, with micro-batches that are higher by one each time.
struct Columns {
  std::int64_t repeat = 1;
  std::vector<Column> round;

  [[nodiscard]] std::int64_t count() const {
    return repeat * static_cast<std::int64_t>(round.size());
  }
};

/// A column ends where the IPUs exchange what the next one needs. Within one, an IPU runs forward
/// parts before backward ones.
void add_columns(const Program& program, const Steps& steps, std::vector<Columns>& all) {
  Columns columns;
  bool begins = true;
  for (const proto::Step& step : steps) {
    if (step.has_repeat()) {
      all.push_back(std::exchange(columns, {}));
      const std::size_t first = all.size();
      add_columns(program, step.repeat().steps(), all);
      POPRUN_CHECK(all.size() == first + 1);
      all.back().repeat = step.repeat().count();
    }
    begins = begins || step.has_copy() || step.has_repeat();
    const proto::Function* callee = find_function(program, step.call().function());
    if (!step.has_call() || callee == nullptr || !callee->has_part()) {
      continue;
    }
    const proto::Part& part = callee->part();
    if (begins ||
        (!part.backward() && std::ranges::any_of(columns.round.back(), [&](const Work& work) {
          return work.part->ipu() == part.ipu() && work.part->backward();
        }))) {
      columns.round.emplace_back();
    }
    begins = false;
    columns.round.back().push_back({&part, step.call().micro_batch()});
  }
  all.push_back(std::move(columns));
}

std::string text_of(const Work& work, std::int64_t round) {
  const std::int64_t number = work.micro_batch + round + 1;
  if (!work.part->backward()) {
    return fmt::format("A{}", number);
  }
  return work.part->recomputes() ? fmt::format("R{0}G{0}", number) : fmt::format("G{}", number);
}

/// When the parts end, and the update's last step begins.
struct Ends {
  Cycles parts;
  std::map<std::uint32_t, Cycles> update;  ///< By IPU.
};

Ends ends_of(const Program& program, const proto::Function& function) {
  Ends ends;
  std::map<std::uint32_t, Cycles> part;  // By IPU.
  walk(program, function, [&](const Stretch& bar) {
    const Cycles end =
        bar.begin + bar.length + bar.distance * static_cast<std::int64_t>(bar.count - 1);
    if (bar.function.has_part()) {
      part[bar.ipu] = std::max(part[bar.ipu], end);
      ends.parts = std::max(ends.parts, end);
      ends.update.erase(bar.ipu);
    } else if (bar.step.has_execute() && part.contains(bar.ipu)) {
      ends.update[bar.ipu] = bar.begin;
    }
  });
  return ends;
}

class Picture {
 public:
  Picture(const Program& program, const proto::Function& function) {
    add_columns(program, function.steps(), runs_);
    for (const Columns& columns : runs_) {
      for (std::size_t k = 0; k < columns.round.size(); ++k) {
        for (const Work& work : columns.round[k]) {
          last_[work.part->ipu()] =
              count_ + columns.count() - static_cast<std::int64_t>(columns.round.size() - k);
          trains_ = trains_ || work.part->backward();
        }
      }
      count_ += columns.count();
    }
    if (trains_) {
      add_updates(ends_of(program, function));
    }
  }

  [[nodiscard]] std::string text() const {
    if (count_ == 0) {
      return {};
    }
    const bool cut = count_ > 2 * kEnd + 1;
    std::map<std::uint32_t, std::string> rows;
    for (const auto& [ipu, column] : last_) {
      rows[ipu] = fmt::format("IPU {} |", ipu);
    }
    for (std::int64_t column = 0; column < count_; ++column) {
      add_column(cells(column), rows);
      if (cut && column + 1 == kEnd) {
        add_column({}, rows, " ..");
        column = count_ - kEnd - 1;
      }
    }
    std::string text;
    for (const auto& [ipu, row] : rows) {
      text += row.substr(0, row.find_last_not_of(' ') + 1) + "\n";
    }
    return cut ? text + fmt::format(".. {} cycles left out\n", grouped(count_ - 2 * kEnd)) : text;
  }

 private:
  using Cells = std::map<std::uint32_t, std::string>;

  /// An IPU updates behind its last part, unless it waits for those of all others.
  void add_updates(const Ends& ends) {
    const std::int64_t behind_all = count_;
    for (const auto& [ipu, begin] : ends.update) {
      const std::int64_t column = begin >= ends.parts ? behind_all : last_.at(ipu) + 1;
      updates_[column].push_back(ipu);
      count_ = std::max(count_, column + 1);
    }
  }

  [[nodiscard]] Cells cells(std::int64_t column) const {
    Cells cells;
    if (const auto found = updates_.find(column); found != updates_.end()) {
      for (const std::uint32_t ipu : found->second) {
        cells[ipu] = "U";
      }
    }
    for (const Columns& columns : runs_) {
      if (column < columns.count()) {
        const auto width = static_cast<std::int64_t>(columns.round.size());
        for (const Work& work : columns.round[static_cast<std::size_t>(column % width)]) {
          cells[work.part->ipu()] += text_of(work, column / width);
        }
        break;
      }
      column -= columns.count();
    }
    return cells;
  }

  /// `others` is for IPUs that pause.
  static void add_column(Cells cells, Cells& rows, const std::string& others = "") {
    std::size_t width = others.size();
    for (const auto& [ipu, cell] : cells) {
      width = std::max(width, cell.size());
    }
    for (auto& [ipu, row] : rows) {
      row += others.empty() ? fmt::format(" {:<{}}", cells[ipu], width) : others;
    }
  }

  std::vector<Columns> runs_;
  std::int64_t count_ = 0;                                      ///< Columns.
  std::map<std::uint32_t, std::int64_t> last_;                  ///< Column by IPU.
  std::map<std::int64_t, std::vector<std::uint32_t>> updates_;  ///< IPUs by column.
  bool trains_ = false;
};

}  // namespace

std::string picture(const Program& program, const proto::Function& function) {
  return Picture(program, function).text();
}

}  // namespace poprun
