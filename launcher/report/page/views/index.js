// The views in the order of their tabs. Each exports {id, title, applies(job, data), render(root, job, data)}.
import {view as summary} from './summary.js';
import {view as memory} from './memory.js';
import {view as liveness} from './liveness.js';
import {view as program} from './program.js';
import {view as operations} from './operations.js';
import {view as execution} from './execution.js';
import {view as why} from './why.js';
import {view as training} from './training.js';
import {view as scaling} from './scaling.js';
import {view as compare} from './compare.js';

export const views = [summary, memory, liveness, program, operations, execution, why, training, scaling, compare];
