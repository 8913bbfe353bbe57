// X/Y grids: one image for each pair of two lists of values, beside each other in a table.
import {$, announce, complain, el, save, state, toast} from "./core.js";
import {noteChange, readForm, snapshot} from "./fields.js";
import {imageOf, view} from "./gallery.js";
import {remember} from "./history.js";
import {submit} from "./jobs.js";
import {grids, settings} from "./store.js";

const kMost = 100;  // images of a grid
const kFields = ["x-axis", "x-values", "y-axis", "y-values"];

// name -> {label, hint, read(text): values, set(request, value, values)}
const number = (label, field, hint = "5, 10, 15 or 5-20 (+5)") => [field, {label, hint, read: numbers, set: (r, v) => { r[field] = v; }}];
const kAxes = new Map([
  ["", {label: "Nothing", hint: ""}],
  ["prompt", {label: "Words of the prompt", hint: "red, green, blue: the first is in the prompt", bare: true, read: words, set: replaceWords}],
  number("Seed", "seed", "1-4"), number("Steps", "steps"), number("Guidance", "cfg_scale", "1, 4, 7"),
  ["sampler", {label: "Sampler", hint: "Euler, DPM++ 2M", read: (text) => named(text, state.samplers), set: (r, v) => { r.sampler = v; }}],
  ["schedule", {label: "Schedule", hint: "karras, normal", read: (text) => named(text, state.schedules), set: (r, v) => { r.schedule = v; }}],
  number("Strength", "strength", "0.3-0.9 (+0.2)"),
  ["model", {label: "Model", hint: "names of models", read: (text) => named(text, state.models), set: (r, v) => { r.model = v; }}],
  number("Hires strength", "hires_denoising_strength", "0.3-0.9 (+0.2)"),
  ["control", {label: "Strength of ControlNet 1", hint: "0, 0.5, 1", read: numbers, set: (r, v) => { r.controls = r.controls.map((c, i) => i ? c : {...c, strength: v}); }}],
]);

// Commas part values; quotes hold them together.
export function words(text) {
  return [...text.matchAll(/\s*(?:"((?:[^"]|"")*)"|([^,]*))\s*(?:,|$)/g)]
    .filter((m) => m[0] !== "").map((m) => (m[1]?.replaceAll('""', '"') ?? m[2]).trim()).filter((word) => word !== "");
}

// 1, 2.5; 1-10; 1-10 (+3): by that step; 1-10 [4]: so many.
export function numbers(text) {
  const out = [];
  for (const word of words(text)) {
    const range = word.match(/^(-?[\d.]+)\s*-\s*(-?[\d.]+)\s*(?:\(\s*([+-]?[\d.]+)\s*\)|\[\s*(\d+)\s*\])?$/);
    if (!range) {
      out.push(Number(word));
      continue;
    }
    const [first, last] = [Number(range[1]), Number(range[2])];
    const count = range[4] ? Number(range[4]) : Math.floor(Math.abs(last - first) / Math.abs(Number(range[3] ?? 1)) + 1e-9) + 1;
    const step = range[4] ? (last - first) / Math.max(1, count - 1) : Math.sign(last - first || 1) * Math.abs(Number(range[3] ?? 1));
    for (let i = 0; i < Math.min(count, kMost + 1); ++i) out.push(Math.round((first + i * step) * 1e6) / 1e6);
  }
  const bad = out.find((value) => !Number.isFinite(value));
  if (bad !== undefined) throw new Error(`"${text}": expected numbers with commas, or ranges as 1-10 (+3)`);
  return out;
}

function named(text, list) {
  return words(text).map((word) => {
    const lower = word.toLowerCase();
    const found = list.find((one) => [one.name, one.label, ...(one.aliases ?? [])].some((name) => name?.toLowerCase() === lower));
    if (!found) throw new Error(`"${word}": expected one of ${list.map((one) => one.name).join(", ")}`);
    return found.name;
  });
}

function replaceWords(request, value, values) {
  if (!request.prompt.includes(values[0])) throw new Error(`the prompt does not contain "${values[0]}", the first of the words`);
  request.prompt = request.prompt.replaceAll(values[0], value);
}

function axis(name) {
  const kind = kAxes.get($(`${name}-axis`).value);
  if (!kind.read) return {label: "", values: [null]};
  const values = kind.read($(`${name}-values`).value);
  if (!values.length) throw new Error(`${name.toUpperCase()}: expected values with commas (${kind.hint})`);
  return {label: kind.label, bare: kind.bare, values, set: (request, value) => kind.set(request, value, values)};
}

async function drawGrid() {
  const form = $("form");
  if (!form.reportValidity()) return;
  complain();
  noteChange();
  try {
    const x = axis("x"), y = axis("y");
    if (x.values.length * y.values.length > kMost) throw new Error(`${x.values.length} × ${y.values.length} images: at most ${kMost}`);
    if (!x.label && !y.label) throw new Error("choose what changes along the columns or the rows");
    const base = {...await readForm(), count: 1};
    if (base.seed < 0) base.seed = Math.floor(Math.random() * 2 ** 31);  // the same for all of them
    const shape = ({label, bare, values}) => ({label, bare, values});
    const grid = {id: crypto.randomUUID?.() ?? `${Date.now()}`, time: Date.now(), prompt: base.prompt, x: shape(x), y: shape(y), cells: {}};
    const requests = [];
    for (const [row, vy] of y.values.entries())
      for (const [column, vx] of x.values.entries()) {
        const request = {...base};
        x.set?.(request, vx);
        y.set?.(request, vy);
        requests.push([request, {id: grid.id, x: column, y: row}]);
      }
    await grids.put(grid);
    show(grid);
    const kept = snapshot();
    delete kept.controls;
    for (const [request, place] of requests)
      await submit(request, {form: {...kept, prompt: request.prompt, steps: request.steps ?? "", cfg: request.cfg_scale ?? "", sampler: request.sampler ?? "",
                                    schedule: request.schedule ?? "", model: request.model, strength: request.strength, count: 1}, grid: place});
    announce(`${requests.length} images asked for`);
  } catch (error) {
    complain(error.message);
  }
}

// The table

const shown = new Map();  // id -> {grid, element}

const text = (axis, value) => value === null ? "" : axis.bare ? String(value) : `${axis.label}: ${value}`;

function cell(grid, x, y) {
  const entry = grid.cells[`${x},${y}`];
  const image = entry?.image && imageOf(entry.image);
  if (!image) return el("td", {}, el("span", {class: "gap"}, entry?.problem ?? (entry?.image ? "deleted" : "…")));
  const name = [text(grid.x, grid.x.values[x]), text(grid.y, grid.y.values[y])].filter(Boolean).join(", ");
  return el("td", {}, el("button", {type: "button", onclick: () => view(image.id)}, el("img", {src: image.url, alt: name, width: image.width, height: image.height, loading: "lazy"})));
}

function table(grid) {
  const head = el("tr", {}, grid.y.label ? el("td") : "", ...grid.x.values.map((value) => el("th", {scope: "col"}, text(grid.x, value))));
  const rows = grid.y.values.map((value, y) =>
    el("tr", {}, grid.y.label ? el("th", {scope: "row"}, text(grid.y, value)) : "", ...grid.x.values.map((_, x) => cell(grid, x, y))));
  return el("table", {}, el("caption", {class: "hidden"}, `Grid of ${grid.prompt}`), grid.x.label ? el("thead", {}, head) : "", el("tbody", {}, ...rows));
}

function show(grid) {
  shown.get(grid.id)?.element.remove();
  const element = el("li", {},
    el("p", {class: "row"}, el("span", {class: "grow"}, grid.prompt || "grid"),
       el("button", {type: "button", class: "quiet", onclick: () => saveGrid(grid)}, "Save as one image"),
       el("button", {type: "button", class: "quiet", onclick: () => remove(grid)}, "Remove grid")),
    el("div", {class: "scroll", tabindex: 0, role: "group", "aria-label": `Grid of ${grid.prompt}`}, table(grid)));
  shown.set(grid.id, {grid, element});
  const later = [...shown.values()].filter((other) => other.grid.time < grid.time && other.element.isConnected).sort((a, b) => b.grid.time - a.grid.time)[0];
  $("grids").insertBefore(element, later?.element ?? null);
}

function redraw({grid, element}) { element.querySelector("table").replaceWith(table(grid)); }

async function forget(grid) {
  shown.get(grid.id)?.element.remove();
  shown.delete(grid.id);
  await grids.remove(grid.id);
}
async function remove(grid) {
  await forget(grid);
  const bring = async () => { await grids.put(grid); show(grid); };
  toast("Grid removed; its images stay", remember("grid removed", bring, () => forget(grid)));
}

// An image that came, or went.
export function placeImage(image) {
  const entry = image.grid && shown.get(image.grid.id);
  if (!entry) return;
  entry.grid.cells[`${image.grid.x},${image.grid.y}`] = {image: image.id};
  grids.put(entry.grid);
  redraw(entry);
}

export function missed(place, problem) {
  const entry = shown.get(place.id);
  if (!entry) return;
  entry.grid.cells[`${place.x},${place.y}`] = {problem};
  grids.put(entry.grid);
  redraw(entry);
}

async function saveGrid(grid) {
  const cells = Object.entries(grid.cells).map(([place, {image}]) => [place.split(",").map(Number), imageOf(image)]).filter(([, image]) => image);
  if (!cells.length) return complain("This grid has no images yet");
  const width = Math.max(...cells.map(([, i]) => i.width)), height = Math.max(...cells.map(([, i]) => i.height));
  const size = Math.max(12, Math.round(width / 18)), band = 2 * size, left = grid.y.label ? Math.max(90, Math.round(width / 2)) : 0, top = grid.x.label ? band : 0;
  const canvas = el("canvas", {width: left + width * grid.x.values.length, height: top + height * grid.y.values.length});
  const context = canvas.getContext("2d");
  context.fillStyle = "#fff";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.fillStyle = "#000";
  context.font = `${size}px sans-serif`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  if (top) grid.x.values.forEach((value, i) => context.fillText(text(grid.x, value), left + (i + 0.5) * width, top / 2, width - 8));
  if (left) grid.y.values.forEach((value, i) => context.fillText(text(grid.y, value), left / 2, top + (i + 0.5) * height, left - 8));
  for (const [[x, y], image] of cells) context.drawImage(await createImageBitmap(image.blob), left + x * width, top + y * height);
  canvas.toBlob((blob) => save(blob, "grid.png"), "image/png");
}

export async function beginGrids() {
  const can = {strength: () => true, hires_denoising_strength: () => state.options.has("hires_scale"), control: () => state.cap.controls.length > 0,
               model: () => state.models.length > 1};
  const entries = [...kAxes].filter(([name]) => can[name]?.() ?? true);
  const kept = settings.read("grid", {});
  for (const name of ["x", "y"]) {
    const select = $(`${name}-axis`), values = $(`${name}-values`);
    select.replaceChildren(...entries.map(([value, {label}]) => new Option(label, value)));
    const hint = () => {
      values.placeholder = kAxes.get(select.value).hint;
      values.disabled = select.value === "";
    };
    select.value = kept[select.id] ?? "";
    values.value = kept[values.id] ?? "";
    select.addEventListener("change", hint);
    hint();
  }
  $("grid-box").addEventListener("change", () => settings.write("grid", Object.fromEntries(kFields.map((id) => [id, $(id).value]))));
  $("go-grid").onclick = drawGrid;
  for (const grid of await grids.all()) show(grid);
}
