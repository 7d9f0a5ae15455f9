#pragma once

#include <string>
#include <string_view>

#include <fmt/format.h>

/// A small job as text: a step with a tied weight, dropout, running statistics and running means, as a plain job and as
/// a grouped pipeline of two stages.
namespace poprun::testing {

/// Returns the job's tensors; `stage1` is the location of those that stage 1 computes, such as " ipu=1".
inline std::string tensors(std::string_view stage1) {
  return fmt::format(R"(
    tensor x : f32[4] stream
    tensor t : f32[4] stream{0}
    tensor rate : f32[] stream
    tensor w : f32[4] parameter
    tensor v : f32[4] optimizer-state
    tensor mean : f32[4] buffer
    tensor variance : f32[4] buffer
    tensor h : f32[4] activation
    tensor d : f32[4] activation
    tensor r : f32[4] activation
    tensor p : f32[4] activation{0}
    tensor e : f32[4] activation{0}
    tensor total : f32[4] metric{0}
    tensor gw1 : f32[4] gradient{0}
    tensor sum1 : f32[4] gradient{0}
    tensor gr : f32[4] activation{0}
    tensor gd : f32[4] activation
    tensor gh : f32[4] activation
    tensor gw0 : f32[4] gradient
    tensor sum0 : f32[4] gradient
    tensor xe : f32[4] stream
    tensor he : f32[4] activation
    tensor ye : f32[4] activation{0}
)",
                     stage1);
}

/// Returns the plain job, in which h and p both use the tied weight w.
inline std::string plain(int micro_batches, int batches = 5) {
  return tensors("") + fmt::format(R"(
    function load
    repeat 1
    w = initialise() uniform=0.5
    v = initialise() constant=0.0
    mean = initialise() constant=0.0
    variance = initialise() constant=1.0
    function train
    repeat 1
    rate = stream_in() stream="control"
    sum0 = fill() shape=[4] value=0.0
    sum1 = fill() shape=[4] value=0.0
    total = fill() shape=[4] value=0.0
    repeat {0}
    x, t = stream_in() stream="train"
    h = mul(x, w)
    d = dropout(h) key="a" rate=0.5
    r = relu(d)
    mean, variance = batch_norm_update(mean, variance, h, d) elements=8 momentum=0.1
    p = mul(r, w)
    e = sub(p, t)
    total = accumulate(total, e)
    gw1 = mul(e, r)
    sum1 = accumulate(sum1, gw1) mean=1
    gr = mul(e, w)
    gd = relu_gradient(r, gr)
    gh = dropout(gd) key="a" rate=0.5
    gw0 = mul(gh, x)
    sum0 = accumulate(sum0, gw0) mean=1
    repeat 1
    sum1 = accumulate(sum1, sum0)
    sum1, total = all_reduce(sum1, total) reduction="mean"
    w, v = momentum(w, sum1, v, rate) momentum=0.9 nesterov=0 scale=1.0 weight_decay=0.0
    stream_out(total) stream="step"
    function evaluate
    repeat {1}
    xe = stream_in() stream="test"
    he = mul(xe, w)
    ye = relu(he)
    stream_out(ye) stream="outputs"
    function save
    repeat 1
    stream_out(mean, variance, w) stream="weights"
)",
                                   micro_batches, batches);
}

/// Returns the pipeline. Stage 0 computes h, d and r, and recomputes d and r; stage 1 does everything else.
inline std::string pipelined(int micro_batches, int batches = 5) {
  return tensors(" ipu=1") + fmt::format(R"(
    tensor w@1 : f32[4] parameter ipu=1
    tensor r@1 : f32[4] activation ipu=1
    tensor gr@0 : f32[4] activation
    tensor sum1@0 : f32[4] gradient
    tensor x.stash : f32[3,4] activation
    tensor h.stash : f32[3,4] activation
    tensor x.restored : f32[4] activation
    tensor h.restored : f32[4] activation
    tensor d.again : f32[4] activation
    tensor r.again : f32[4] activation
    tensor he@1 : f32[4] activation ipu=1
    function load
    repeat 1
    w = initialise() uniform=0.5
    v = initialise() constant=0.0
    mean = initialise() constant=0.0
    variance = initialise() constant=1.0
    w@1 = copy(w)
    function train
    repeat 1
    rate = stream_in() stream="control"
    sum0 = fill() shape=[4] value=0.0
    sum1 = fill() shape=[4] value=0.0
    total = fill() shape=[4] value=0.0
    repeat 1
    call() function="forward.0" micro_batch=0
    r@1 = copy(r)
    call() function="forward.0" micro_batch=1
    call() function="forward.1" micro_batch=0
    call() function="backward.1" micro_batch=0
    r@1, gr@0 = copy(r, gr)
    repeat {0}
    call() function="forward.0" micro_batch=2
    call() function="forward.1" micro_batch=1
    call() function="backward.1" micro_batch=1
    call() function="backward.0" micro_batch=0
    r@1, gr@0 = copy(r, gr)
    repeat 1
    call() function="forward.1" micro_batch={2}
    call() function="backward.1" micro_batch={2}
    call() function="backward.0" micro_batch={1}
    gr@0 = copy(gr)
    call() function="backward.0" micro_batch={2}
    repeat 1
    sum1@0 = copy(sum1)
    sum1@0 = accumulate(sum1@0, sum0)
    total = all_reduce(total) reduction="mean"
    sum1@0 = all_reduce(sum1@0) background=1 reduction="mean"
    sum1@0 = await_all_reduces(sum1@0)
    w, v = momentum(w, sum1@0, v, rate) momentum=0.9 nesterov=0 scale=1.0 weight_decay=0.0
    w@1 = copy(w)
    stream_out(total) stream="step"
    function evaluate
    repeat 1
    call() function="evaluate.0" micro_batch=0
    he@1 = copy(he)
    repeat {3}
    call() function="evaluate.0" micro_batch=1
    call() function="evaluate.1" micro_batch=0
    he@1 = copy(he)
    repeat 1
    call() function="evaluate.1" micro_batch={3}
    function save
    repeat 1
    stream_out(mean, variance, w) stream="weights"
    function forward.0
    repeat 1
    x = stream_in() fields=[0] stream="train"
    x.stash = stash(x)
    h = mul(x, w)
    h.stash = stash(h)
    d = dropout(h) key="a" rate=0.5
    mean, variance = batch_norm_update(mean, variance, h, d) elements=8 momentum=0.1
    r = relu(d)
    function forward.1
    repeat 1
    @:1:forward t = stream_in() fields=[1] stream="train"
    @:1:forward p = mul(r@1, w@1)
    @:1:forward e = sub(p, t)
    @:1:forward total = accumulate(total, e)
    function backward.1
    repeat 1
    @:1:backward gw1 = mul(e, r@1)
    @:1:backward sum1 = accumulate(sum1, gw1) mean=1
    @:1:backward gr = mul(e, w@1)
    function backward.0
    repeat 1
    x.restored = restore(x.stash)
    h.restored = restore(h.stash)
    @:0:recomputed d.again = dropout(h.restored) key="a" rate=0.5
    @:0:recomputed r.again = relu(d.again)
    @:0:backward gd = relu_gradient(r.again, gr@0)
    @:0:backward gh = dropout(gd) key="a" rate=0.5
    @:0:backward gw0 = mul(gh, x.restored)
    @:0:backward sum0 = accumulate(sum0, gw0) mean=1
    function evaluate.0
    repeat 1
    xe = stream_in() stream="test"
    he = mul(xe, w)
    function evaluate.1
    repeat 1
    ye = relu(he@1)
    stream_out(ye) stream="outputs"
)",
                                         micro_batches - 2, micro_batches - 2, micro_batches - 1, batches - 1);
}

}  // namespace poprun::testing
