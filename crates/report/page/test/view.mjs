// Opens the page of `terrace view` in headless Chromium, served and as one file, over results that the program has just made, and
// checks what a reader would see: all runs, filters, differences with the numbers of `terrace diff`, reports, data structures.
//
//   node test/view.mjs [--screenshots DIRECTORY]
//
// TERRACE is the program; without it target/verify/terrace, which is built.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { example, serve_engine } from "./engine.mjs";
import { LOOKS, launch, open_page, run_all } from "./chromium.mjs";

const page_directory = resolve(fileURLToPath(import.meta.url), "../..");
const flag = process.argv.indexOf("--screenshots");
const screenshots = flag >= 0 ? resolve(process.argv[flag + 1]) : null;
const scratch = mkdtempSync(join(tmpdir(), "terrace-view-"));
const terrace = process.env.TERRACE ?? built();

function built() {
  const target = process.env.CARGO_TARGET_DIR ?? join(page_directory, "../../../target");
  // As the other tests are built, so that nothing is built twice.
  const build = ["build", "--quiet", "--workspace", "--bin", "terrace", "--profile", "verify"];
  execFileSync("cargo", build, { cwd: page_directory, stdio: ["ignore", "ignore", "inherit"] });
  return join(target, "verify/terrace");
}

const run = (...args) => execFileSync(terrace, args, { cwd: scratch, stdio: ["ignore", "pipe", "pipe"] }).toString();
const read = (...path) => JSON.parse(readFileSync(join(scratch, ...path), "utf8"));

const INPUTS = ["--workload", "gups,bytes=16 MiB,updates=5e4", "--workload", "kv,requests=2000,keys=40000"];
run("compare", "native-4k", "native-thp", ...INPUTS, "-o", "before");
run("compare", "native-4k", "native-thp", "native-2m", ...INPUTS, "--set", "native-4k:translation.l2.latency=18 cycles", "-o", "after");
writeFileSync(
  join(scratch, "sweep.toml"),
  'designs = ["native-4k"]\nworkloads = ["gups,bytes=16 MiB,updates=2e4"]\n[set]\n"translation.l2.latency" = ["9 cycles", "18 cycles"]\n',
);
run("sweep", "sweep.toml", "-o", "sweep");
run("tune", "ambix", "--fast", "50%", "--runs", "3", "--workload", "gups,bytes=4 MiB,updates=1e4", "--json", "tune.json");
run("advise", "--pages", "--no-intervals", "--workload", "kv,requests=2000,keys=10000", "--json", "pages.json");
mkdirSync(join(scratch, "damaged"));
writeFileSync(join(scratch, "damaged/results.json"), '{"schema": 2, "runs": [');
writeFileSync(join(scratch, "other.json"), '{"schema": 1, "claims": []}');
const ALL = read("before/results.json").runs.length + read("after/results.json").runs.length + 2 + 2 + read("pages.json").ways.length;

/** A server over the results: its address, and how to end it. */
async function serve(...args) {
  const child = spawn(terrace, ["view", ...args], { cwd: scratch, stdio: ["ignore", "pipe", "ignore"] });
  const url = await new Promise((found, failed) => {
    let text = "";
    child.on("exit", () => failed(new Error("terrace view has ended")));
    child.stdout.on("data", (part) => {
      text += part;
      if (text.includes("\n")) found(text.trim());
    });
  });
  child.removeAllListeners("exit");
  const ended = new Promise((done) => child.on("exit", (code) => done(code)));
  return { url, end: () => (child.kill("SIGTERM"), ended) };
}

const browser = await launch();
const served = await serve(".");
run("view", ".", "-o", "page.html");
const file = pathToFileURL(join(scratch, "page.html")).href;

const open = (url, hash = "", options = {}) => {
  const base = url.startsWith("file") ? /^(file|data|blob):/ : new RegExp(`^(${url}|data:|blob:)`);
  return open_page(browser, url + hash, (asked) => base.test(asked), options);
};
const rows = (page, table) =>
  page.$$eval(`${table} tbody tr`, (all) => all.map((row) => Object.fromEntries([...row.children].map((cell) => [cell.dataset.key, cell.dataset.value ?? cell.textContent]))));
const catalog = async (page) => {
  const embedded = await page.evaluate(() => document.getElementById("data")?.textContent ?? null);
  return embedded ? JSON.parse(embedded).catalog : page.evaluate(async () => (await fetch("catalog")).json());
};
const numbers = async (page) => Object.fromEntries((await catalog(page)).sets.map((set) => [set.path.replace("/results.json", ""), set.id]));
const close_to = (value, expected, what) => assert.ok(Math.abs(value - expected) <= 1e-12 * Math.abs(expected), `${what}: ${value} for ${expected}`);
const shown = (page, hash) => page.waitForFunction((hash) => document.documentElement.dataset.shown === hash, hash);
const go = async (page, hash) => {
  await page.evaluate((hash) => (location.hash = hash), hash);
  await shown(page, hash);
};

const tests = {};
for (const [kind, url] of [["served", served.url], ["as one file", file]]) {
  Object.assign(tests, {
    async [`${kind}: all runs of all sets are listed, and what is damaged is named`]() {
      const { page, errors, close } = await open(url);
      const listed = await rows(page, "#runs-table");
      assert.equal(listed.length, ALL);
      const before = listed.filter((row) => row.set === "before");
      assert.deepEqual(before.map((row) => [row.design, row.input, Number(row.seconds)]), read("before/results.json").runs.map((one) => [one.design, one.input, one.seconds_simulated]));
      const sweep = listed.filter((row) => row.set === "sweep");
      assert.deepEqual(sweep.map((row) => row.values).sort(), ["translation.l2.latency=18 cycles", "translation.l2.latency=9 cycles"]);
      const kinds = await page.$$eval("#sets-table tbody tr", (all) => all.map((row) => row.children[2].textContent).sort());
      assert.deepEqual(kinds, ["Advice on pages", "Runs", "Runs", "Sweep", "Tuning"]);
      const problems = await page.textContent(".problems");
      assert.match(problems, /^1 file cannot be shown/);
      assert.match(problems, /damaged\/results\.json.*damaged, or still being written/);
      assert.deepEqual(errors, []);
      await close();
    },

    async [`${kind}: filters by text, design and kind leave what matches`]() {
      const { page, errors, close } = await open(url);
      await page.fill("#results input[type=search]", "gups 4k before");
      assert.deepEqual((await rows(page, "#runs-table")).map((row) => [row.design, row.input, row.set]), [["native-4k", "gups", "before"]]);
      await page.fill("#results input[type=search]", "");
      await page.selectOption("#results select[aria-label=design]", "native-2m");
      assert.deepEqual(new Set((await rows(page, "#runs-table")).map((row) => row.design)), new Set(["native-2m"]));
      await page.selectOption("#results select[aria-label=design]", "");
      await page.selectOption("#results select[aria-label=kind]", "sweep");
      assert.equal((await rows(page, "#runs-table")).length, 2);
      await page.fill("#results input[type=search]", "nothing like this");
      assert.match(await page.textContent("#results"), /No run matches/);
      assert.deepEqual(errors, []);
      await close();
    },

    async [`${kind}: the differences of two sets are those of terrace diff`]() {
      const expected = JSON.parse(run("diff", "before", "after", "--json", "-"));
      const { page, errors, close } = await open(url);
      const id = await numbers(page);
      await go(page, `#/difference/${id.before}/${id.after}`);
      const times = await page.$$eval("#times-table tbody tr", (all) => all.map((row) => [...row.children].slice(1, 3).map((cell) => Number(cell.dataset.value))));
      assert.equal(times.length, expected.runs.length);
      times.forEach(([before, after], at) => {
        close_to(before, expected.runs[at].seconds.before, "before");
        close_to(after, expected.runs[at].seconds.after, "after");
      });
      const changed = expected.runs.filter((one) => one.statistics.length > 0 || Object.keys(one.parameters).length > 0);
      assert.ok(changed.length > 0, "the example changes nothing");
      const details = page.locator(".run-difference");
      assert.equal(await details.count(), changed.length);
      for (const [at, one] of changed.entries()) {
        const detail = details.nth(at);
        await detail.evaluate((element) => (element.open = true));
        const more = detail.locator("button.more");
        if ((await more.count()) > 0) await more.click();
        const statistics = await detail.locator(".changed-statistics tbody tr").evaluateAll((all) => all.map((row) => [row.children[0].textContent, { before: Number(row.children[2].dataset.value), after: Number(row.children[3].dataset.value) }]));
        assert.deepEqual(statistics.map(([name]) => name), one.statistics.map(([name]) => name));
        // The program reads numbers to fifteen digits, browsers to the last.
        statistics.forEach(([name, pair], at) => ["before", "after"].forEach((side) => close_to(pair[side], one.statistics[at][1][side], name)));
        const parameters = await detail.locator(".changed-parameters tbody tr").evaluateAll((all) => all.map((row) => [...row.children].map((cell) => cell.textContent)));
        assert.deepEqual(parameters, Object.entries(one.parameters).map(([key, [before, after]]) => [key, before ?? "not there", after ?? "not there"]));
      }
      const equal = expected.runs.length - changed.length;
      assert.ok(equal > 0 && (await page.textContent("#equal-runs")).startsWith(`${equal} run`));
      const only = await page.$$eval("#only li", (all) => all.map((item) => item.textContent));
      assert.deepEqual(only, expected.only_after.map((one) => `Only after: ${one.design} on ${one.input}, ${one.machine}`));
      assert.deepEqual(errors, []);
      await close();
    },

    async [`${kind}: two single runs are compared by a click on each`]() {
      const { page, errors, close } = await open(url);
      await page.fill("#results input[type=search]", "before gups");
      for (const box of await page.$$("#runs-table input[type=checkbox]")) await box.check();
      assert.match(await page.textContent(".tray"), /Before native-4k on gups.*After native-thp on gups/);
      await page.click(".tray .go");
      await page.waitForSelector(".changed-statistics");
      assert.match(await page.textContent(".run-difference summary"), /native-4k on gups.*→ native-thp on gups/);
      assert.deepEqual(errors, []);
      await close();
    },

    async [`${kind}: a run shows its report and its data structures, each with its addresses over time`]() {
      const { page, errors, close } = await open(url);
      const id = await numbers(page);
      const document = read("before/results.json");
      const at = document.runs.findIndex((one) => one.design === "native-thp" && one.input === "kv");
      await go(page, `#/set/${id.before}/${at}`);
      assert.match(await page.textContent("h1"), /^native-thp on kv/);
      const sections = await page.$$eval("section h2", (all) => all.map((h2) => h2.textContent));
      for (const name of ["Where the cycles went", "All statistics", "Parameters", "Data structures", "Repeat it"]) assert.ok(sections.includes(name), `${name} in ${sections}`);
      const empty = await page.$$eval(".chart", (all) => all.filter((one) => !one.querySelector("svg path, canvas")).length);
      assert.equal(empty, 0, "charts without a drawing");
      const heat = document.inputs.find((input) => input.name === "kv").heat;
      const sum = (name) => heat.rows.filter((row) => (row.name || "unnamed memory") === name).reduce((all, row) => all + [row.reads, row.writes].join(" ").split(" ").reduce((a, b) => a + Number(b), 0), 0);
      const structures = await rows(page, "#structures-table");
      assert.ok(structures.some((one) => one.name === "bucket table"), JSON.stringify(structures));
      for (const one of structures) assert.equal(Number(one.accesses), sum(one.name) * heat.sample_every, one.name);
      await page.click('#structures-table button:text-is("bucket table")');
      assert.equal(await page.textContent("#structure-name"), "Addresses over time: bucket table");
      const ranges = heat.rows.filter((row) => row.name === "bucket table").length;
      assert.match(await page.getAttribute("#structures .chart", "aria-label"), new RegExp(`: ${ranges} address ranges`));
      assert.deepEqual(errors, []);
      await close();
    },

    async [`${kind}: a set shows its whole report, a sweep too`]() {
      const { page, errors, close } = await open(url);
      const id = await numbers(page);
      await go(page, `#/set/${id.after}`);
      const document = read("after/results.json");
      assert.equal(await page.textContent("h1"), document.title);
      assert.equal((await rows(page, "#numbers-table")).length, document.runs.length);
      await go(page, `#/set/${id["sweep/runs"]}`);
      assert.equal((await rows(page, "#numbers-table")).length, 2);
      assert.deepEqual(errors, []);
      await close();
    },

    async [`${kind}: the answers of tune and of advise are shown`]() {
      const { page, errors, close } = await open(url);
      const id = await numbers(page);
      await go(page, `#/set/${id["tune.json"]}`);
      const tuned = read("tune.json");
      assert.deepEqual((await rows(page, "#settings-table")).map((row) => Number(row.slowdown)), [tuned.default.slowdown, tuned.tuned.slowdown]);
      assert.deepEqual((await rows(page, "#parameters-table")).map((row) => [row.design, row.tuned]), tuned.parameters.map((one) => [one.name, one.tuned]));
      await go(page, `#/set/${id["pages.json"]}`);
      const pages = read("pages.json");
      assert.deepEqual((await rows(page, "#regions-table")).map((row) => [row.design, Number(row.walks), row.size]), pages.regions.map((one) => [one.name, one.walks, one.size]));
      assert.ok((await page.textContent("main")).includes(pages.verdict.advice));
      assert.deepEqual(errors, []);
      await close();
    },

    async [`${kind}: a phone scrolls in one direction only`]() {
      const { page, errors, close } = await open(url, "", { viewport: { width: 360, height: 780 } });
      const id = await numbers(page);
      for (const hash of ["#/", `#/set/${id.before}/0`, `#/difference/${id.before}/${id.after}`, `#/set/${id["pages.json"]}`]) {
        await go(page, hash);
        const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
        assert.ok(overflow <= 0, `${hash}: ${overflow} pixels wider than the screen`);
      }
      assert.deepEqual(errors, []);
      await close();
    },

    async [`${kind}: what is not there is said`]() {
      const { page, errors, close } = await open(url, "#/set/999");
      assert.match(await page.textContent("main"), /no longer there/);
      await go(page, "#/difference/-/-");
      assert.match(await page.textContent("main"), /Choose both sides/);
      assert.deepEqual(errors, []);
      await close();
    },
  });
}

Object.assign(tests, {
  // In one file the charts are the same.
  async "served: a slow machine leaves charts before they are painted"() {
    const { page, errors, close } = await open(served.url, "", { viewport: { width: 360, height: 780 } });
    const id = await numbers(page);
    const session = await page.context().newCDPSession(page);
    // At this rate the pictures of addresses over time take several frames.
    await session.send("Emulation.setCPUThrottlingRate", { rate: 6 });
    // Waits of several lengths, so that in some round a chart is left half painted.
    for (let round = 0; round < 4; round++) {
      for (const hash of [`#/set/${id.before}/0`, `#/difference/${id.before}/${id.after}`, "#/"]) {
        await page.evaluate((to) => { location.hash = to; }, hash);
        await page.waitForTimeout(150 + 200 * round);
      }
    }
    await page.waitForTimeout(500);
    assert.deepEqual(errors, []);
    await close();
  },

  async "served: new results appear by themselves, changed ones change, and the end is told"() {
    const own = await serve("new");
    const { page, errors, close } = await open(own.url);
    assert.match(await page.textContent("#results"), /There are no results here/);
    run("sim", "--design", "native-4k", "--workload", "gups,bytes=16 MiB,updates=1e4", "--json", "new/one.json");
    await page.waitForSelector("#runs-table tbody tr");
    assert.deepEqual((await rows(page, "#runs-table")).map((row) => row.design), ["native-4k"]);
    writeFileSync(join(scratch, "new/one.json"), '{"schema": 2, "runs": [');
    await page.waitForSelector(".problems");
    assert.match(await page.textContent(".problems"), /new\/one\.json/);
    assert.deepEqual(errors, []);
    assert.equal(await own.end(), 0);
    await page.waitForSelector(".state[data-kind=lost]");
    await close();
  },

  async "served: a page of another site gets nothing"() {
    const other = await serve("before");
    const { page, close } = await open(file);
    // A page of another origin that knows even the token may not read, and without it is refused.
    const attempts = await page.evaluate(async (url) => {
      const attempt = async (init) => {
        try {
          const answer = await fetch(`${url}catalog`, init);
          return `${answer.type} ${answer.status}`;
        } catch {
          return "refused";
        }
      };
      return [await attempt({}), await attempt({ mode: "no-cors" })];
    }, other.url);
    assert.deepEqual(attempts, ["refused", "refused"]);
    await close();
    assert.equal(await other.end(), 0);
  },

  async "served: both colour schemes"() {
    const backgrounds = new Set();
    for (const colorScheme of ["light", "dark"]) {
      const { page, errors, close } = await open(served.url, "", { colorScheme });
      const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
      backgrounds.add(await background());
      await page.click(".toggle");
      backgrounds.add(await background());
      assert.deepEqual(errors, []);
      await close();
    }
    assert.equal(backgrounds.size, 2);
  },
});

const bytes_shown = (page, tier) => page.getAttribute(`.tier[data-tier="${tier}"]`, "data-used").then(Number);
const state = (page, wanted) => page.waitForSelector(`.chip[data-state="${wanted}"]`);

Object.assign(tests, {
  async "live: memory by tier and address, moves, budget, orders and saving are those of the engine"() {
    const socket = join(scratch, "two-tiers.sock");
    const engine = example();
    const server = await serve_engine(socket, engine);
    const own = await serve(socket, "--price", "slow=0.25");
    const { page, errors, close } = await open(own.url);
    await state(page, "working");
    assert.deepEqual([await bytes_shown(page, "dram"), await bytes_shown(page, "slow")], engine.status.tiers.map((tier) => tier.used));
    // 24 MiB at 1 and 512 MiB at a quarter, of 536 MiB.
    assert.match(await page.textContent("#saving"), /72%of the memory's price512 MiB of 536 MiB are not in dram; slow at 0.25/);
    assert.match(await page.textContent("#moves"), /12.0 MiBmoved8.00 MiB up, 4.00 MiB down, 1 pair exchanged, 2 failed/);
    assert.equal(await page.textContent("#eta"), "12 pieces wait, done in about 3 s.");
    assert.match(await page.textContent("#budget"), /1.2 %of a core, of 4.0 %.*of at most 200 MiB.*more than 10%/);
    assert.match(await page.textContent("#live-head"), /ends in 4 min/);
    await page.waitForSelector(".cell");
    const cells = await page.$$eval(".process-map[data-pid='4711'] .cell", (all) => all.map((one) => one.dataset.resident));
    assert.deepEqual(cells, engine.map.processes[0].parts.map((part) => part.resident.join(" ")));
    const title = await page.getAttribute(".process-map[data-pid='4711'] .cell:nth-child(10)", "title");
    assert.equal(title, "0x7f0001200000, 2.00 MiB, anonymous: dram 1.00 MiB (512 KiB hot), slow 1.00 MiB (0 B hot)");
    const colours = await page.$$eval(".process-map[data-pid='4711'] .cell", (all) => new Set(all.map((one) => one.style.background)).size);
    assert.ok(colours >= 4, `${colours} kinds of cells`);
    // The next status changes the page, and a chart appears.
    engine.status.run_seconds += 1;
    engine.status.tiers[0].used += 2 ** 20;
    await page.waitForFunction((used) => document.querySelector('.tier[data-tier="dram"]').dataset.used === String(used), engine.status.tiers[0].used);
    await page.waitForSelector("#live-charts svg path", { state: "attached" });
    await page.click(".pause");
    await state(page, "paused");
    assert.ok(server.asked.includes("POST /pause"));
    assert.equal(await page.textContent(".pause"), "Resume");
    await page.click(".pause");
    await state(page, "working");
    assert.deepEqual(errors, []);
    await server.end();
    await state(page, "gone");
    assert.match(await page.textContent(".problems"), /no longer answers: no Terrace is running there\./);
    assert.deepEqual(errors, []);
    await close();
    await own.end();
  },

  async "live: a real run is shown, paused and resumed, beside results"() {
    const socket = join(scratch, "run.sock");
    const engine = spawn(terrace, ["run", "--policy", "first-touch", "--dry-run", "--socket", socket, "--", "sleep", "600"], { stdio: "ignore" });
    const ended = new Promise((done) => engine.on("exit", done));
    const status = () => JSON.parse(run("top", "--socket", socket, "--json", "-"));
    const until = async (what, holds) => {
      for (let left = 600; ; left -= 1) {
        try {
          if (await holds()) return;
        } catch {
          // It has only just begun.
        }
        assert.ok(left > 0, what);
        await new Promise((done) => setTimeout(done, 100));
      }
    };
    await until("the run never begins", () => status().processes.length > 0);
    const sleeper = status().processes[0].pid;
    const own = await serve(socket, "before");
    const { page, errors, close } = await open(own.url, "#/live");
    await state(page, "working");
    await page.waitForSelector(`.process-map[data-pid="${sleeper}"] .cell`);
    // A program that has just begun still grows, and the page asks every so often.
    const tier = status().tiers[0].name;
    const resident = () => page.$$eval(".cell", (all) => all.map((one) => Number(one.dataset.resident.split(" ")[0])));
    const same = async () => {
      const { used } = status().tiers[0];
      const cells = await resident();
      return used > 0 && used === (await bytes_shown(page, tier)) && used === cells.reduce((a, b) => a + b, 0);
    };
    await until("the page and its cells never show what the engine says is used", same);
    assert.match(await page.textContent("#live-head"), /first-touch, live.*dry run/);
    await page.click(".pause");
    await state(page, "paused");
    assert.equal(status().state, "paused");
    await page.click(".pause");
    await state(page, "working");
    assert.equal(status().state, "working");
    await go(page, "#/");
    assert.ok((await rows(page, "#runs-table")).length > 0, "results are a tab away");
    await go(page, "#/live");
    await page.waitForSelector(".cell");
    assert.deepEqual(errors, []);
    await close();
    await own.end();
    assert.equal(status().state, "working", "the page's end is not the engine's");
    engine.kill("SIGTERM");
    process.kill(sleeper);
    await ended;
  },

  async "live: a phone scrolls in one direction only, both colour schemes draw"() {
    const socket = join(scratch, "phone.sock");
    const server = await serve_engine(socket, example());
    const own = await serve(socket);
    for (const colorScheme of ["light", "dark"]) {
      const { page, errors, close } = await open(own.url, "", { viewport: { width: 360, height: 780 }, colorScheme });
      await page.waitForSelector(".cell");
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      assert.ok(overflow <= 0, `${overflow} pixels wider than the screen`);
      await page.click(".toggle");
      assert.deepEqual(errors, []);
      await close();
    }
    await own.end();
    await server.end();
  },
});

mkdirSync(join(scratch, "new"));
const failed = await run_all(tests);

if (screenshots) {
  for (const [look, options] of Object.entries(LOOKS)) {
    const { page, close } = await open(served.url, "", options);
    const id = await numbers(page);
    for (const [name, hash] of [["results", "#/"], ["set", `#/set/${id.after}`], ["run", `#/set/${id.before}/3`], ["difference", `#/difference/${id.before}/${id.after}`], ["pages", `#/set/${id["pages.json"]}`]]) {
      await go(page, hash);
      await page.screenshot({ path: join(screenshots, `view-${name}-${look}.png`), fullPage: true });
    }
    await close();
  }
}
await browser.close();
await served.end();
rmSync(scratch, { recursive: true, force: true });
process.exit(failed > 0 ? 1 : 0);
