#include "replica/report/out_of_memory.h"

#include <algorithm>
#include <map>
#include <sstream>

#include <gmock/gmock.h>

#include "replica/base/text.h"

namespace poprun::out_of_memory_test {
namespace {

using ::testing::Each;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

constexpr std::uint64_t kTile = 1000;
constexpr std::uint32_t kSteps = 4;

/// A Program of four steps on IPUs of two tiles of 1,000 B. Each test chooses what the tiles store.
class SmallProgram {
 public:
  explicit SmallProgram(int ipus = 1) {
    program_.set_model("m");
    proto::Function& train = *program_.add_functions();
    train.set_name("train");
    for (std::uint32_t s = 0; s < kSteps; ++s) {
      proto::Step& step = *train.add_steps();
      step.set_number(s);
      step.mutable_execute()->set_operation("relu");
      step.mutable_execute()->set_name("y" + std::to_string(s));
    }
    for (int ipu = 0; ipu < ipus; ++ipu) {
      proto::IpuMemory& memory = *program_.add_memory();
      memory.set_capacity(2 * kTile);
      memory.set_bytes_per_tile(kTile);
      memory.mutable_layout()->add_classes()->add_tiles(0);
      memory.mutable_layout()->add_classes()->add_tiles(1);
    }
  }

  /// Adds a claim of `bytes` on tile 1 of an IPU, and of `other` bytes on its tile 0.
  SmallProgram& hold(const std::string& category, std::uint64_t bytes, std::uint32_t first = 0,
                     std::uint32_t last = kSteps - 1, int ipu = 0, std::uint64_t other = 0) {
    proto::TileLayout& layout = *program_.mutable_memory(ipu)->mutable_layout();
    proto::TileClaim& claim = *layout.add_claims();
    claim.set_category(category);
    claim.add_lives()->set_first(first);
    claim.mutable_lives(0)->set_last(last);
    layout.mutable_classes(0)->add_bytes(other);
    layout.mutable_classes(1)->add_bytes(bytes);
    return *this;
  }

  SmallProgram& hold_tensor(const std::string& name, proto::Role role, std::uint64_t bytes, std::uint32_t first = 0,
                            std::uint32_t last = kSteps - 1) {
    hold("tensors", bytes, first, last);
    proto::TileLayout& layout = *program_.mutable_memory(0)->mutable_layout();
    layout.mutable_claims(layout.claims_size() - 1)->add_tensors(static_cast<std::uint32_t>(program_.tensors_size()));
    proto::Tensor& tensor = *program_.add_tensors();
    tensor.set_name(name);
    tensor.set_role(role);
    tensor.set_bytes(bytes);
    return *this;
  }

  SmallProgram& is_copy(int tensor, std::uint32_t of) {
    program_.mutable_tensors(tensor)->set_copy_of(of);
    return *this;
  }

  SmallProgram& needs(std::uint64_t bytes, std::uint64_t of_all_tiles, int ipu = 0) {
    proto::IpuMemory& memory = *program_.mutable_memory(ipu);
    memory.set_fullest_tile(1);
    memory.set_fullest_tile_peak(bytes);
    memory.set_peak(of_all_tiles);
    return *this;
  }

  [[nodiscard]] std::string message(const MemoryAdvice& advice = {}) const {
    const Status status = check_fits(program_, [&] { return advice; });
    return status ? "" : status.error().message;
  }
  [[nodiscard]] const Program& program() const { return program_; }

 private:
  Program program_;
};

TEST(OutOfMemory, IsNoneWhereTheFullestTileIsJustFull) {
  EXPECT_EQ(SmallProgram().hold("vertex code", kTile).needs(kTile, kTile).message(), "");
  EXPECT_NE(SmallProgram().hold("vertex code", kTile + 8).needs(kTile + 8, kTile).message(), "");
}

/// Returns a Program whose tile has 1,196 of 1,300 B live at step 2: 696 B are always live and 500 B are not.
SmallProgram example() {
  SmallProgram program;
  program.hold_tensor("w", proto::ROLE_PARAMETER, 100)
      .hold_tensor("w.moment1", proto::ROLE_OPTIMIZER_STATE, 300)
      .hold_tensor("b.moment1", proto::ROLE_OPTIMIZER_STATE, 200)
      .hold("vertex code", 96)
      .hold("gaps", 4)
      .hold_tensor("x", proto::ROLE_ACTIVATION, 40, 1, 3)
      .hold_tensor("early", proto::ROLE_ACTIVATION, 480, 0, 0)
      .hold("temporaries", 460, 2, 2)
      .needs(1300, 1900);
  return program;
}

TEST(OutOfMemory, NamesTileStepBytesAndWhatTheTileHoldsThen) {
  EXPECT_EQ(example().message(),
            "out of memory: model m needs 1,300 B on tile 1 of IPU 0, 300 B more than the 1,000 B "
            "of a tile, at step 2 of the Program (train: relu 'y2')\n"
            "tile 1 of IPU 0 at that step, with the largest tensors:\n"
            "  always live                   696 B   54 %\n"
            "    optimiser state             500 B   38 %  w.moment1 300 B, b.moment1 200 B\n"
            "    weights                     100 B    8 %  w 100 B\n"
            "    vertex code                  96 B    7 %\n"
            "  not always live               500 B   38 %\n"
            "    temporaries                 460 B   35 %\n"
            "    activations                  40 B    3 %  x 40 B\n"
            "  gaps                          104 B    8 %\n"
            "  needed                      1,300 B  100 %  300 B over\n"
            "mostly optimiser state (38 %) and temporaries (35 %)\n"
            "IPU 0 as a whole: 1.9 KiB peak of 2.0 KiB: it would fit if spread evenly");
}

TEST(OutOfMemory, TellsFactsOfTheTile) {
  const Status status = check_fits(example().program());
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(status.error().facts.shortage, (Shortage{.needed = Bytes{1300}, .had = Bytes{1000}}));
}

TEST(OutOfMemory, SaysWhereTheIpuAsAWholeIsTooSmall) {
  EXPECT_THAT(SmallProgram().hold("vertex code", 1500).needs(1500, 2500).message(),
              EndsWith("mostly vertex code (100 %)\n"
                       "IPU 0 as a whole: 2.4 KiB peak of 2.0 KiB: too much even if spread evenly"));
}

TEST(OutOfMemory, PutsAdviceInTheFirstLineAndAfterTheTile) {
  const std::string message = example().message({"do it", "how to\n"});
  EXPECT_THAT(lines_of(message).front(), EndsWith("(train: relu 'y2'); do it"));
  EXPECT_THAT(message, EndsWith(": it would fit if spread evenly\nhow to"));
}

TEST(OutOfMemory, FitsAScreenWhateverTheTileHolds) {
  SmallProgram program;
  for (int i = 0; i < 12; ++i) {
    program.hold("kind " + std::to_string(i), 100);
    program.hold("other kind " + std::to_string(i), 100, 1, 1);
    program.hold_tensor(std::string(100, 'a') + std::to_string(i), proto::ROLE_PARAMETER, 10);
  }
  const std::string message = program.needs(2520, 2520).message();
  std::vector<std::string> lines = lines_of(message);
  EXPECT_THAT(message, HasSubstr("    8 others "));
  lines.erase(lines.begin());
  EXPECT_THAT(lines, SizeIs(Le(19)));
  EXPECT_THAT(lines, Each(SizeIs(Le(80))));
}

TEST(OutOfMemory, CountsCopiesAsWhatTheyAreCopiesOf) {
  SmallProgram program;
  program.hold_tensor("w", proto::ROLE_PARAMETER, 500)
      .hold_tensor("w@ipu1", proto::ROLE_ACTIVATION, 700)
      .is_copy(1, 0)
      .needs(1200, 1200);
  EXPECT_THAT(program.message(), HasSubstr("    weights                   1,200 B  100 %  w@ipu1 700 B, w 500 B\n"));
}

/// Returns the message for IPUs that need 1,100 B on a tile, except for the seventh IPU, which needs 1,200 B.
std::string message_with(int ipus) {
  SmallProgram program(ipus);
  for (int ipu = 0; ipu < ipus; ++ipu) {
    const std::uint64_t bytes = ipu == 6 ? 1200 : 1100;
    program.hold("vertex code", bytes, 0, kSteps - 1, ipu).needs(bytes, bytes, ipu);
  }
  return program.message();
}

TEST(OutOfMemory, ListsAFewOfManyIpus) {
  EXPECT_THAT(message_with(16), HasSubstr(" of IPU 6, 200 B more than "));
  EXPECT_THAT(message_with(16), EndsWith("the fullest tile of each IPU:\n"
                                         "  IPU 0        1,100 of 1,000 B, 100 B over\n"
                                         "  IPU 1        1,100 of 1,000 B, 100 B over\n"
                                         "  ..     4 IPUs omitted (--dry-run -vv lists all)\n"
                                         "  IPU 6        1,200 of 1,000 B, 200 B over\n"
                                         "  ..     8 IPUs omitted (--dry-run -vv lists all)\n"
                                         "  IPU 15       1,100 of 1,000 B, 100 B over"));
  EXPECT_THAT(message_with(8), Not(HasSubstr("  ..  ")));
}

TEST(OutOfMemory, IsNotedInOneLineWhereTheJobRunsAllTheSame) {
  EXPECT_EQ(allowance_note(check_fits(example().program()).error()),
            "out of memory: model m needs 1,300 B on tile 1 of IPU 0, 300 B more than the 1,000 B "
            "of a tile, at step 2 of the Program (train: relu 'y2'); the job runs anyway (--allow-out-of-memory)");
}

}  // namespace
}  // namespace poprun::out_of_memory_test
