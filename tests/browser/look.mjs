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

// Comes in as an operator does who allows no scripts.
const door = await browser.newPage();
await door.setJavaScriptEnabled(false);
await door.goto(`${asked.origin}/login`);
await door.type("#token", asked.token);
await Promise.all([door.waitForNavigation(), door.keyboard.press("Enter")]);
if (new URL(door.url()).pathname !== "/") throw new Error(`not let in: ${door.url()}`);

const looks = [];
for (const { path, status, called, fields } of asked.pages) {
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
      const complaints = await page.evaluate(async (rules) => {
        const { violations } = await globalThis.axe.run(document, rules);
        return violations.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.map((node) => node.html).join(" ").slice(0, 400)}`);
      }, rules);
      seen.push({ name, sticks_out, complaints, colours: await colours(picture) });
    }
    // The first stop of the keyboard leads past the navigation; on the door it is the field.
    await page.evaluate(() => document.activeElement?.blur());
    await page.keyboard.press("Tab");
    const keyboard = await page.evaluate(() => {
      const { activeElement: focus } = document;
      return focus !== document.body && (focus.matches("a, button, input") ?? false);
    });
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
console.log(JSON.stringify({ looks, live }));
