"use strict";
// Optional behaviour: pages can be read without it. No framework; requests go to the own server only.

// -- light and dark ------------------------------------------------------------------------------------------------
const root = document.documentElement;
const storedTheme = {
  get() { try { return localStorage.getItem("climb-theme"); } catch { return null; } },
  set(theme) { try { localStorage.setItem("climb-theme", theme); } catch { /* a page opened from a file has no storage */ } },
};
if (storedTheme.get()) root.dataset.theme = storedTheme.get();
document.querySelector(".theme")?.addEventListener("click", () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  storedTheme.set(root.dataset.theme);
});

// -- values under the pointer --------------------------------------------------------------------------------------
const reading = document.createElement("div");
reading.className = "reading";
reading.hidden = true;
document.body.append(reading);
const guide = document.createElementNS("http://www.w3.org/2000/svg", "line");
guide.setAttribute("class", "guide");
const pair = (text) => text.split(" ").map(Number);
const formatted = (value) => Number(value.toPrecision(4)).toLocaleString("en");

function nearest(path, at) {
  let best = null;
  for (const [, x, y] of path.getAttribute("d").matchAll(/(-?[\d.]+) (-?[\d.]+)/g)) {
    if (best === null || Math.abs(x - at) < Math.abs(best[0] - at)) best = [Number(x), Number(y)];
  }
  return best;
}

function showValues(event) {
  const chart = event.target.closest?.("svg.chart");
  if (!chart) {
    reading.hidden = true;
    guide.remove();
    return;
  }
  const [left, top, right, bottom] = pair(chart.dataset.frame);
  const [x0, x1] = pair(chart.dataset.x);
  const [y0, y1] = pair(chart.dataset.y);
  const box = chart.getBoundingClientRect();
  const at = (event.clientX - box.left) * chart.viewBox.baseVal.width / box.width;
  const all = [...chart.querySelectorAll("path.line")].map((path) => [path.dataset.name, nearest(path, at)]);
  const points = all.filter(([, point]) => point);
  if (!points.length) return;
  const place = points.map(([, point]) => point[0]).sort((a, b) => Math.abs(a - at) - Math.abs(b - at))[0];
  const x = x0 + (place - left) / (right - left) * (x1 - x0);
  const lines = points.map(([name, [, y]]) => `${name}: ${formatted(y0 + (bottom - y) / (bottom - top) * (y1 - y0))}`);
  reading.textContent = [`at ${Math.round(x).toLocaleString("en")}`, ...lines].join("\n");
  reading.style.whiteSpace = "pre-line";
  reading.style.left = `${scrollX + Math.min(event.clientX + 14, innerWidth - 200)}px`;
  reading.style.top = `${scrollY + event.clientY + 14}px`;
  reading.hidden = false;
  for (const [name, value] of [["x1", place], ["x2", place], ["y1", top], ["y2", bottom]]) guide.setAttribute(name, value);
  chart.append(guide);
}
document.addEventListener("pointermove", showValues);

// -- click to enlarge a contact sheet ------------------------------------------------------------------------------
document.addEventListener("click", (event) => event.target.closest?.(".sheet")?.classList.toggle("large"));

// -- sortable tables -----------------------------------------------------------------------------------------------
const chosen = new Map();  // table -> [column, direction], to sort updated rows again

function sort(table) {
  if (!chosen.has(table)) return;
  const [column, direction] = chosen.get(table);
  // The row of an unreadable run has fewer cells.
  const key = (row) => row.cells[column]?.dataset.value ?? row.cells[column]?.textContent.trim() ?? "";
  const rows = [...table.tBodies[0].rows].sort((one, other) => {
    const [a, b] = [key(one), key(other)];
    if ((a === "") !== (b === "")) return a === "" ? 1 : -1;  // empty cells come last in both directions
    const numbers = a !== "" && !Number.isNaN(Number(a)) && !Number.isNaN(Number(b));
    return direction * (numbers ? a - b : a.localeCompare(b, "en", { numeric: true }));
  });
  table.tBodies[0].append(...rows);
  [...table.tHead.rows[0].cells].forEach((cell, place) => {
    if (place === column) cell.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
    else cell.removeAttribute("aria-sort");
  });
}

document.addEventListener("click", (event) => {
  const cell = event.target.closest?.(".sortable thead th");
  if (!cell || !event.target.closest("button")) return;
  const table = cell.closest("table");
  const [column, direction] = chosen.get(table) ?? [];
  const first = cell.classList.contains("number") ? -1 : 1;  // numbers begin with the highest
  chosen.set(table, [cell.cellIndex, column === cell.cellIndex ? -direction : first]);
  sort(table);
});

// -- choosing runs to compare --------------------------------------------------------------------------------------
function updateCompareButton() {
  const button = document.querySelector("button.compare");
  if (button) button.disabled = document.querySelectorAll("input[name=run]:checked").length < 2;
}
document.addEventListener("change", updateCompareButton);
updateCompareButton();

// -- live updates --------------------------------------------------------------------------------------------------
const live = document.querySelector("[data-live]");
const versions = {};

function replacePart(id, markup) {
  const old = document.getElementById(id);
  if (!old) return;
  const open = [...old.querySelectorAll("details")].map((part) => part.open);
  const checked = new Set([...old.querySelectorAll("input:checked")].map((part) => part.value));
  const holder = document.createElement(old.tagName === "TBODY" ? "table" : "div");
  holder.innerHTML = markup;
  const fresh = holder.querySelector(`#${id}`) ?? document.createElement("section");
  fresh.id = id;
  fresh.querySelectorAll("details").forEach((part, place) => { part.open = open[place] ?? false; });
  fresh.querySelectorAll("input").forEach((part) => { part.checked = checked.has(part.value); });
  old.replaceWith(fresh);
  if (fresh.closest("table.sortable")) sort(fresh.closest("table"));
  updateCompareButton();
}

async function poll(address) {
  try {
    const url = new URL(address, location.href);
    if (versions[address]) url.searchParams.set("version", versions[address]);
    const answer = await fetch(url, { credentials: "same-origin" });
    if (answer.ok) {
      const update = await answer.json();
      versions[address] = update.version;
      for (const [id, markup] of Object.entries(update.parts ?? {})) replacePart(id, markup);
      root.dataset.polled = String(Number(root.dataset.polled ?? 0) + 1);
    }
  } catch { /* the server cannot be reached: keep the page as it is */ }
  setTimeout(poll, Number(live.dataset.every), address);
}
if (live) for (const address of live.dataset.live.split(" ")) poll(address);
