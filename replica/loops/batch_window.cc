#include "replica/loops/batch_window.h"

#include <cstring>

#include <fmt/format.h>

namespace poprun {
namespace {

std::size_t readers_of(const google::protobuf::RepeatedPtrField<proto::Step>& steps,
                       std::string_view stream) {
  std::size_t count = 0;
  for (const proto::Step& step : steps) {
    count += readers_of(step.repeat().steps(), stream);
    count += step.has_stream_in() && step.stream_in().stream() == stream ? 1U : 0U;
  }
  return count;
}

}  // namespace

BatchWindow::BatchWindow(const Program& program, JobStream stream, HostStream& source)
    : source_(source) {
  for (const proto::Function& function : program.functions()) {
    readers_ += readers_of(function.steps(), name_of(stream));
  }
}

void BatchWindow::begin() {
  first_ = 0;
  window_.clear();
}

Status BatchWindow::write(const StreamPart& part) {
  while (first_ + window_.size() <= part.micro_batch) {
    POPRUN_ASSIGN(HostBatch batch, source_.next());
    window_.push_back({std::move(batch), readers_});
  }
  POPRUN_CHECK(part.micro_batch >= first_);
  Entry& entry = window_[part.micro_batch - first_];
  for (std::size_t k = 0; k < part.tensors.size(); ++k) {
    const HostTensor& tensor = part.tensors[k];
    const std::size_t field = part.fields.empty() ? k : part.fields[k];
    const bool there = field < entry.batch.tensors.size() &&
                       (!part.fields.empty() || entry.batch.tensors.size() == part.tensors.size());
    if (!there || entry.batch.tensors[field].size() != tensor.bytes.size()) {
      return fail(
          ErrorCode::kData,
          fmt::format("batch {} of the data server: tensor '{}' has {} B, but the model takes "
                      "{} B ({})",
                      entry.batch.sequence, tensor.name,
                      field < entry.batch.tensors.size() ? entry.batch.tensors[field].size() : 0,
                      tensor.bytes.size(), to_text(tensor.type)));
    }
    std::memcpy(tensor.bytes.data(), entry.batch.tensors[field].data(), tensor.bytes.size());
  }
  --entry.readers;
  while (!window_.empty() && window_.front().readers == 0) {
    window_.pop_front();
    ++first_;
  }
  return {};
}

}  // namespace poprun
