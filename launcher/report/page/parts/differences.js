// The differences between the configurations of two jobs.
import {grouped} from '../dom.js';

/** The properties that variants of one job share: [name, function of a profile]. */
const identities = [
  ['model', (profile) => profile.config?.model?.name],
  ['mode', (profile) => profile.config && (profile.config.inference ? 'inference' : 'training')],
  ['parameters', (profile) => Number(profile.parameterCount ?? 0)],
  ['micro-batch size', (profile) => Number(profile.batchSizes?.microBatchSize ?? 0)],
  ['replica batch size', (profile) => Number(profile.batchSizes?.replicaBatchSize ?? 0)],
  ['global batch size', (profile) => Number(profile.batchSizes?.globalBatchSize ?? 0)],
  ['replicas', (profile) => profile.config?.topology?.numReplicas],
  ['IPUs per replica', (profile) => profile.config?.topology?.ipusPerReplica],
  ['chip', (profile) => profile.config?.device?.ipu],
  ['clock in MHz', (profile) => (profile.device?.clockHz ?? 0) / 1e6],
];

const shown = (value) => (typeof value === 'number' ? grouped(value) : String(value));

/** Returns [{name, a, b}] for each property in which the jobs differ and that variants of one job would share. */
export function identityDifferences(jobs) {
  if (!jobs.every((job) => job.profile)) {
    return [];
  }
  return identities
    .map(([name, of]) => ({name, a: of(jobs[0].profile), b: of(jobs[1].profile)}))
    .filter((row) => row.a !== row.b);
}

/** Returns the differences as text: "model (gpt2, bert-large), chip (mk2, bow)". */
export const changedNames = (rows) => rows.map((row) => `${row.name} (${shown(row.a)}, ${shown(row.b)})`).join(', ');

/** Adds all values of a message to `values`, by their path. */
function flatten(value, path, values) {
  if (Array.isArray(value)) {
    const words = value.map((one) =>
      typeof one === 'object' && one !== null ? (one.text ?? JSON.stringify(one)) : String(one),
    );
    values.set(path, words.join(' '));
  } else if (typeof value === 'object' && value !== null) {
    Object.entries(value).forEach(([name, one]) => flatten(one, path ? `${path}.${name}` : name, values));
  } else {
    values.set(path, String(value));
  }
}

/** Returns "training.gradient-accumulation" for "training.gradientAccumulation". */
const optionName = (path) => path.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);

/** Returns [{name, a, b}] for each option with different values. */
export function configDifferences(jobs) {
  const [a, b] = jobs.map((job) => {
    const values = new Map();
    flatten(job.profile?.config ?? {}, '', values);
    return values;
  });
  const text = (values, name) => (values.has(name) ? values.get(name) || '(empty)' : '(not set)');
  return [...new Set([...a.keys(), ...b.keys()])]
    .filter((name) => (a.get(name) ?? '') !== (b.get(name) ?? ''))
    .map((name) => ({name: optionName(name), a: text(a, name), b: text(b, name)}));
}
