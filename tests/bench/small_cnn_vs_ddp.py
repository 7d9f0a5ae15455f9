#!/usr/bin/env python3
"""Training speed of the default job compared with PyTorch DDP over gloo: same model, 16 processes, micro-batch 16.

Both run alternately, for several rounds, on this machine; times are wall times. Exit code 0 if the job is fast enough,
1 if not or if something went wrong, 77 if Debian's python3-torch is missing.
"""
import sys

import ddp
import emulated_job as job

if __name__ == "__main__":
    sys.exit(ddp.compare(
        ddp.Comparison(title="small-cnn, 16 processes, micro-batch 16, float32", config=job.ROOT / "train.cfg",
                       peer="ddp_small_cnn.py", parameters=421642, required_ratio=3.0, steps=100, peer_steps=20),
        __doc__))
