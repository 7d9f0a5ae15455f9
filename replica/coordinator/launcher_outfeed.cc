#include "replica/coordinator/launcher_outfeed.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "replica/coordinator/coordinator_client.h"

namespace poprun {
namespace {

constexpr std::size_t kPieceBytes = 1 << 20;

}  // namespace

Status LauncherOutfeed::push(std::uint64_t batch, std::string_view type,
                             std::span<const std::int64_t> shape, std::span<const std::byte> data) {
  std::vector<std::uint64_t> items(static_cast<std::size_t>(shape[0]));
  const std::size_t counted = items_of_(batch, items);
  const std::size_t row_bytes = data.size() / items.size();
  for (std::size_t row = 0; row < counted; ++row) {
    for (std::size_t sent = 0; sent < row_bytes; sent += kPieceBytes) {
      const auto piece =
          data.subspan(row * row_bytes + sent, std::min(kPieceBytes, row_bytes - sent));
      proto::ReportItem report;
      proto::OutputPiece& output = *report.mutable_output();
      output.set_type(std::string{type});
      output.mutable_shape()->Add(shape.begin(), shape.end());
      output.set_shape(0, static_cast<std::int64_t>(items_));
      output.set_offset(items[row] * row_bytes + sent);
      output.set_data(piece.data(), piece.size());
      POPRUN_TRY(client_.report(std::move(report)));
    }
  }
  return {};
}

}  // namespace poprun
