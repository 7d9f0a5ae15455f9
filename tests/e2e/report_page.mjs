// Looks at every view of every job of a report.html in Chromium, with the keyboard alone, and prints what it saw as JSON:
//   node report_page.mjs REPORT [SCREENSHOTS] [WIDTH] [light|dark]
// report_page_test.py reads the output. The libraries are those of launcher/report/page.
import {createRequire} from 'node:module';
import {resolve} from 'node:path';

const root = process.env.POPRUN_EMU_ROOT;
const {chromium} = createRequire(`${root}/launcher/report/page/package.json`)('playwright-core');
const [report, screenshots, width = '1280', colorScheme = 'light'] = process.argv.slice(2);

const browser = await chromium.launch({executablePath: '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu']});
const page = await browser.newPage({viewport: {width: Number(width), height: 900}, colorScheme, offline: true});
const seen = {errors: [], requests: [], jobs: []};
page.on('console', (message) => message.type() === 'error' && seen.errors.push(message.text()));
page.on('pageerror', (error) => seen.errors.push(String(error)));
page.on(
  'request',
  (request) =>
    !request.url().startsWith('file:') && !request.url().startsWith('data:') && seen.requests.push(request.url()),
);
await page.goto(`file://${resolve(report)}`);
await page.waitForFunction(() => document.body.dataset.ready, undefined, {timeout: 60000});
const jobs = (await page.locator('select[aria-label=job] option').count()) || 1;

/** Returns what a reader sees of the view that is shown. */
const look = () =>
  page.evaluate(() => ({
    view: document.body.dataset.ready,
    heading: document.querySelector('h1')?.textContent ?? '',
    alerts: [...document.querySelectorAll('[role=alert]')]
      .filter((e) => !e.hidden && e.textContent)
      .map((e) => e.textContent),
    wide: document.documentElement.scrollWidth > document.documentElement.clientWidth,
    empty: [...document.querySelectorAll('canvas')].filter((c) => c.width === 0 || c.height === 0).length,
    words: document.getElementById('main').innerText,
  }));

for (let job = 0; job < jobs; ++job) {
  await page.evaluate((index) => {
    location.hash = `summary/${index}`;
  }, job);
  await page.waitForFunction(() => document.body.dataset.ready === 'summary');
  const tabs = await page.locator('nav a').count();
  const views = [];
  for (let tab = 1; tab <= tabs; ++tab) {
    const id = await page
      .locator('nav a')
      .nth(tab - 1)
      .evaluate((a) => a.hash.slice(1).split('/')[0]);
    await page.keyboard.press(String(tab));
    await page.waitForFunction((name) => document.body.dataset.ready === name, id, {timeout: 60000});
    await page.waitForTimeout(100);
    if (screenshots) {
      await page.screenshot({path: `${screenshots}/${job}-${id}-${width}-${colorScheme}.png`});
    }
    const view = await look();
    if (id === 'liveness') {
      view.frames = [];
      await page.locator('input[type=range]').first().focus();
      for (const key of ['Home', ...Array(20).fill('PageUp'), ...Array(20).fill('ArrowRight'), 'End']) {
        await page.keyboard.press(key);
        await page.waitForTimeout(30);
        view.frames.push(Number(await page.evaluate(() => document.body.dataset.frameMs)));
      }
      view.alerts = (await look()).alerts;
    }
    // The Tab key must reach what can be chosen, and show where it is.
    view.focused = [];
    for (let presses = 0; presses < 12; ++presses) {
      await page.keyboard.press('Tab');
      view.focused.push(await page.evaluate(() => document.activeElement?.tagName ?? ''));
    }
    await page.evaluate(() => document.activeElement?.blur());
    views.push(view);
  }
  seen.jobs.push(views);
}
await browser.close();
console.log(JSON.stringify(seen));
