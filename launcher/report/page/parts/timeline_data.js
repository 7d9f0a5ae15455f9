// The bars of a Timeline (proto/report.proto) in a form that can be drawn and searched quickly.
import {doings} from '../data.js';

const laneNames = ['LANE_TILES', 'LANE_LINKS', 'LANE_IO'];
const doingNames = ['DOING_SYNC', 'DOING_EXCHANGE', 'DOING_COMPUTE', 'DOING_LINK', 'DOING_HOST', 'DOING_STREAMING'];
const laneTexts = ['', ' links', ' I/O tiles'];
const numberOf = (value, names) => (typeof value === 'number' ? value : Math.max(names.indexOf(value), 0));
export const kinds = doings.length;

const once = [0, 0];
const blurred = 3; // Pixels: bars that repeat faster are drawn as their mean.

/** Sums how much of each pixel each of `size` kinds of bar covers. */
class Cover {
  constructor(width, size) {
    this.width = width;
    this.size = size;
    this.parts = new Float32Array((width + 1) * size); // Of bars that cover a pixel in part.
    this.changes = new Float32Array((width + 1) * size); // Of the number of bars that cover a pixel as a whole, from this pixel on.
    this.running = new Float32Array(size);
  }

  clear() {
    this.parts.fill(0);
    this.changes.fill(0);
  }

  add(kind, a, b, weight) {
    const left = a < 0 ? 0 : a;
    const right = b > this.width ? this.width : b;
    if (right <= left) {
      return;
    }
    const x = Math.floor(left);
    const last = Math.floor(right);
    const {parts, changes, size} = this;
    if (x === last) {
      parts[x * size + kind] += (right - left) * weight;
      return;
    }
    parts[x * size + kind] += (x + 1 - left) * weight;
    parts[last * size + kind] += (right - last) * weight;
    changes[(x + 1) * size + kind] += weight;
    changes[last * size + kind] -= weight;
  }

  /** Returns the sums by pixel and kind. */
  sums() {
    const {parts, changes, running, size} = this;
    running.fill(0);
    for (let at = 0; at < parts.length; at += size) {
      for (let kind = 0; kind < size; ++kind) {
        running[kind] += changes[at + kind];
        parts[at + kind] += running[kind];
      }
    }
    return parts;
  }
}

export class Bars {
  constructor(timeline) {
    const list = (name) => timeline[name] ?? [];
    const count = list('begin').length;
    const numbers = (name, Type) => Type.from({length: count}, (_, k) => Number(list(name)[k] ?? 0));
    this.count = count;
    this.cycles = Number(timeline.cycles ?? 0);
    this.clock = Number(timeline.clockHz);
    this.leftOut = Number(timeline.leftOut ?? 0);
    this.step = numbers('step', Uint32Array);
    this.ipu = numbers('ipu', Uint32Array);
    this.begin = numbers('begin', Float64Array);
    this.length = numbers('length', Float64Array);
    this.microBatch = numbers('microBatch', Float64Array);
    this.repeats = numbers('count', Float64Array).map((n) => n || 1);
    this.distance = numbers('distance', Float64Array);
    this.lane = Uint8Array.from({length: count}, (_, k) => numberOf(list('lane')[k] ?? 0, laneNames));
    this.doing = Uint8Array.from({length: count}, (_, k) => numberOf(list('doing')[k] ?? 0, doingNames));
    this.busy = list('busy').map(Number);
    this.lanes = this.findLanes();
    this.drawn = this.repeats.reduce((sum, n) => sum + n, 0);
  }

  /** Returns [{ipu, lane, text, bars: indices}] with the tiles of every IPU, and its links and I/O tiles if they are used. */
  findLanes() {
    const lanes = new Map();
    const ipus = this.ipu.reduce((most, ipu) => Math.max(most, ipu + 1), this.busy.length);
    for (let ipu = 0; ipu < ipus; ++ipu) {
      lanes.set(ipu * 3, []);
    }
    for (let k = 0; k < this.count; ++k) {
      const key = this.ipu[k] * 3 + this.lane[k];
      lanes.get(key)?.push(k) ?? lanes.set(key, [k]);
    }
    return [...lanes]
      .sort((a, b) => a[0] - b[0])
      .map(([key, bars]) => {
        const [ipu, lane] = [Math.floor(key / 3), key % 3];
        return {ipu, lane, text: `IPU ${ipu}${laneTexts[lane]}`, bars: Uint32Array.from(bars)};
      });
  }

  /** Returns the cycles of each activity on the tiles of each IPU: [ipu][doing]. */
  sums() {
    const sums = this.lanes.reduce((rows, lane) => {
      rows[lane.ipu] ??= new Array(kinds).fill(0);
      return rows;
    }, []);
    for (let k = 0; k < this.count; ++k) {
      if (this.lane[k] === 0) {
        sums[this.ipu[k]][this.doing[k]] += this.length[k] * this.repeats[k];
      }
    }
    return sums;
  }

  /** Returns the first and last of a bar's repetitions that overlap the cycles [from, to); first > last if none does. */
  shown(k, from, to) {
    const repeats = this.repeats[k];
    if (repeats === 1) {
      return this.begin[k] < to && this.begin[k] + this.length[k] > from ? [0, 0] : [0, -1];
    }
    const first = Math.max(Math.floor((from - this.begin[k] - this.length[k]) / this.distance[k]) + 1, 0);
    return [first, Math.min(Math.ceil((to - this.begin[k]) / this.distance[k]) - 1, repeats - 1)];
  }

  /**
   * Returns {shares, size, wide} of a lane's cycles [from, to), drawn `width` pixels wide. shares[x * size + kind] is the part
   * of pixel x's time that goes to a kind of bar: its doing, plus `kinds` if `faded[step]` is set. `wide` lists the bars of
   * at least `edge` pixels as [bar, repetition, left, right]. Bars that repeat every few pixels are averaged. The next
   * call overwrites `shares`.
   */
  shares(lane, from, to, width, {edge = 3, faded = null} = {}) {
    const size = faded ? 2 * kinds : kinds;
    const cover = this.coverOf(width, size);
    const scale = width / (to - from);
    const wide = [];
    for (const k of lane.bars) {
      const begin = this.begin[k];
      const repeats = this.repeats[k];
      if (begin >= to || begin + (repeats - 1) * this.distance[k] + this.length[k] <= from) {
        continue;
      }
      const kind = this.doing[k] + (faded?.[this.step[k]] ? kinds : 0);
      const left = (begin - from) * scale;
      const long = this.length[k] * scale;
      const distance = this.distance[k] * scale;
      const [first, last] = repeats > 1 ? this.shown(k, from, to) : once;
      if (last > first && distance < blurred) {
        cover.add(kind, left + first * distance, left + (last + 1) * distance, this.length[k] / this.distance[k]);
        continue;
      }
      for (let n = first; n <= last; ++n) {
        const x = left + n * distance;
        cover.add(kind, x, x + long, 1);
        if (long >= edge) {
          wide.push([k, n, x, x + long]);
        }
      }
    }
    return {shares: cover.sums(), size, wide};
  }

  coverOf(width, size) {
    if (this.cover?.width !== width || this.cover.size !== size) {
      this.cover = new Cover(width, size);
    }
    this.cover.clear();
    return this.cover;
  }

  /** Returns {bar, repeat, others}: the longest bar of a lane in the cycles [from, to), and how many more there are. */
  at(lane, from, to) {
    let best = null;
    let found = 0;
    for (const k of lane.bars) {
      const [first, last] = this.shown(k, from, to);
      if (first <= last) {
        found += last - first + 1;
        best = best === null || this.length[k] > this.length[best.bar] ? {bar: k, repeat: first} : best;
      }
    }
    return best && {...best, others: found - 1};
  }

  /** Returns the bar of a lane that begins next after the cycle (or last before it, if `back`), or null. */
  next(lane, cycle, back = false) {
    let best = null;
    for (const k of lane.bars) {
      const distance = this.distance[k] || 1;
      const n = back
        ? Math.min(Math.ceil((cycle - this.begin[k]) / distance) - 1, this.repeats[k] - 1)
        : Math.max(Math.floor((cycle - this.begin[k]) / distance) + 1, 0);
      if (n < 0 || n >= this.repeats[k]) {
        continue;
      }
      const begin = this.begin[k] + n * this.distance[k];
      const better = back
        ? begin < cycle && (best === null || begin > best.begin)
        : begin > cycle && (best === null || begin < best.begin);
      best = better ? {bar: k, repeat: n, begin, others: 0} : best;
    }
    return best;
  }

  beginOf({bar, repeat}) {
    return this.begin[bar] + repeat * this.distance[bar];
  }
}
