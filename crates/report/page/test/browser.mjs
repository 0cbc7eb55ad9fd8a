// Opens a report in headless Chromium and checks what a reader would see: it renders without an error or a request,
// the tables' numbers are those of results.json, sorting and filters work, in both colour schemes and on a phone.
//
//   node test/browser.mjs [DIRECTORY] [--screenshots DIRECTORY]
//
// DIRECTORY holds report.html and results.json; without it, the example `sample_report` makes one.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { LOOKS, launch, open_page, run_all } from "./chromium.mjs";

const page_directory = resolve(fileURLToPath(import.meta.url), "../..");
const args = process.argv.slice(2);
const flag = args.indexOf("--screenshots");
const screenshots = flag >= 0 ? resolve(args.splice(flag, 2)[1]) : null;
const scratch = mkdtempSync(join(tmpdir(), "terrace-report-"));
const directory = args[0] ? resolve(args[0]) : sample();

function sample() {
  // As the other tests are built, so that nothing is built twice.
  const target = process.env.CARGO_TARGET_DIR ?? join(page_directory, "../../../target");
  const build = ["build", "--quiet", "--workspace", "--profile", "verify", "--example", "sample_report"];
  execFileSync("cargo", build, { cwd: page_directory, stdio: ["ignore", "ignore", "inherit"] });
  execFileSync(join(target, "verify/examples/sample_report"), [join(scratch, "sample")], { stdio: ["ignore", "ignore", "inherit"] });
  return join(scratch, "sample");
}

const report = JSON.parse(readFileSync(join(directory, "results.json"), "utf8"));
const browser = await launch();
const open = (options) => open_page(browser, pathToFileURL(join(directory, "report.html")).href, (url) => /^(file|data|blob):/.test(url), options);

// Most tests only look: they share a page. An error on it fails those that come later, too.
let shared = null;
async function look() {
  shared ??= await open({});
  return shared;
}

const number = (text) => Number(text.replace(/,/g, ""));

const tests = {
  async "every section renders, with a drawing in every chart"() {
    const { page, errors, close } = await open({ colorScheme: "light" });
    const sections = await page.$$eval("section h2", (all) => all.map((h2) => h2.textContent));
    assert.ok(sections.includes("The numbers") && sections.includes("Repeat it"), String(sections));
    const empty = await page.$$eval(".chart", (all) => all.filter((one) => !one.querySelector("svg path, canvas")).length);
    assert.equal(empty, 0, "charts without a drawing");
    const unnamed = await page.$$eval(".chart", (all) => all.filter((one) => !one.getAttribute("aria-label")).length);
    assert.equal(unnamed, 0, "charts without a description");
    const words = await page.textContent(".hero");
    for (const conclusion of report.conclusions) {
      const shown = [conclusion.text, conclusion.detail].map((text) => text.replace(/(\d)x(?=[ .,]|$)/g, "$1×"));
      assert.ok(shown.some((text) => words.includes(text)), conclusion.text);
    }
    assert.deepEqual(errors, []);
    await close();
  },

  async "a note names the designs and inputs that it is about, where it is not about all"() {
    const { page, errors } = await look();
    const shown = await page.$$eval("#repeat .caveats li", (all) => all.map((one) => one.textContent));
    for (const note of new Set(report.runs.flatMap((run) => run.notes))) {
      const inputs = new Set(report.runs.filter((run) => run.notes.includes(note)).map((run) => run.input));
      const about = inputs.size < new Set(report.runs.map((run) => run.input)).size ? `${[...inputs].join(", ")}: ` : "";
      assert.ok(shown.some((line) => line.endsWith(about + note)), `${about}${note} in ${shown.join(" | ")}`);
    }
    assert.deepEqual(errors, []);
  },

  async "tiering is shown where memory lay in several tiers, with the numbers of results.json"() {
    const placed = report.runs.filter((run) => run.tiering);
    const shown = placed.some((run) => run.tiering.policy || run.tiering.tiers[0].share < 1);
    const { page, errors } = await look();
    const rows = await page.$$eval("#tiering-table tbody tr", (all) =>
      all.map((row) => Object.fromEntries([...row.children].map((cell) => [cell.dataset.key, cell.dataset.value]))),
    );
    assert.equal(rows.length, shown ? placed.length : 0);
    rows.forEach((row, at) => {
      const { slowdown, cost, tiers } = placed[at].tiering;
      if (slowdown !== null) assert.equal(Number(row.slowdown), slowdown);
      if (cost !== null) assert.equal(Number(row.cost), cost);
      for (const { name, share } of tiers) assert.equal(Number(row[`share-${name}`]), share);
    });
    for (const button of await page.$$("#tiering .segmented button")) {
      await button.click();
      assert.ok(await page.$$eval("#tiering .chart", (all) => all.every((one) => one.querySelector("svg path"))));
    }
    assert.deepEqual(errors, []);
  },

  async "contiguity is shown where hardware or a policy is about it, with the numbers of results.json"() {
    const shown = report.runs.filter((run) => run.contiguity);
    const { page, errors } = await look();
    const rows = await page.$$eval("#contiguity-table tbody tr", (all) =>
      all.map((row) => Object.fromEntries([...row.children].map((cell) => [cell.dataset.key, cell.dataset.value]))),
    );
    assert.equal(rows.length, shown.length);
    assert.ok(args[0] || rows.length > 0, "the sample has none");
    rows.forEach((row, at) => {
      const { policy, coverage_128, ...sides } = shown[at].contiguity;
      for (const [key, value] of Object.entries(sides)) assert.equal(Number(row[key]), value, key);
      if (coverage_128 !== null) assert.equal(Number(row.coverage_128), coverage_128);
      if (policy) assert.equal(Number(row.copied_bytes), policy.copied_bytes);
    });
    const sampled = report.runs.filter((run) => (run.contiguity_over_time?.length ?? 0) > 1);
    assert.ok(args[0] || sampled.length > 0, "the sample has none over time");
    for (const input of new Set(sampled.map((run) => run.input))) {
      const block = page.locator("#contiguity .block", { has: page.locator(`h3:text-is("Over time on ${input}")`) });
      await block.scrollIntoViewIfNeeded();
      await block.locator(".chart svg path").first().waitFor({ state: "attached" });
      const described = await block.locator(".chart").evaluateAll((all) => all.map((one) => one.getAttribute("aria-label")));
      assert.equal(described.length, 3);
      for (const run of sampled.filter((run) => run.input === input)) {
        for (const text of described) assert.ok(text.includes(run.design), `${run.design} in ${text}`);
      }
    }
    assert.deepEqual(errors, []);
  },

  async "mixes have a row per run and one per program, with the numbers of results.json"() {
    const shown = report.runs.filter((run) => run.mix);
    assert.ok(args[0] || shown.length > 0, "the sample has none");
    const { page, errors } = await look();
    const rows = (table) =>
      page.$$eval(`${table} tbody tr`, (all) => all.map((row) => Object.fromEntries([...row.children].map((cell) => [cell.dataset.key, cell.dataset.value]))));
    const [runs, programs] = [await rows("#mixes-table"), await rows("#mix-programs-table")];
    assert.deepEqual(runs.map((row) => Number(row.weighted)), shown.map((run) => run.mix.weighted_speedup));
    assert.deepEqual(programs.map((row) => [row.program, Number(row.slowdown)]), shown.flatMap((run) => run.mix.programs.map((one) => [one.name, one.slowdown])));
    assert.deepEqual(errors, []);
  },

  async "memories of a GPU are shown over time, with their link and structures"() {
    const shown = report.runs.filter((run) => run.pools);
    assert.ok(args[0] || shown.length > 1, "the sample has none");
    const { page, errors } = await look();
    assert.equal(await page.locator("#pools").count(), shown.length > 0 ? 1 : 0);
    const sum = (row) => row.split(" ").reduce((all, one) => all + Number(one), 0);
    for (const [at, run] of shown.entries()) {
      const { memories, link, structures, interval_seconds } = run.pools;
      const block = page.locator("#pools-time");
      await block.scrollIntoViewIfNeeded();
      if (shown.length > 1) await block.locator("select").selectOption(String(at));
      await block.locator(".chart svg path").first().waitFor({ state: "attached" });
      const described = await block.locator(".chart").evaluateAll((all) => all.map((one) => one.getAttribute("aria-label")));
      const moved = memories.some((one) => sum(one.migration_bytes) > 0);
      assert.equal(described.length, 1 + (moved ? 1 : 0) + (link ? 1 : 0), `${run.design}: ${described}`);
      for (const memory of memories) {
        const mean = (sum(memory.demand_bytes) + sum(memory.migration_bytes)) / (interval_seconds * memory.demand_bytes.split(" ").length);
        const [, said] = new RegExp(` ${memory.name} ([0-9.,]+) GB/s`).exec(described[0]) ?? [];
        assert.ok(Math.abs(number(said) - mean / 1e9) <= 0.006 * (mean / 1e9) + 0.001, `${described[0]} for ${mean}`);
      }
      const rows = await page.$$eval("#pools-table tbody tr", (all) =>
        all.map((row) => Object.fromEntries([...row.children].map((cell) => [cell.dataset.key, cell.dataset.value]))),
      );
      assert.deepEqual(
        rows.map((row) => [row.name, Number(row.lines)]),
        structures.map((one) => [one.name.split("/").pop(), Object.values(one.lines).reduce((a, b) => a + b, 0)]),
      );
    }
    for (const measure of shown.length > 0 ? ["bytes", "link", "share"] : []) {
      await page.locator(`#pools-shares button[data-value="${measure}"]`).click();
      await page.locator("#pools-shares .chart svg path").first().waitFor({ state: "attached" });
    }
    assert.deepEqual(errors, []);
  },

  async "the numbers of the table are those of results.json"() {
    const { page, errors } = await look();
    const rows = await page.$$eval("#numbers-table tbody tr", (all) =>
      all.map((row) => ({
        design: row.dataset.design,
        input: row.dataset.input,
        cells: Object.fromEntries([...row.children].map((cell) => [cell.dataset.key, { text: cell.textContent, value: cell.dataset.value }])),
      })),
    );
    assert.equal(rows.length, report.runs.length);
    rows.forEach((row, at) => {
      const run = report.runs[at];
      assert.deepEqual([row.design, row.input], [run.design, run.input]);
      for (const key of ["cycles", "instructions", "accesses"]) assert.equal(number(row.cells[key].text), run[key], key);
      assert.equal(Number(row.cells.seconds_simulated.value), run.seconds_simulated);
      const rate = report.host.runs[at].accesses_per_second;
      assert.equal(Number(row.cells.accesses_per_second.value), rate);
      assert.equal(number(row.cells.accesses_per_second.text), Math.round(rate));
      const misses = run.stats.tlb?.l2?.miss;
      if (misses !== undefined) assert.equal(Number(row.cells.tlb.value), (1000 * misses) / run.instructions);
    });
    assert.deepEqual(errors, []);
  },

  async "all statistics of an input are shown and can be filtered"() {
    const { page, errors } = await look();
    const input = report.runs[0].input;
    const runs = report.runs.filter((run) => run.input === input);
    const shown = await page.$$eval("#statistics-table tbody tr", (all) =>
      all.map((row) => [row.children[0].textContent, [...row.children].slice(2).map((cell) => cell.dataset.value)]),
    );
    assert.equal(shown.length, Object.keys(report.units).filter((name) => runs.some((run) => leaf(run.stats, name) !== undefined)).length);
    for (const [name, values] of shown) {
      values.forEach((value, at) => {
        const expected = leaf(runs[at].stats, name);
        if (expected !== undefined) assert.equal(Number(value), typeof expected === "object" ? expected.count : expected, name);
      });
    }
    await page.fill("#statistics input", "tlb l2");
    const filtered = await page.$$eval("#statistics-table tbody th", (all) => all.map((cell) => cell.textContent));
    assert.ok(filtered.length > 0 && filtered.every((name) => name.includes("tlb") && name.includes("l2")), String(filtered));
    assert.deepEqual(errors, []);
  },

  async "speed-ups are differences with intervals, and small ones are seen"() {
    const { page, errors } = await look();
    const timed = report.runs.filter((run) => run.speedup);
    assert.ok(timed.length > 0, "no run has a speed-up");
    const rows = await page.$$eval("#numbers-table tbody tr", (all) => all.map((row) => row.querySelector("[data-key=between]").dataset.value));
    report.runs.forEach((run, at) => {
      const known = run.speedup?.uncertainty && run.speedup.high > run.speedup.low;
      assert.equal(rows[at], known ? String(run.speedup.low) : undefined);
      if (known) assert.ok(run.speedup.low < run.speedup.value && run.speedup.value < run.speedup.high);
    });
    // Every bar but that of the baseline goes to its side, as long as its number says, and can be seen.
    const drawn = await page.$$eval("#speedup .chart", (all) =>
      all.map((one) =>
        [...one.querySelectorAll("svg path")]
          .filter((path) => path.getAttribute("stroke"))
          .map((path) => path.getBBox())
          .filter((box) => box.width > 0 && box.height > 12 && box.height < 30)
          .sort((a, b) => a.y - b.y)
          .map(({ x, width }) => [x, width]),
      ),
    );
    const inputs = [...new Set(timed.map((run) => run.input))];
    assert.equal(drawn.length, inputs.length);
    inputs.forEach((input, at) => {
      const values = timed.filter((run) => run.input === input && run.speedup.value !== 1).map((run) => run.speedup.value - 1);
      const bars = drawn[at];
      assert.equal(bars.length, values.length, `bars of ${input}`);
      const longest = values.reduce((best, value, bar) => (Math.abs(value) > Math.abs(values[best]) ? bar : best), 0);
      const zero = bars[longest][0] + (values[longest] < 0 ? bars[longest][1] : 0);
      values.forEach((value, bar) => {
        const [x, width] = bars[bar];
        const expected = Math.max(3, (bars[longest][1] * Math.abs(value)) / Math.abs(values[longest]));
        // A dashed line lies inside of its bar.
        assert.ok(width >= 1.5 && Math.abs(width - expected) < 2.5, `${input}: ${value} is ${width} long, not ${expected}`);
        assert.ok(Math.abs((value < 0 ? x + width : x) - zero) < 2, `${input}: ${value} begins at ${x}, not ${zero}`);
      });
    });
    const texts = await page.$$eval("#speedup .chart", (all) => all.map((one) => [...one.querySelectorAll("svg text")].map((text) => text.textContent)));
    const differences = texts.flat().filter((text) => /^[+\u2212]?\d.*%$/.test(text));
    assert.ok(differences.some((text) => text.startsWith("+")) && texts.flat().includes("baseline"), String(texts[0]));
    const first = timed[1];
    const percent = Math.abs((first.speedup.value - 1) * 100);
    if (percent > 0.1 && percent < 99) assert.ok(differences.some((text) => text.includes(percent.toFixed(1))), `${percent} in ${differences}`);
    assert.deepEqual(errors, []);
  },

  async "memory of any size is drawn with the numbers of results.json"() {
    const { page, errors } = await look();
    for (const input of report.inputs) {
      const tab = page.locator(`#inputs .segmented button:text-is("${input.name}")`);
      if (await tab.count()) await tab.click();
      const described = await page.$$eval("#inputs [data-curves] .chart", (all) => all.map((one) => one.getAttribute("aria-label")));
      assert.equal(described.length, 3, String(described));
      assert.ok(described.every((text) => text.includes(` of ${input.name}: `)), String(described));
      const { reuse } = input;
      assert.equal(reuse.memory_bytes.length, reuse.miss_ratio.length);
      assert.ok(reuse.miss_ratio.every((ratio, at) => at === 0 || ratio <= reuse.miss_ratio[at - 1]), "more memory never misses more");
      const last = (reuse.miss_ratio.at(-1) * 100).toFixed(1);
      assert.ok(described[0].includes(`${last}%`) || Number(last) === 0, `${last} in ${described[0]}`);
      const words = await page.textContent("#inputs .block .measure");
      assert.ok(words.includes(reuse.sampled_share < 1 ? "standard error" : "Exact"), words);
      assert.ok(await page.$$eval("#inputs [data-curves] .chart", (all) => all.every((one) => one.querySelector("svg path"))));
    }
    assert.deepEqual(errors, []);
  },

  async "the machine, its tiers and what its constants rest on are shown, and how far to trust it"() {
    const { page, errors } = await look();
    for (const name of new Set(report.runs.map((run) => run.machine))) {
      const card = await page.textContent(`[data-machine="${name}"]`);
      const run = report.runs.find((one) => one.machine === name);
      for (const tier of run.machine_tiers) assert.ok(card.includes(tier.name), `${tier.name} in ${card}`);
      const ledger = (report.machines ?? []).find((one) => one.name === name);
      for (const entry of ledger?.assumed ?? []) assert.ok(card.includes(entry), entry);
    }
    const words = await page.textContent("#validity");
    assert.ok(words.includes("Intervals") || words.includes("No intervals"), words);
    assert.deepEqual(errors, []);
  },

  async "a heading sorts, and sorts back"() {
    const { page, close } = await open({});
    const column = () => page.$$eval("#numbers-table td[data-key=cycles]", (all) => all.map((cell) => Number(cell.dataset.value)));
    const button = "#numbers-table th[data-key=cycles] button";
    const sorted = [...(await column())].sort((a, b) => a - b);
    await page.click(button);
    assert.deepEqual(await column(), sorted.toReversed());
    assert.equal(await page.getAttribute("#numbers-table th[data-key=cycles]", "aria-sort"), "descending");
    await page.click(button);
    assert.deepEqual(await column(), sorted);
    await close();
  },

  async "every button of every chart draws without an error"() {
    const { page, errors, close } = await open({});
    for (const button of await page.$$("section .segmented button")) await button.click();
    for (const chart of await page.$$(".chart")) await chart.hover();
    assert.deepEqual(errors, []);
    await close();
  },

  async "both colour schemes, by preference and by choice"() {
    const backgrounds = {};
    for (const colorScheme of ["light", "dark"]) {
      const { page, errors, close } = await open({ colorScheme });
      const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
      backgrounds[colorScheme] = await background();
      await page.click(".toggle");
      assert.notEqual(await background(), backgrounds[colorScheme], "the button changes the scheme");
      assert.deepEqual(errors, []);
      await close();
    }
    assert.notEqual(backgrounds.light, backgrounds.dark);
  },

  async "a phone scrolls in one direction only"() {
    const { page, errors, close } = await open({ viewport: { width: 360, height: 780 } });
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    assert.ok(overflow <= 0, `${overflow} pixels wider than the screen`);
    assert.deepEqual(errors, []);
    await close();
  },
};

function leaf(tree, name) {
  return name.split(".").reduce((node, part) => node?.[part], tree);
}

const failed = await run_all(tests);

if (screenshots) {
  for (const [name, options] of Object.entries(LOOKS)) {
    const { page, close } = await open(options);
    await page.screenshot({ path: join(screenshots, `${name}.png`), fullPage: true });
    await close();
  }
}
await browser.close();
rmSync(scratch, { recursive: true, force: true });
process.exit(failed > 0 ? 1 : 0);
