// The page of report.html: reads the data, and shows one view of one job at a time.
import {h, select} from './dom.js';
import {readData} from './data.js';
import {views} from './views/index.js';

function place() {
  const [view, job] = location.hash.slice(1).split('/');
  return {view, job: Number(job) || 0};
}

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  document.dispatchEvent(new Event('themechange'));
}

function show(data) {
  const at = place();
  const index = Math.min(at.job, data.jobs.length - 1);
  const job = data.jobs[index];
  const able = views.filter((view) => view.applies(job, data));
  const view = able.find((one) => one.id === at.view) ?? able[0];
  const tabs = able.map((one, k) =>
    h(
      'a',
      {href: `#${one.id}/${index}`, 'aria-current': one === view ? 'page' : undefined, title: `key ${k + 1}`},
      one.title,
    ),
  );
  const jobs =
    data.jobs.length < 2
      ? null
      : select(
          data.jobs.map((one, k) => [k, one.name]),
          index,
          (k) => {
            location.hash = `${view.id}/${k}`;
          },
          'job',
        );
  const dark = matchMedia('(prefers-color-scheme: dark)').matches;
  const other = (document.documentElement.dataset.theme ?? (dark ? 'dark' : 'light')) === 'dark' ? 'light' : 'dark';
  document.getElementById('header').replaceChildren(
    h('strong', {}, jobs ? 'poprun-emu' : job.name),
    jobs ?? '',
    h('nav', {'aria-label': 'views'}, tabs),
    h(
      'button',
      {
        onclick: () => {
          setTheme(other);
          show(data);
        },
      },
      other,
    ),
  );
  document.title = `${view.title}: ${job.name}`;
  const main = document.getElementById('main');
  main.replaceChildren();
  view.render(main, job, data);
  document.body.dataset.ready = view.id;
}

async function start() {
  const data = await readData(document.getElementById('data').textContent);
  show(data);
  addEventListener('hashchange', () => {
    show(data);
    document.getElementById('main').focus({preventScroll: true});
    scrollTo(0, 0);
  });
  addEventListener('keydown', (event) => {
    if (
      !event.ctrlKey &&
      !event.altKey &&
      !event.metaKey &&
      !/INPUT|SELECT|TEXTAREA/.test(event.target.tagName) &&
      /^[1-9]$/.test(event.key)
    ) {
      document.querySelectorAll('nav a')[Number(event.key) - 1]?.click();
    }
  });
}

start().catch((error) => {
  document
    .getElementById('main')
    .replaceChildren(h('p', {class: 'bad'}, `The data of this report cannot be read: ${error.message}`));
  throw error;
});
