/// The pass "batch-norm-folding", and its verifier.

#include "tests/unit/replica/compiler/pass_text.h"

namespace poprun::batch_norm_folding_test {
namespace {

using namespace pass_text;
using ::testing::HasSubstr;

/// An inference job: z is normalised after a convolution with a bias, s after one whose result y2 is read again, and u
/// after none.
constexpr std::string_view kNorms = R"(
    tensor x : f32[1,2,4,4]{nhwc} stream
    tensor w : f32[3,2,1,1] parameter
    tensor bias : f32[3] parameter
    tensor w2 : f32[3,3,1,1] parameter
    tensor scale : f32[3] parameter
    tensor shift : f32[3] parameter
    tensor shift2 : f32[3] parameter
    tensor mean : f32[3] buffer
    tensor variance : f32[3] buffer
    tensor y : f32[1,3,4,4]{nhwc} activation
    tensor z : f32[1,3,4,4]{nhwc} activation
    tensor y2 : f32[1,3,4,4]{nhwc} activation
    tensor s : f32[1,3,4,4]{nhwc} activation
    tensor t : f32[1,3,4,4]{nhwc} activation
    tensor u : f32[1,3,4,4]{nhwc} activation
    function load
    repeat 1
    w = initialise() uniform=0.5
    bias = initialise() uniform=0.5
    w2 = initialise() uniform=0.5
    scale = initialise() constant=1.0
    shift = initialise() constant=0.0
    shift2 = initialise() constant=0.0
    mean = initialise() constant=0.0
    variance = initialise() constant=1.0
    function evaluate
    repeat 1
    x = stream_in() stream="test"
    y = conv2d(x, w, bias) dilation=[1,1] groups=1 pad=[0,0,0,0] stride=[1,1]
    z = batch_norm_inference(y, scale, shift, mean, variance) eps=0.1
    y2 = conv2d(z, w2) dilation=[1,1] groups=1 pad=[0,0,0,0] stride=[1,1]
    s = batch_norm_inference(y2, scale, shift2, mean, variance) eps=0.1
    t = add(s, y2)
    u = batch_norm_inference(t, scale, shift2, mean, variance) eps=0.1
    stream_out(u) stream="outputs"
)";

CompileOptions folding() {
  return options_with([](CompileOptions& o) {
    o.inference = true;
    o.fold_batch_norm = true;
  });
}

/// Returns an inference job whose graph is kNorms or a similar text.
Job inference_of(std::string_view text) {
  Job job = job_of(text);
  job.evaluation = Place{1, 0};
  return job;
}

std::string verdict_on_folded(const std::function<void(Job&)>& damage) {
  const Pass& pass = pass_of("batch-norm-folding");
  const Job before = inference_of(kNorms);
  Job job = before;
  EXPECT_TRUE(pass.run(folding(), job));
  EXPECT_TRUE(pass.verify(folding(), before, job)) << "before the damage";
  damage(job);
  const Status status = pass.verify(folding(), before, job);
  return status ? "" : status.error().message;
}

TEST(BatchNormFolding, MakesANormPartOfTheConvolutionThatItAloneReads) {
  const Pass& pass = pass_of("batch-norm-folding");
  const Job before = inference_of(kNorms);
  Job job = before;

  ASSERT_TRUE(pass.applies(folding()));
  ASSERT_TRUE(pass.run(folding(), job));

  EXPECT_TRUE(pass.verify(folding(), before, job));
  EXPECT_TRUE(verify_operations(job.graph));
  const std::string text = to_text(job.graph);
  EXPECT_THAT(text, HasSubstr("variance = initialise() constant=1.0\n"
                              "w, shift = fold_batch_norm(w, shift, scale, mean, variance, bias) "
                              "eps=0.1\n"
                              "function evaluate\n"));
  EXPECT_THAT(text, HasSubstr("x = stream_in() stream=\"test\"\n"
                              "z = conv2d(x, w, shift) dilation=[1,1] groups=1 pad=[0,0,0,0] stride=[1,1]\n"
                              "y2 = conv2d(z, w2) dilation"));
  EXPECT_EQ(
      testing::texts(job.notes),
      std::vector<std::string>{"model.fold-batch-norm: 1 of 3 batch norms folded into the convolutions before "
                               "them; the others do not follow a convolution, or share tensors with other operations"});
}

TEST(BatchNormFolding, LeavesWeightsThatOthersRead) {
  const auto with = [](std::string_view operand) {
    Job job = inference_of(kNorms);
    operations(job, *job.evaluation)
        .push_back({"stream_out", {job.graph.find(operand)}, {}, {{"stream", std::string{"outputs"}}}});
    EXPECT_TRUE(pass_of("batch-norm-folding").run(folding(), job));
    return to_text(job.graph).find("fold_batch_norm") != std::string::npos;
  };

  EXPECT_FALSE(with("w"));
  EXPECT_FALSE(with("shift"));
  EXPECT_FALSE(with("y"));
  EXPECT_TRUE(with("scale")) << "only read";
}

TEST(BatchNormFolding, IsRefusedInTraining) {
  const auto training = options_with([](CompileOptions& o) { o.fold_batch_norm = true; });
  Job job = inference_of(kNorms);
  const Pass& pass = pass_of("batch-norm-folding");
  ASSERT_TRUE(pass.applies(training));

  const Status status = pass.run(training, job);

  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kUsage);
  EXPECT_THAT(status.error().message, HasSubstr("needs model.mode = inference, but the mode is training"));
}

TEST(BatchNormFolding, MustFoldWhatItTakesAway) {
  EXPECT_THAT(verdict_on_folded([](Job& job) { remove(job, job.graph.load(), "fold_batch_norm"); }),
              HasSubstr("adds 0 folds, but removes 1 operation"));
  EXPECT_THAT(verdict_on_folded(
                  [](Job& job) { operations(job, job.graph.load()).back().inputs[3] = job.graph.find("variance"); }),
              HasSubstr("'w' is folded with the operands of another norm"));
  EXPECT_THAT(verdict_on_folded([](Job& job) { operations(job, job.graph.load()).back().attributes.set("eps", 0.2); }),
              HasSubstr("'w' is folded with the operands of another norm"));
  EXPECT_THAT(
      verdict_on_folded([](Job& job) { operations(job, *job.evaluation)[1].inputs[2] = job.graph.find("bias"); }),
      HasSubstr("'w' is folded, but its norm did not follow its convolution"));
  EXPECT_THAT(verdict_on_folded(
                  [](Job& job) { operations(job, *job.evaluation)[1].attributes.set("groups", std::int64_t{2}); }),
              HasSubstr("'w' is folded with the operands of another norm"));
  EXPECT_THAT(verdict_on_folded([](Job& job) { operations(job, *job.evaluation)[4].kind = "mul"; }),
              HasSubstr("adds 1 fold, but changes 2 operations"));
}

}  // namespace
}  // namespace poprun::batch_norm_folding_test
