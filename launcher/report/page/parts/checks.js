// Checks that the parts of each bar sum to the bytes in the profile. The views show what differs.
import {grouped, h} from '../dom.js';

const sumOf = (list) => list.reduce((sum, one) => sum + one, 0);

/** Returns a list of differences for the tiles of an IPU, as texts; empty: every sum agrees. */
export function checkTiles(job, k) {
  const ipu = job.report.ipus[k];
  const differences = [];
  const compare = (what, sum, stated) => {
    if (sum !== stated) {
      differences.push(`${what}: the parts sum to ${grouped(sum)} B, the profile says ${grouped(stated)} B`);
    }
  };
  let peaks = 0;
  ipu.classes.forEach((one, c) => {
    const tile = `tile ${one.tiles[0].first}`;
    compare(`${tile}, always live by category`, sumOf(one.atPeak.alwaysLive), one.alwaysLive);
    compare(`${tile}, not always live by category`, sumOf(one.atPeak.notAlwaysLive), one.notAlwaysLive);
    compare(`${tile}, regions`, one.alwaysLive + one.notAlwaysLive + one.gaps, one.peak);
    compare(`${tile}, overflow`, Math.max(0, one.peak - ipu.bytesPerTile), one.overflowed);
    compare(
      `${tile}, variables at step ${one.worstStep}`,
      job.memory.bytesOfClasses(k, one.worstStep)[c],
      one.alwaysLive + one.notAlwaysLive,
    );
    peaks += one.peak * tilesOf(one);
  });
  compare(`IPU ${k}, peaks of all tiles`, peaks, ipu.peak);
  const {liveness} = ipu;
  compare(
    `IPU ${k}, categories at step ${liveness.worstStep}`,
    sumOf(ipu.atPeak.alwaysLive) + sumOf(ipu.atPeak.notAlwaysLive),
    liveness.alwaysLive + liveness.notAlwaysLive[liveness.worstStep],
  );
  return differences;
}

/** Returns the number of tiles of a class. */
export const tilesOf = (one) => one.tiles.reduce((sum, span) => sum + span.last - span.first + 1, 0);

/** Returns a visible warning if there are differences; otherwise the text of the check. */
export function verdictOf(differences, checked) {
  if (differences.length === 0) {
    return h('p', {class: 'hint'}, checked);
  }
  return h(
    'p',
    {class: 'bad', role: 'alert'},
    `Warning: ${grouped(differences.length)} sums differ from the profile. `,
    differences.slice(0, 5).join('; '),
    differences.length > 5 ? ' ...' : '',
  );
}
