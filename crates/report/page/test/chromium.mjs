// What the browser tests share: a browser, a page that collects all that must not happen, and a row of tests.

import { existsSync } from "node:fs";
import { chromium } from "playwright-core";

function browser_path() {
  const candidates = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
  const found = candidates.find((path) => path && existsSync(path));
  if (!found) throw new Error("no Chromium found; on Debian: apt-get install chromium, or set CHROMIUM to its path");
  return found;
}

export const launch = () =>
  chromium.launch({
    executablePath: browser_path(),
    headless: true,
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  });

/** An empty page that collects all that must not happen; `may_ask` says which requests are in order. */
export async function watched_page(browser, may_ask, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  // On a busy machine a page takes its time.
  context.setDefaultTimeout(180000);
  const page = await context.newPage();
  const errors = [];
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && errors.push(message.text()));
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("request", (request) => !may_ask(request.url()) && errors.push(`request to ${request.url()}`));
  return { page, errors, close: () => context.close() };
}

/** Opens a page of ours and waits until it is ready. */
export async function open_page(browser, url, may_ask, options = {}) {
  const watched = await watched_page(browser, may_ask, options);
  await watched.page.goto(url);
  await watched.page.waitForSelector("html[data-ready=true]");
  return watched;
}

/** Runs tests by name; returns how many failed. */
export async function run_all(tests) {
  let failed = 0;
  for (const [name, test] of Object.entries(tests)) {
    try {
      await test();
      console.log(`ok    ${name}`);
    } catch (error) {
      failed += 1;
      console.log(`FAIL  ${name}\n${error.stack}`);
    }
  }
  return failed;
}

/** How the pages are looked at by people who change them. */
export const LOOKS = {
  light: { colorScheme: "light" },
  dark: { colorScheme: "dark" },
  narrow: { colorScheme: "light", viewport: { width: 390, height: 844 }, deviceScaleFactor: 2 },
};
