#include "launcher/screen/drawings.h"

#include <algorithm>

#include <fmt/format.h>

#include "replica/base/text.h"

namespace poprun::launcher {
namespace {

constexpr std::size_t kLabel = 13;  // Including the axis.
constexpr std::uint64_t kFarBelow = 3;
constexpr std::uint64_t kThirds = 3;

class Curve {
 public:
  Curve(const proto::Liveness& liveness, const CurveFrame& frame)
      : liveness_(liveness),
        rows_(frame.rows),
        limit_(frame.limit),
        top_(frame.top > 0 ? frame.top : top_of(most_live_bytes(liveness), frame.limit)),
        steps_(static_cast<std::size_t>(liveness.not_always_live_size())),
        most_(std::max(frame.width, kLabel + 10) - kLabel) {
    for (std::size_t step = 0; step < steps_; ++step) {
      std::uint64_t& column = most_[column_of(step)];
      column = std::max(column, live_bytes(liveness, static_cast<std::uint32_t>(step)));
    }
    // If there are fewer steps than columns, each step covers several columns.
    for (std::size_t column = 0; column < most_.size() && steps_ > 0; ++column) {
      const std::size_t step = column * steps_ / most_.size();
      most_[column] = std::max(most_[column], live_bytes(liveness, static_cast<std::uint32_t>(step)));
    }
    draw();
  }

  void mark(std::uint32_t step, char letter) {
    const std::size_t column = column_of(step);
    std::size_t row = rows_;  // Rows are counted from the bottom; this one is above the curve.
    while (row > 0 && (cells_[row - 1][column] == ' ' || cells_[row - 1][column] == '-')) {
      --row;
    }
    char& cell = cells_[row][column];
    cell = cell == ' ' || cell == '-' ? letter : cell;
  }

  [[nodiscard]] std::string text(const std::vector<NamedStep>& names) const {
    std::string text;
    for (std::size_t row = cells_.size(); row-- > 0;) {
      const std::string line = fmt::format("{:>11} |{}", label(row), cells_[row]);
      text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
    text += fmt::format("{:>11} +{:->{}}\n", 0, "", most_.size());
    const std::string functions = names_line(names);
    return text + functions.substr(0, functions.find_last_not_of(' ') + 1) + "\n";
  }

 private:
  [[nodiscard]] std::size_t column_of(std::size_t step) const {
    return steps_ == 0 ? 0 : std::min(step * most_.size() / steps_, most_.size() - 1);
  }

  /// Returns the row of the limit. If the limit is the top, this is the row above the curve.
  [[nodiscard]] std::size_t limit_row() const { return static_cast<std::size_t>(limit_ * rows_ / top_); }

  void draw() {
    cells_.assign(rows_ + 1, std::string(most_.size(), ' '));
    if (limit_row() <= rows_) {
      cells_[limit_row()].assign(most_.size(), '-');
    }
    for (std::size_t column = 0; column < most_.size(); ++column) {
      const std::uint64_t thirds = (most_[column] * rows_ * kThirds + top_ / 2) / top_;
      for (std::size_t row = 0; row < rows_ && row * kThirds < thirds; ++row) {
        const std::uint64_t filled = std::min<std::uint64_t>(thirds - row * kThirds, kThirds);
        cells_[row][column] = cell(row, filled, most_[column]);
      }
    }
  }

  /// Returns the character for a row that is filled to `filled` thirds, in a column with `most` bytes.
  [[nodiscard]] char cell(std::size_t row, std::uint64_t filled, std::uint64_t most) const {
    const std::uint64_t middle = (2 * row + 1) * top_ / (2 * rows_);
    if (filled == kThirds && middle < liveness_.always_live()) {
      return '=';
    }
    if (most > limit_ && row >= limit_row()) {
      return '!';
    }
    return filled == kThirds ? '#' : filled == 2 ? ':' : '.';
  }

  [[nodiscard]] std::string label(std::size_t row) const {
    if (row == limit_row()) {
      return bytes_label(limit_, limit_);
    }
    return row == rows_ ? bytes_label(top_, limit_) : "";
  }

  /// Writes each name below the column where its function begins, if there is space.
  [[nodiscard]] std::string names_line(const std::vector<NamedStep>& names) const {
    std::string line(kLabel, ' ');
    for (const NamedStep& named : names) {
      const std::size_t at = kLabel + column_of(named.step);
      if (named.step < steps_ && (line.size() == kLabel || at > line.size()) &&
          at + named.name.size() <= kLabel + most_.size()) {
        line.resize(at, ' ');
        line += named.name;
      }
    }
    return line;
  }

  const proto::Liveness& liveness_;
  std::size_t rows_;
  std::uint64_t limit_;
  std::uint64_t top_;
  std::size_t steps_;
  std::vector<std::uint64_t> most_;  ///< Bytes of each column.
  std::vector<std::string> cells_;   ///< Rows, from the bottom, with one more row above the curve.
};

}  // namespace

std::string liveness_curve(const proto::Liveness& liveness, const CurveFrame& frame,
                           const std::vector<NamedStep>& names) {
  Curve curve(liveness, frame);
  for (std::size_t i = 0; i < std::min(frame.marks, static_cast<std::size_t>(liveness.peaks_size())); ++i) {
    curve.mark(liveness.peaks(static_cast<int>(i)).step(), static_cast<char>('1' + i));
  }
  return curve.text(names);
}

std::uint64_t top_of(std::uint64_t peak, std::uint64_t limit) {
  const bool near = peak <= limit && peak * kFarBelow >= limit;
  return std::max<std::uint64_t>(near ? limit : peak, 1);
}

std::string bytes_label(std::uint64_t bytes, std::uint64_t memory) {
  constexpr std::uint64_t kLarge = std::uint64_t{8} << 20;
  return memory < kLarge ? fmt::format("{:.1f} KiB", static_cast<double>(bytes) / 1024) : mebibytes_text(bytes);
}

std::uint64_t live_bytes(const proto::Liveness& liveness, std::uint32_t step) {
  return liveness.always_live() + liveness.not_always_live(static_cast<int>(step));
}

std::uint64_t most_live_bytes(const proto::Liveness& liveness) {
  return liveness.not_always_live_size() == 0 ? liveness.always_live() : live_bytes(liveness, liveness.worst_step());
}

std::string memory_bar(const std::vector<BarPart>& parts, std::uint64_t limit, std::size_t width, std::uint64_t scale) {
  std::uint64_t total = 0;
  for (const BarPart& part : parts) {
    total += part.bytes;
  }
  const std::uint64_t whole = std::max({total, limit, scale, std::uint64_t{1}});
  const std::size_t columns = std::max<std::size_t>(width, 2) - 1;  // One column shows the limit.
  std::string bar;
  std::size_t part = 0;
  std::uint64_t end = parts.empty() ? 0 : parts[0].bytes;  // End of the current part.
  for (std::size_t column = 0; column < columns; ++column) {
    const std::uint64_t middle = (2 * column + 1) * whole / (2 * columns);
    while (part < parts.size() && end <= middle) {
      ++part;
      end += part < parts.size() ? parts[part].bytes : 0;
    }
    bar += part < parts.size() ? parts[part].letter : middle < limit ? '.' : ' ';
  }
  const auto mark = static_cast<std::size_t>((limit * columns + whole / 2) / whole);
  bar.insert(std::min(mark, bar.size()), "|");
  return bar.substr(0, bar.find_last_not_of(' ') + 1);
}

}  // namespace poprun::launcher
