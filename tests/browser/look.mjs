// Looks at pages in Chromium and says what it saw, as JSON: called by tests/outside/pages.rs, with its wishes in asked.json.
import { readFile, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { join } from "node:path";
import puppeteer from "puppeteer-core";

const asked = JSON.parse(await readFile("asked.json", "utf8"));
const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const screens = { desk: { width: 1280, height: 900 }, phone: { width: 390, height: 844, isMobile: true, hasTouch: true, deviceScaleFactor: 2 } };
// What axe is asked in each: only colours depend on them.
const schemes = { light: {}, dark: { runOnly: ["color-contrast"] } };

const browser = await puppeteer.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
});

// How many colours a picture has: a blank one has one or two.
const eye = await browser.newPage();
const colours = (picture) => eye.evaluate(async (data) => {
  const image = new Image();
  image.src = data;
  await image.decode();
  const canvas = new OffscreenCanvas(image.width, image.height);
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  return new Set(new Uint32Array(context.getImageData(0, 0, image.width, image.height).data.buffer)).size;
}, `data:image/png;base64,${picture}`);

// Where the keyboard is to get: nothing of a details that is closed.
const STOPS = "a[href], button, summary, select, textarea, input:not([type=hidden]), [tabindex='0']";

// Goes through a page with Tab alone; says what that does not reach, and where it would not be seen.
const walk = async (page) => {
  const most = await page.evaluate((stops) => {
    const all = [...document.querySelectorAll(stops)].filter((stop) => stop.checkVisibility() && !stop.disabled);
    if (all.length === 0) throw new Error("there is nothing to choose, not even the way past the navigation");
    globalThis.ahead = new Set(all);
    globalThis.unseen = [];
    return all.length + 20;
  }, STOPS);
  const look = () => page.evaluate(() => {
    const { activeElement: stop } = document;
    const { outlineStyle, outlineWidth } = getComputedStyle(stop);
    const is_seen = outlineStyle !== "none" && parseFloat(outlineWidth) > 0;
    if (globalThis.ahead.delete(stop) && !is_seen) globalThis.unseen.push(`not seen: ${stop.outerHTML.slice(0, 200)}`);
    // What a script has renewed meanwhile is gone.
    return [...globalThis.ahead].filter((stop) => stop.isConnected).map((stop) => `not reached: ${stop.outerHTML.slice(0, 200)}`);
  });
  let left = await look();
  for (let pressed = 0; pressed < most && left.length > 0; pressed++) {
    await page.keyboard.press("Tab");
    left = await look();
  }
  return [...left, ...await page.evaluate(() => globalThis.unseen)];
};

// Presses Tab until the focus is on what has this text, then Enter, and waits for the page that follows.
const choose = async (page, selector, text) => {
  for (let pressed = 0; pressed < 200; pressed++) {
    await page.keyboard.press("Tab");
    const is_there = await page.evaluate((selector, text) => {
      const { activeElement: stop } = document;
      return stop.matches(selector) && stop.textContent.trim() === text;
    }, selector, text);
    if (is_there) return Promise.all([page.waitForNavigation(), page.keyboard.press("Enter")]);
  }
  throw new Error(`no way to ${text} by the keyboard at ${page.url()}`);
};

// Waits until the focus is in the field that has it from the beginning: a browser gives it only when it first paints, which on a
// busy machine comes after the page has loaded, and what is typed before is lost. The page itself has no scripts that could wait.
const focused = async (page) => {
  for (const until = Date.now() + 30_000; Date.now() < until; await new Promise((next) => setTimeout(next, 50))) {
    if (await page.evaluate(() => document.activeElement?.matches("[autofocus]"))) return;
  }
  throw new Error(`no field of ${page.url()} has the focus from the beginning`);
};

// Comes in, goes to a subscription, and has it tried again, as an operator does who has neither mouse nor scripts.
const login = await browser.newPage();
await login.setJavaScriptEnabled(false);
await login.goto(`${asked.origin}/login`);
await focused(login);
await login.keyboard.type(asked.token);
await choose(login, "button", "Log in");
if (new URL(login.url()).pathname !== "/") throw new Error(`not let in: ${login.url()}`);
await choose(login, "a", "Topics");
await login.goto(`${asked.origin}${asked.late}`);
await choose(login, "button", "Retry now");
const retried = await login.evaluate(() => document.body.textContent);

const looks = [];
for (const { path, status, called, fields, press } of asked.pages) {
  // A path is one of the operator's pages; other pages have their whole URL.
  const url = new URL(path, asked.origin);
  for (const [screen, viewport] of Object.entries(screens)) {
    const page = await browser.newPage();
    await page.setCacheEnabled(false);
    await page.setViewport(viewport);
    const [errors, foreign, weights, documents] = [[], [], [], []];
    // That a page is an error is no error in it.
    const is_own = (message) => message.text().startsWith("Failed to load resource") && documents.includes(message.location().url);
    page.on("console", (message) => { if (["error", "warn"].includes(message.type()) && !is_own(message)) errors.push(message.text()); });
    page.on("pageerror", (error) => errors.push(String(error)));
    page.on("request", (request) => { if (!request.url().startsWith(`${url.origin}/`)) foreign.push(request.url()); });
    page.on("response", (response) => {
      if (response.request().isNavigationRequest()) documents.push(response.url());
      if (!response.url().endsWith("/events")) weights.push(response.buffer().then((body) => body.length, () => 0));
    });
    let shown = await page.goto(url.href, { waitUntil: "load" });
    for (const [id, value] of Object.entries(fields)) await page.type(`#${id}`, value);
    if (Object.keys(fields).length > 0) [shown] = await Promise.all([page.waitForNavigation({ waitUntil: "load" }), page.keyboard.press("Enter")]);
    if (press) [shown] = await choose(page, "button", press);
    if (status === 200 && page.url().includes("ticket=")) errors.push("its ticket stands in the bar");
    if (shown.status() !== status) errors.push(`${shown.status()} instead of ${status}`);
    await page.evaluate(axe);
    const seen = [];
    for (const [scheme, rules] of Object.entries(schemes)) {
      await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }, { name: "prefers-reduced-motion", value: "reduce" }]);
      const name = `${called ?? url.pathname.replaceAll("/", "_")}-${scheme}-${screen}`;
      const picture = await page.screenshot({ encoding: "base64", fullPage: true });
      await writeFile(join(asked.pictures, `${name}.png`), Buffer.from(picture, "base64"));
      // Phones make the window wider where something sticks out, so its own width says nothing.
      const sticks_out = await page.evaluate((width) => Math.max(0, document.documentElement.scrollWidth - width), viewport.width);
      // On a phone nothing has to be pushed sideways to be read.
      const scrolls = screen !== "phone" ? 0 : await page.evaluate(() => [...document.querySelectorAll("main *")].filter((part) =>
        ["auto", "scroll"].includes(getComputedStyle(part).overflowX) && part.scrollWidth > part.clientWidth + 1).length);
      const complaints = await page.evaluate(async (rules) => {
        const { violations } = await globalThis.axe.run(document, rules);
        return violations.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.map((node) => node.html).join(" ").slice(0, 400)}`);
      }, rules);
      seen.push({ name, sticks_out, scrolls, complaints, colours: await colours(picture) });
    }
    const keyboard = await walk(page);
    const weight = (await Promise.all(weights)).reduce((sum, bytes) => sum + bytes, 0);
    looks.push(...seen.map((look) => ({ ...look, errors, foreign, weight, keyboard })));
    await page.close();
  }
}
// With scripts the overview renews itself.
const overview = await browser.newPage();
await overview.goto(`${asked.origin}/`);
await overview.waitForFunction(() => document.getElementById("live-state").textContent === "Live", { timeout: 60_000 });
const live = await overview.evaluate(() => document.querySelectorAll("#live figure").length);
await browser.close();
console.log(JSON.stringify({ looks, live, retried }));
