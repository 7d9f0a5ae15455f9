#include "launcher/screen/schedule_picture.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "replica/base/listed_rows.h"
#include "replica/base/text.h"

namespace poprun::launcher {
namespace {

std::int64_t columns_of(const proto::CycleSequence& sequence) {
  return std::int64_t{sequence.repeat()} * sequence.cycles_size();
}

/// Formats a part of a cycle's work, for the given round of the cycle's sequence.
std::string text_of(const proto::PartAtWork& work, std::int64_t round) {
  const std::int64_t number = work.micro_batch() + round + 1;
  if (!work.part().backward()) {
    return fmt::format("A{}", number);
  }
  return work.part().recomputes() ? fmt::format("R{0}G{0}", number) : fmt::format("G{}", number);
}

class Picture {
 public:
  Picture(const proto::StageSchedule& schedule, const PictureFrame& frame) : width_(frame.width), schedule_(schedule) {
    std::set<std::uint32_t> ipus;
    for (const proto::CycleSequence& sequence : schedule.sequences()) {
      count_ += columns_of(sequence);
      for (const proto::Cycle& cycle : sequence.cycles()) {
        for (const proto::PartAtWork& work : cycle.parts()) {
          ipus.insert(work.part().ipu());
        }
      }
    }
    for (const proto::IpuUpdate& update : schedule.updates()) {
      updates_[update.ipu()] = static_cast<std::int64_t>(update.cycle());
      count_ = std::max(count_, updates_[update.ipu()] + 1);
    }
    ipus_.assign(ipus.begin(), ipus.end());
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
    return joined(rows) + (left_out > 0 ? fmt::format(".. {} left out; a wider terminal shows more\n",
                                                      counted(static_cast<std::uint64_t>(left_out), "cycle"))
                                        : "");
  }

 private:
  static constexpr std::string_view kGap = " ..";

  struct Ends {
    std::int64_t head = 0;
    std::int64_t tail = 0;
  };

  /// Returns how many columns to show at each end: as many as fit and, if not all of them do, at least one at each end.
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

  [[nodiscard]] std::string cell(std::int64_t column, std::uint32_t ipu) const {
    const auto update = updates_.find(ipu);
    std::string text = update != updates_.end() && update->second == column ? "U" : "";
    for (const proto::CycleSequence& sequence : schedule_.sequences()) {
      if (column < columns_of(sequence)) {
        for (const proto::PartAtWork& work :
             sequence.cycles(static_cast<int>(column % sequence.cycles_size())).parts()) {
          text += work.part().ipu() == ipu ? text_of(work, column / sequence.cycles_size()) : "";
        }
        break;
      }
      column -= columns_of(sequence);
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

  /// Joins the rows. Adds a line wherever IPUs are left out.
  [[nodiscard]] std::string joined(const std::vector<std::string>& rows) const {
    std::string text;
    for (std::size_t k = 0; k < rows.size(); ++k) {
      text += listed_[k].left_out > 0 ? fmt::format("..  {} IPUs\n", listed_[k].left_out) : "";
      text += rows[k].substr(0, rows[k].find_last_not_of(' ') + 1) + "\n";
    }
    return text;
  }

  std::size_t width_;
  const proto::StageSchedule& schedule_;
  std::int64_t count_ = 0;                         ///< Number of columns.
  std::vector<std::uint32_t> ipus_;                ///< IPUs that work.
  std::vector<ListedRow> listed_;                  ///< Rows; their IPUs are indices of ipus_.
  std::map<std::uint32_t, std::int64_t> updates_;  ///< Column of the update, by IPU.
};

}  // namespace

std::string schedule_picture(const proto::StageSchedule& schedule, const PictureFrame& frame) {
  return Picture(schedule, frame).text();
}

}  // namespace poprun::launcher
