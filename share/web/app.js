// The page of rocm-sd: a form that becomes jobs, jobs that become images, images that give their settings back.
import {MaskEditor} from "./mask.js";
import {files, images, settings} from "./store.js";

const $ = (id) => document.getElementById(id);
const form = $("form");
const kFields = ["prompt", "negative", "model", "width", "height", "sampler", "schedule", "steps", "cfg", "count", "seed", "strength", "brush", "blur"];

const state = {
  models: [], samplers: [], schedules: [],
  start: null,      // the image to start from, a Blob
  jobs: new Map(),  // id -> {request, element, events}
  gallery: [],      // newest first: {id, blob, url, parameters, request, seed, width, height, time}
  shown: -1,        // of the gallery, in the viewer
  cap: null,
};

// Requests

async function ask(path, options = {}) {
  if (options.body !== undefined)
    options = {...options, method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(options.body)};
  const response = await fetch(path, options);
  if (response.status === 204) return null;
  const answer = await response.json().catch(() => ({}));
  if (!response.ok && path !== "/ready") {
    const error = new Error(answer.error?.message ?? answer.errors ?? `${response.status} ${response.statusText}`);
    error.status = response.status;
    error.param = answer.error?.param;
    throw error;
  }
  return answer;
}

function complain(message) {
  $("alert").textContent = message ?? "";
  $("alert").hidden = !message;
  if (message) $("alert").scrollIntoView({block: "nearest"});
}

let toastTimer = 0;
function toast(text, undo) {
  const box = $("toast");
  box.firstElementChild.textContent = text;
  const button = box.querySelector("button");
  button.hidden = !undo;
  button.onclick = () => { undo?.(); box.hidden = true; };
  box.hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => { box.hidden = true; }, 8000);
}

const toBase64 = (blob) => new Promise((resolve) => {
  const reader = new FileReader();
  reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
  reader.readAsDataURL(blob);
});

// The form

function fill(select, entries) {
  const before = select.value;
  select.replaceChildren(...entries.map(([value, label]) => new Option(label, value)));
  if (entries.some(([value]) => value === before)) select.value = before;
}

function keepForm() {
  settings.write("form", Object.fromEntries(kFields.map((id) => [id, $(id).value])));
}

function apply(values) {
  for (const [id, value] of Object.entries(values)) {
    const field = $(id);
    if (!field || value === undefined || value === null) continue;
    if (field.tagName === "SELECT" && ![...field.options].some((o) => o.value === String(value))) continue;
    field.value = value;
  }
  showStrength();
  keepForm();
}

const currentModel = () => state.models.find((m) => m.name === $("model").value);

function ownSize() {
  const model = currentModel();
  if (model?.width) apply({width: model.width, height: model.height});
}

function showStrength() { $("strength-out").textContent = Number($("strength").value).toFixed(2); }

function showLoras(names) {
  $("lora-box").hidden = names.length === 0;
  const used = (name) => new RegExp(`<lora:${name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}(:[^>]*)?>`);
  const draw = () => {
    const filter = $("lora-filter").value.toLowerCase();
    $("loras").replaceChildren(...names.filter((n) => n.toLowerCase().includes(filter)).map((name) => {
      const button = Object.assign(document.createElement("button"), {type: "button", className: "quiet", textContent: name});
      button.setAttribute("aria-pressed", used(name).test($("prompt").value));
      button.onclick = () => {
        const prompt = $("prompt");
        prompt.value = used(name).test(prompt.value) ? prompt.value.replace(used(name), "").replace(/ +/g, " ").trim()
                                                     : `${prompt.value.trim()} <lora:${name}:1>`.trim();
        keepForm();
        button.setAttribute("aria-pressed", used(name).test(prompt.value));
      };
      const item = document.createElement("li");
      item.append(button);
      return item;
    }));
  };
  $("lora-filter").oninput = draw;
  $("prompt").addEventListener("change", draw);
  draw();
}

async function readForm() {
  const number = (id) => Number($(id).value);
  const request = {
    model: $("model").value, prompt: $("prompt").value, width: number("width"), height: number("height"), steps: number("steps"),
    cfg_scale: number("cfg"), count: number("count"), seed: number("seed"),
  };
  if ($("negative").value) request.negative_prompt = $("negative").value;
  if ($("sampler").value) request.sampler = $("sampler").value;
  if ($("schedule").value) request.schedule = $("schedule").value;
  if (state.start) {
    request.init_image = await toBase64(state.start);
    request.strength = number("strength");
    const mask = await editor.mask();
    if (mask) Object.assign(request, {mask: await toBase64(mask), mask_blur: number("blur")});
  }
  return request;
}

// Jobs

async function submit() {
  if (!form.reportValidity()) return;
  complain();
  keepForm();
  try {
    const request = await readForm();
    const job = await ask("/v1/jobs", {body: request});
    delete request.init_image;
    delete request.mask;
    follow(job, request);
    if (matchMedia("(max-width: 56rem)").matches) $("queue").scrollIntoView({block: "start"});
  } catch (error) {
    complain(error.message);
    const field = {cfg_scale: "cfg", negative_prompt: "negative"}[error.param] ?? error.param;
    if (field) $(field)?.focus();
  }
}

function keepJobs() {
  settings.write("jobs", [...state.jobs].filter(([, job]) => !job.over).map(([id, job]) => [id, job.request]));
  $("cancel").disabled = ![...state.jobs.values()].some((job) => !job.over);
}

function jobElement(id, request) {
  const item = document.createElement("li");
  const title = Object.assign(document.createElement("p"), {textContent: request.prompt || "(no prompt)"});
  const button = Object.assign(document.createElement("button"), {type: "button", className: "quiet", textContent: "Cancel"});
  button.setAttribute("aria-label", `Cancel: ${request.prompt}`);
  const bar = Object.assign(document.createElement("progress"), {max: 1, value: 0});
  bar.setAttribute("aria-label", `Progress of ${request.prompt}`);
  const note = document.createElement("small");
  item.append(title, button, bar, note);
  $("queue").append(item);
  button.onclick = () => {
    const job = state.jobs.get(id);
    if (job && !job.over) ask(`/v1/jobs/${id}/cancel`, {method: "POST"}).catch((e) => complain(e.message));
    else item.remove();
  };
  return {item, button, bar, note};
}

function follow(job, request) {
  const element = jobElement(job.id, request);
  const entry = {request, element, over: false};
  state.jobs.set(job.id, entry);
  show(job, entry);
  keepJobs();
  const events = new EventSource(`/v1/jobs/${job.id}/events`);
  entry.events = events;
  for (const name of ["queued", "running", "progress", "image", "completed", "failed", "cancelled"])
    events.addEventListener(name, (event) => show(JSON.parse(event.data), entry));
  // The browser connects again by itself; a job that is gone is given up.
  events.onerror = async () => {
    if (entry.over) return;
    try {
      show(await ask(`/v1/jobs/${job.id}`), entry);
    } catch (error) {
      if (error.status === 404 || error.status === 410) finish(job.id, entry, "lost: the server was started anew");
    }
  };
}

function show(job, entry) {
  if (entry.over) return;
  const {bar, note} = entry.element;
  const p = job.progress;
  bar.value = p.fraction;
  const left = p.fraction > 0.05 ? `, ${Math.ceil(p.seconds / p.fraction - p.seconds)} s left` : "";
  const words = {load: "loading the model", text: "reading the prompt", encode: "reading the image", decode: "decoding"};
  note.textContent = job.state === "queued" ? (job.position ? `waits: ${job.position} before it` : "waits")
    : p.stage === "sample" ? `step ${p.step} of ${p.total}${p.rounds > 1 ? `, image ${p.round + 1} of ${p.rounds}` : ""}${left}`
    : words[p.stage] ?? "begins";
  if (p.stage !== "sample" && job.state === "running") bar.removeAttribute("value");
  collect(job, entry);
  if (job.state === "completed") finish(job.id, entry);
  if (job.state === "cancelled") finish(job.id, entry, "cancelled");
  if (job.state === "failed") finish(job.id, entry, job.error.message);
}

function finish(id, entry, problem) {
  entry.over = true;
  entry.events?.close();
  const {item, button, bar, note} = entry.element;
  if (problem === undefined || problem === "cancelled") {
    item.remove();
    if (problem) toast("Cancelled");
    else announce(`Done: ${entry.request.prompt}`);
  } else {
    item.classList.add("bad");
    bar.remove();
    note.textContent = problem;
    button.textContent = "Dismiss";
  }
  keepJobs();
}

function announce(text) {
  $("status").textContent = text;
  watchLater(3000);
}

// The gallery

async function collect(job, entry) {
  for (const [i, image] of job.images.entries()) {
    const id = `${job.id}/${i}`;
    entry.taken ??= new Set();
    if (entry.taken.has(id) || state.gallery.some((known) => known.id === id)) continue;
    entry.taken.add(id);
    const response = await fetch(image.url);
    if (!response.ok) continue;
    const kept = {id, blob: await response.blob(), parameters: image.parameters, request: {...entry.request, model: job.model},
                  seed: image.seed, width: image.width, height: image.height, time: job.created * 1000 + i};
    await images.put(kept);
    add(kept);
    images.trim();
  }
}

function add(image) {
  image.url ??= URL.createObjectURL(image.blob);
  const at = state.gallery.findIndex((other) => other.time < image.time);
  state.gallery.splice(at < 0 ? state.gallery.length : at, 0, image);
  drawGallery();
}

function drawGallery() {
  $("empty").hidden = state.gallery.length > 0;
  const known = new Map([...$("gallery").children].map((item) => [item.dataset.id, item]));
  $("gallery").replaceChildren(...state.gallery.map((image) => known.get(image.id) ?? tile(image)));
}

function tile(image) {
  const item = document.createElement("li");
  item.dataset.id = image.id;
  const button = Object.assign(document.createElement("button"), {type: "button"});
  const picture = Object.assign(document.createElement("img"), {src: image.url, alt: image.request.prompt || "image", loading: "lazy"});
  picture.width = image.width;
  picture.height = image.height;
  button.append(picture);
  button.onclick = () => view(state.gallery.indexOf(image));
  item.append(button);
  return item;
}

function view(index) {
  const image = state.gallery[index];
  if (!image) return;
  state.shown = index;
  $("large").src = image.url;
  $("large").alt = image.request.prompt || "image";
  $("parameters").textContent = image.parameters;
  $("download").href = image.url;
  $("download").download = `${image.seed}.png`;
  $("previous").disabled = index === 0;
  $("next").disabled = index === state.gallery.length - 1;
  if (!$("viewer").open) $("viewer").showModal();
}

async function removeShown() {
  const [image] = state.gallery.splice(state.shown, 1);
  await images.remove(image.id);
  drawGallery();
  if (state.gallery.length) view(Math.min(state.shown, state.gallery.length - 1));
  else $("viewer").close();
  toast("Image deleted", async () => { await images.put({...image, url: undefined}); add(image); });
}

function useShown() {
  const {request, seed} = state.gallery[state.shown];
  const before = Object.fromEntries(kFields.map((id) => [id, $(id).value]));
  apply({prompt: request.prompt, negative: request.negative_prompt ?? "", model: request.model, width: request.width,
         height: request.height, steps: request.steps, cfg: request.cfg_scale, sampler: request.sampler ?? "",
         schedule: request.schedule ?? "", strength: request.strength, seed});
  $("viewer").close();
  toast("Settings taken over", () => apply(before));
}

// Images that come in

const editor = new MaskEditor($("mask"), () => {
  $("undo").disabled = editor.strokes.length === 0;
  editor.layerBlob().then((blob) => files.put("mask", blob));
});

async function startFrom(blob, mask = null, silent = false) {
  try {
    await editor.load(blob, mask);
  } catch {
    complain("That is no picture that this browser can read: PNG, JPEG or WebP are.");
    return;
  }
  state.start = blob;
  await files.put("start", blob);
  $("start").hidden = false;
  $("start-box").open = true;
  $("undo").disabled = editor.strokes.length === 0;
  if (silent) return;
  const multiple = (side) => Math.min(4096, Math.max(8, Math.round(side / 8) * 8));
  apply({width: multiple(editor.picture.width), height: multiple(editor.picture.height)});
}

function removeStart() {
  const before = state.start;
  state.start = null;
  files.put("start", null);
  files.put("mask", null);
  $("start").hidden = true;
  if (before) toast("Image removed", () => startFrom(before));
}

// A PNG with parameters brings its settings back.
async function restore(file) {
  const {parameters: p} = await ask("/sdapi/v1/png-info", {body: {image: await toBase64(file)}});
  if (!p || p.Prompt === undefined) return false;
  const before = Object.fromEntries(kFields.map((id) => [id, $(id).value]));
  const [width, height] = (p.Size ?? "").split("x");
  const label = (list, name) => list.find((one) => (one.label ?? one.name) === name);
  apply({prompt: p.Prompt, negative: p["Negative prompt"] ?? "", steps: p.Steps, cfg: p["CFG scale"], seed: p.Seed,
         width: width || undefined, height: height || undefined, model: p.Model,
         sampler: label(state.samplers, p.Sampler)?.name ?? "", schedule: label(state.schedules, p["Schedule type"])?.name ?? "",
         strength: p["Denoising strength"], blur: p["Mask blur"]});
  toast("Settings restored from the image", () => apply(before));
  return true;
}

async function take(file, isStart) {
  complain();
  if (!file) return;
  try {
    if (!isStart && await restore(file)) return;
    await startFrom(file);
  } catch (error) {
    complain(error.message);
  }
}

// The server

let watchTimer = 0;
function watchLater(milliseconds) {
  clearTimeout(watchTimer);
  watchTimer = setTimeout(watchServer, milliseconds);
}

async function watchServer() {
  try {
    const now = await ask("/ready");
    const worker = now.workers.find((w) => w.state !== "waiting") ?? now.workers[0];
    const speed = worker.seconds_per_step > 0 ? `, ${worker.seconds_per_step >= 1 ? `${worker.seconds_per_step.toFixed(1)} s a step`
                                                                                : `${(1 / worker.seconds_per_step).toFixed(1)} steps/s`}` : "";
    $("status").textContent = now.ready ? `${worker.device_name.split(",")[0]}${speed}` : worker.error ?? "Loading the model…";
    $("status").title = worker.device_name;
    if (now.ready && !state.models.some((m) => m.width)) await loadCapabilities();
    watchLater(now.ready ? 30000 : 1500);
  } catch {
    $("status").textContent = "The server does not answer";
    watchLater(3000);
  }
}

async function loadCapabilities() {
  const first = state.cap === null;
  const [cap, samplers, schedules] = await Promise.all([ask("/v1/capabilities"), ask("/sdapi/v1/samplers"), ask("/sdapi/v1/schedulers")]);
  Object.assign(state, {cap, models: cap.models, samplers, schedules});
  fill($("model"), cap.models.map((m) => [m.name, `${m.name} (${m.kind})`]));
  fill($("sampler"), [["", "Automatic"], ...samplers.map((s) => [s.name, s.name])]);
  fill($("schedule"), [["", "Automatic"], ...schedules.filter((s) => s.name !== "automatic").map((s) => [s.name, s.label])]);
  $("count").max = cap.limits.images;
  if (first) {
    $("model").value = cap.models.find((m) => m.current)?.name;
    apply(settings.read("form", {}));
    showLoras(cap.loras);
  }
  if (!$("width").value || !$("height").value) ownSize();
}

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  settings.write("theme", name);
}

function listen() {
  form.addEventListener("submit", (event) => { event.preventDefault(); submit(); });
  form.addEventListener("input", () => { showStrength(); keepForm(); });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) submit();
    if ($("viewer").open && event.key === "ArrowLeft") view(state.shown - 1);
    if ($("viewer").open && event.key === "ArrowRight") view(state.shown + 1);
  });
  $("swap").onclick = () => apply({width: $("height").value, height: $("width").value});
  $("own-size").onclick = ownSize;
  $("random-seed").onclick = () => apply({seed: -1});
  $("last-seed").onclick = () => apply({seed: state.gallery[0]?.seed});
  $("cancel").onclick = () => {
    for (const [id, job] of state.jobs) if (!job.over) ask(`/v1/jobs/${id}/cancel`, {method: "POST"}).catch(() => {});
  };
  $("theme").onclick = () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  $("brush").oninput = () => { editor.brush = Number($("brush").value); };
  $("erase").onchange = () => { editor.erase = $("erase").checked; };
  $("undo").onclick = () => editor.undo();
  $("clear").onclick = () => editor.clear();
  $("remove").onclick = removeStart;
  $("file").onchange = () => { take($("file").files[0], true); $("file").value = ""; };
  $("use").onclick = useShown;
  $("use-image").onclick = () => { startFrom(state.gallery[state.shown].blob); $("viewer").close(); };
  $("delete").onclick = removeShown;
  $("close").onclick = () => $("viewer").close();
  $("previous").onclick = () => view(state.shown - 1);
  $("next").onclick = () => view(state.shown + 1);
  document.addEventListener("dragover", (event) => { event.preventDefault(); $("drop").classList.add("over"); });
  document.addEventListener("dragleave", () => $("drop").classList.remove("over"));
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    $("drop").classList.remove("over");
    take(event.dataTransfer.files[0], $("start-box").contains(event.target));
  });
}

async function begin() {
  setTheme(settings.read("theme", matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
  listen();
  for (const image of await images.all()) add(image);
  try {
    await loadCapabilities();
  } catch (error) {
    complain(error.message);
  }
  editor.brush = Number($("brush").value);
  const start = await files.get("start");
  if (start) await startFrom(start, await files.get("mask"), true);
  for (const [id, request] of settings.read("jobs", [])) {
    try {
      follow(await ask(`/v1/jobs/${id}`), request);
    } catch { /* its result has been dropped */ }
  }
  keepJobs();
  watchServer();
}

begin();
