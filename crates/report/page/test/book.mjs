// Opens the built book in headless Chromium and checks what a reader would use: the front page, every page of the contents, search,
// and the themes.
//
//   node test/book.mjs DIRECTORY
//
// DIRECTORY is what `scripts/book` has built. The pages are opened as files, so that a downloaded book works as one that is served.

import assert from "node:assert/strict";
import { existsSync, readdirSync } from "node:fs";
import { join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { launch, run_all, watched_page } from "./chromium.mjs";

const directory = resolve(process.argv[2] ?? fileURLToPath(new URL("../../../../target/book", import.meta.url)));
assert.ok(existsSync(join(directory, "index.html")), `${directory} has no book; build it: scripts/book`);
const address = (page) => pathToFileURL(join(directory, page)).href;
const browser = await launch();

/** A page of the book, and all that must not happen on it. */
async function open(page_name, options = {}) {
  const watched = await watched_page(browser, (url) => /^(file|data|blob):/.test(url), options);
  const { page, errors } = watched;
  // What a page still loads when it is left is given up.
  page.on("requestfailed", (request) => request.failure().errorText !== "net::ERR_ABORTED" && errors.push(`not there: ${request.url()}`));
  await page.goto(address(page_name));
  return watched;
}

const theme = (page) => page.evaluate(() => document.documentElement.className.split(" ").find((one) => ["light", "rust", "coal", "navy", "ayu"].includes(one)));
/** Dark: the background has less than half of the light. */
const is_dark = (page) =>
  page.evaluate(() => {
    const [red, green, blue] = getComputedStyle(document.documentElement).backgroundColor.match(/\d+/g).map(Number);
    return red + green + blue < 3 * 128;
  });

const tests = {
  async "the front page names the book and leads to every page"() {
    const { page, errors, close } = await open("index.html");
    assert.match(await page.title(), /Terrace/);
    assert.ok((await page.textContent("main h1")).trim().length > 0);
    const listed = await page.$$eval("#mdbook-sidebar a[href], .sidebar a[href]", (all) => all.map((one) => one.href.split("#")[0]));
    const pages = [...new Set(listed)].filter((url) => url.endsWith(".html"));
    assert.ok(pages.length > 60, `the contents list ${pages.length} pages`);
    const missing = pages.filter((url) => !existsSync(fileURLToPath(url)));
    assert.deepEqual(missing, []);
    assert.deepEqual(errors, []);
    await close();
  },

  async "every page opens without an error, and its pictures are there"() {
    const { page, errors, close } = await open("index.html");
    const pages = readdirSync(directory, { recursive: true }).filter((name) => name.endsWith(".html") && !/^(print|toc|404)\.html$/.test(name));
    for (const name of pages) {
      const before = errors.length;
      await page.goto(address(name));
      const broken = await page.$$eval("main img", (all) => all.filter((one) => one.complete && one.naturalWidth === 0).map((one) => one.src));
      assert.deepEqual(broken, [], name);
      assert.deepEqual(errors.slice(before), [], name);
    }
    assert.ok(pages.length > 60);
    await close();
  },

  async "search finds a page by a word, and opens it with the word marked"() {
    const { page, errors, close } = await open("index.html");
    await page.keyboard.press("s");
    const bar = page.locator("input[type=search]");
    await bar.waitFor({ state: "visible" });
    // It listens to keys.
    await bar.pressSequentially("thermostat");
    const hits = page.locator("[id$=searchresults] a");
    await hits.first().waitFor({ state: "visible" });
    const targets = await hits.evaluateAll((all) => all.map((one) => one.href));
    const own = targets.find((url) => url.includes("policies/thermostat.html"));
    assert.ok(own, targets.join(" "));
    await page.goto(own);
    await page.locator("main mark").first().waitFor();
    await page.goto(address("index.html"));
    await page.keyboard.press("s");
    await bar.pressSequentially("xyzzyqwertz");
    await page.locator("[id$=searchresults-header]", { hasText: /^\s*(No|0) / }).waitFor();
    assert.deepEqual(errors, []);
    await close();
  },

  async "the theme follows the system, and a reader's choice stays"() {
    const { page: light, close: close_light } = await open("index.html", { colorScheme: "light" });
    assert.equal(await is_dark(light), false);
    await close_light();
    const { page, errors, close } = await open("index.html", { colorScheme: "dark" });
    assert.equal(await theme(page), "navy");
    assert.equal(await is_dark(page), true);
    await page.locator("button[id$=theme-toggle]").click();
    await page.locator("button[id$=theme-light]").click();
    assert.equal(await theme(page), "light");
    assert.equal(await is_dark(page), false);
    await page.goto(address("glossary.html"));
    assert.equal(await theme(page), "light");
    assert.deepEqual(errors, []);
    await close();
  },

  async "a phone shows a page without scrolling sideways"() {
    const { page, close } = await open("introduction.html", { viewport: { width: 390, height: 844 } });
    const wider = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
    assert.ok(wider <= 0, `${wider} pixels too wide`);
    await close();
  },
};

const failed = await run_all(tests);
await browser.close();
process.exit(failed ? 1 : 0);
