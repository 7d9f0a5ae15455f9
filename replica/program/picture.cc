#include "replica/program/picture.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "replica/base/error.h"
#include "replica/base/text.h"
#include "replica/program/timeline.h"
#include "replica/tables/ipu_table.h"

namespace poprun {
namespace {

using Steps = google::protobuf::RepeatedPtrField<proto::Step>;

/// A part of a stage at work.
struct Busy {
  const proto::Part* part;
  std::int64_t micro_batch;
};

using Column = std::vector<Busy>;

/// Columns that repeat, with micro-batches that are higher by one each time.
struct Columns {
  std::int64_t repeat = 1;
  std::vector<Column> round;

  [[nodiscard]] std::int64_t count() const { return repeat * static_cast<std::int64_t>(round.size()); }
};

const proto::Part* part_called(const Program& program, const proto::Step& step) {
  const proto::Function* callee = find_function(program, step.call().function());
  return step.has_call() && callee != nullptr && callee->has_part() ? &callee->part() : nullptr;
}

/// Adds the columns of `steps`. A column ends where the IPUs exchange the data for the next one. Within a column, an
/// IPU runs forward parts before backward ones.
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
    const proto::Part* part = part_called(program, step);
    if (part == nullptr) {
      begins = begins || step.has_copy() || step.has_repeat() || step.has_call();
      continue;
    }
    if (begins || (!part->backward() && std::ranges::any_of(columns.round.back(), [&](const Busy& work) {
          return work.part->ipu() == part->ipu() && work.part->backward();
        }))) {
      columns.round.emplace_back();
    }
    begins = false;
    columns.round.back().push_back({part, step.call().micro_batch()});
  }
  all.push_back(std::move(columns));
}

std::string text_of(const Busy& work, std::int64_t round) {
  const std::int64_t number = work.micro_batch + round + 1;
  if (!work.part->backward()) {
    return fmt::format("A{}", number);
  }
  return work.part->recomputes() ? fmt::format("R{0}G{0}", number) : fmt::format("G{}", number);
}

bool calls_part(const Program& program, const proto::Step& step) {
  return part_called(program, step) != nullptr ||
         std::ranges::any_of(step.repeat().steps(),
                             [&](const proto::Step& inner) { return calls_part(program, inner); });
}

/// Calls visit(step) for a step, or for those of the function that it calls.
template <typename Visit>
void for_each_step(const Program& program, const proto::Step& step, const Visit& visit) {
  if (!step.has_call()) {
    visit(step);
    return;
  }
  for (const proto::Step& inner : find_function(program, step.call().function())->steps()) {
    for_each_step(program, inner, visit);
  }
}

/// Returns the column of each IPU's update, given the columns of the IPUs' last parts. An update follows the last parts
/// of its IPU and of the IPUs for which it waits, directly or through others.
std::map<std::uint32_t, std::int64_t> columns_of_updates(const Program& program, const Steps& steps,
                                                         const std::map<std::uint32_t, std::int64_t>& last) {
  const auto parts_end = std::find_if(steps.rbegin(), steps.rend(), [&](const proto::Step& step) {
                           return calls_part(program, step);
                         }).base();
  std::map<std::uint32_t, std::int64_t> waited_for = last;
  std::map<std::uint32_t, std::int64_t> updates;
  const auto add = [&](const proto::Step& step) {
    const std::vector<std::uint32_t> ipus = ipus_of(program, step);
    std::int64_t column = 0;
    for (const std::uint32_t ipu : ipus) {
      column = std::max(column, waited_for[ipu]);
    }
    for (const std::uint32_t ipu : ipus) {
      waited_for[ipu] = column;
      if (step.has_execute() && last.contains(ipu)) {
        updates[ipu] = column + 1;
      }
    }
  };
  for (const proto::Step& step : std::ranges::subrange(parts_end, steps.end())) {
    for_each_step(program, step, add);
  }
  return updates;
}

class Picture {
 public:
  Picture(const Program& program, const proto::Function& function, const PictureFrame& frame) : width_(frame.width) {
    add_columns(program, function.steps(), runs_);
    std::map<std::uint32_t, std::int64_t> last;  // Column by IPU.
    bool trains = false;
    for (const Columns& columns : runs_) {
      for (std::size_t k = 0; k < columns.round.size(); ++k) {
        for (const Busy& work : columns.round[k]) {
          last[work.part->ipu()] = count_ + columns.count() - static_cast<std::int64_t>(columns.round.size() - k);
          trains = trains || work.part->backward();
        }
      }
      count_ += columns.count();
    }
    if (trains) {
      updates_ = columns_of_updates(program, function.steps(), last);
    }
    for (const auto& [ipu, column] : updates_) {
      count_ = std::max(count_, column + 1);
    }
    for (const auto& [ipu, column] : last) {
      ipus_.push_back(ipu);
    }
    listed_ = frame.all_ipus ? all_rows(ipus_.size()) : listed_rows(ipus_.size(), 0);
  }

  [[nodiscard]] std::string text() const {
    if (count_ == 0) {
      return {};
    }
    std::vector<std::string> rows;
    const std::size_t digits = fmt::format("{}", ipus_.back()).size();
    for (const ListedRow& row : listed_) {
      rows.push_back(fmt::format("IPU {:>{}} |", ipus_[row.index], digits));
    }
    const auto [head, tail] = ends_within(width_ - std::min(width_, rows[0].size()));
    for (std::int64_t column = 0; column < head; ++column) {
      add_column(column, rows);
    }
    const std::int64_t left_out = count_ - head - tail;
    if (left_out > 0) {
      std::ranges::for_each(rows, [](std::string& row) { row += kGap; });
    }
    for (std::int64_t column = count_ - tail; column < count_; ++column) {
      add_column(column, rows);
    }
    return joined(rows) +
           (left_out > 0 ? fmt::format(".. {} cycles left out; a wider terminal shows more\n", grouped(left_out)) : "");
  }

 private:
  static constexpr std::string_view kGap = " ..";

  struct Ends {
    std::int64_t head = 0;
    std::int64_t tail = 0;
  };

  /// Returns how many columns at either end fit beside the gap, evenly and at least one each; or all columns.
  [[nodiscard]] Ends ends_within(std::size_t width) const {
    Ends ends;
    std::size_t used = 0;
    while (ends.head < count_ && used <= width) {
      used += width_of(ends.head++);
    }
    if (used <= width) {
      return ends;
    }
    ends = {};
    used = kGap.size();
    for (bool grows = true; grows;) {
      grows = false;
      for (std::int64_t* end : {&ends.head, &ends.tail}) {
        const std::size_t more = width_of(end == &ends.head ? ends.head : count_ - 1 - ends.tail);
        if (ends.head + ends.tail < count_ && (*end == 0 || used + more <= width)) {
          used += more;
          ++*end;
          grows = true;
        }
      }
    }
    return ends;
  }

  /// Returns the text of an IPU's work in a column.
  [[nodiscard]] std::string cell(std::int64_t column, std::uint32_t ipu) const {
    const auto update = updates_.find(ipu);
    std::string text = update != updates_.end() && update->second == column ? "U" : "";
    for (const Columns& columns : runs_) {
      if (column < columns.count()) {
        const auto width = static_cast<std::int64_t>(columns.round.size());
        for (const Busy& work : columns.round[static_cast<std::size_t>(column % width)]) {
          text += work.part->ipu() == ipu ? text_of(work, column / width) : "";
        }
        break;
      }
      column -= columns.count();
    }
    return text;
  }

  /// Returns the width of a column, including the space before it.
  [[nodiscard]] std::size_t width_of(std::int64_t column) const {
    std::size_t width = 0;
    for (const ListedRow& row : listed_) {
      width = std::max(width, cell(column, ipus_[row.index]).size());
    }
    return width + 1;
  }

  void add_column(std::int64_t column, std::vector<std::string>& rows) const {
    const std::size_t width = width_of(column);
    for (std::size_t k = 0; k < rows.size(); ++k) {
      rows[k] += fmt::format(" {:<{}}", cell(column, ipus_[listed_[k].index]), width - 1);
    }
  }

  /// Joins the rows, with a mark where IPUs are left out.
  [[nodiscard]] std::string joined(const std::vector<std::string>& rows) const {
    std::string text;
    for (std::size_t k = 0; k < rows.size(); ++k) {
      text += listed_[k].left_out > 0 ? fmt::format("..  {} IPUs\n", listed_[k].left_out) : "";
      text += rows[k].substr(0, rows[k].find_last_not_of(' ') + 1) + "\n";
    }
    return text;
  }

  std::size_t width_;
  std::vector<Columns> runs_;
  std::int64_t count_ = 0;                         ///< Columns.
  std::vector<std::uint32_t> ipus_;                ///< IPUs that work.
  std::vector<ListedRow> listed_;                  ///< Rows; their IPUs are indices of ipus_.
  std::map<std::uint32_t, std::int64_t> updates_;  ///< Column by IPU.
};

}  // namespace

std::string picture(const Program& program, const proto::Function& function, const PictureFrame& frame) {
  return Picture(program, function, frame).text();
}

}  // namespace poprun
