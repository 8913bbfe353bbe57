// Jobs: requests that wait here, jobs of the server, their progress, and the images that they bring.
import {$, announce, ask, complain, dataUrl, el, state, toast} from "./core.js";
import {focusField} from "./fields.js";
import {addImage, knows} from "./gallery.js";
import {images, settings, waiting} from "./store.js";

const kAtOnce = 4;         // of this page, on the server
const kPictures = ["init_image", "mask", "controls"];  // of a request, which need not be kept with its image
const kWords = {load: "loading the model", text: "reading the prompt", encode: "reading the image", decode: "decoding"};

const jobs = new Map();    // id -> {about, element, events, over}
let outbox = [];           // {id, request, about: {request, form, grid}}
let asking = false;
let onMissed = () => {};   // told of requests of a grid that failed

const running = () => [...jobs.values()].filter((job) => !job.over);
export const isBusy = () => running().length > 0 || outbox.length > 0;

function showCounts() {
  settings.write("jobs", [...jobs].filter(([, job]) => !job.over).map(([id, job]) => [id, job.about]));
  $("cancel").disabled = !isBusy();
  $("outbox").hidden = outbox.length === 0;
  $("outbox-count").textContent = outbox.length === 1 ? "1 more request waits on this page" : `${outbox.length} more requests wait on this page`;
  const shares = running().map((job) => job.fraction ?? 0);
  document.title = shares.length ? `${Math.round(100 * Math.max(...shares))} % rocm-sd` : "rocm-sd";
}

// request: for /v1/jobs; about: what is kept with its images: {form, grid}. Throws what the server says against it, unless it
// belongs to a grid, whose other requests go on.
export async function submit(request, about) {
  const entry = {id: crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`, request, about: {...about, request: without(request)}};
  if (about.grid || outbox.length) {
    outbox.push(entry);
    await waiting.put(entry);
    showCounts();
    pump();
  } else if (!await post(entry)) {
    outbox.push(entry);
    await waiting.put(entry);
    showCounts();
    setTimeout(pump, 2000);
  }
}

const without = (request) => Object.fromEntries(Object.entries(request).filter(([name]) => !kPictures.includes(name)));

// False: the queue is full.
async function post(entry) {
  try {
    follow(await ask("/v1/jobs", {body: entry.request}), entry.about);
    return true;
  } catch (error) {
    if (error.status === 429) return false;
    throw error;
  }
}

async function pump() {
  if (asking) return;
  asking = true;
  try {
    while (outbox.length && running().length < kAtOnce) {
      const entry = outbox[0];
      try {
        if (!await post(entry)) {
          setTimeout(pump, 2000);
          break;
        }
      } catch (error) {
        if (error.status === undefined) {  // the server is away: later
          setTimeout(pump, 3000);
          break;
        }
        refuse(entry.about, error);
      }
      if (outbox[0] === entry) outbox.shift();
      await waiting.remove(entry.id);
    }
  } finally {
    asking = false;
    showCounts();
  }
}

function refuse(about, error) {
  complain(error.message);
  if (about.grid) onMissed(about.grid, error.message);
  else focusField(error.param);
}

async function drop() {
  const dropped = outbox;
  outbox = [];
  for (const entry of dropped) {
    await waiting.remove(entry.id);
    if (entry.about.grid) onMissed(entry.about.grid, "cancelled");
  }
  showCounts();
}

function cancelAll() {
  drop();
  for (const [id, job] of jobs) if (!job.over) ask(`/v1/jobs/${id}/cancel`, {method: "POST"}).catch(() => {});
}

function jobElement(id, {request}) {
  const name = request.prompt || "(no prompt)";
  const bar = el("progress", {max: 1, value: 0, "aria-label": `Progress of ${name}`});
  const note = el("small");
  const look = el("img", {class: "look", alt: `Unfinished image of ${name}`, hidden: true});
  const button = el("button", {type: "button", class: "quiet", "aria-label": `Cancel: ${name}`}, "Cancel");
  const item = el("li", {}, look, el("p", {title: name}, name), button, bar, note);
  button.onclick = () => {
    const job = jobs.get(id);
    if (job && !job.over) ask(`/v1/jobs/${id}/cancel`, {method: "POST"}).catch((e) => complain(e.message));
    else item.remove();
  };
  $("queue").append(item);
  return {item, button, bar, note, look};
}

function follow(job, about) {
  if (jobs.has(job.id)) return;
  const entry = {about, element: jobElement(job.id, about), over: false};
  jobs.set(job.id, entry);
  show(job, entry);
  showCounts();
  if (entry.over) return;
  const looks = state.paths.has("/v1/jobs/{id}/preview");
  const events = entry.events = new EventSource(`/v1/jobs/${job.id}/events${looks ? "?previews=true" : ""}`);
  for (const name of ["queued", "running", "progress", "image", "completed", "failed", "cancelled"])
    events.addEventListener(name, (event) => show(JSON.parse(event.data), entry));
  events.addEventListener("preview", (event) => {
    entry.element.look.src = dataUrl(JSON.parse(event.data).picture);
    entry.element.look.hidden = false;
  });
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
  bar.value = entry.fraction = p.fraction;
  const left = p.fraction > 0.05 ? `, ${Math.ceil(p.seconds / p.fraction - p.seconds)} s left` : "";
  note.textContent = job.state === "queued" ? (job.position ? `waits: ${job.position} before it` : "waits")
    : p.stage === "sample" ? `step ${p.step} of ${p.total}${p.rounds > 1 ? `, image ${p.round + 1} of ${p.rounds}` : ""}${left}`
    : kWords[p.stage] ?? "begins";
  if (p.stage !== "sample" && job.state === "running") bar.removeAttribute("value");
  showCounts();
  collect(job, entry);
  if (job.state === "completed") finish(job.id, entry);
  if (job.state === "cancelled") finish(job.id, entry, "cancelled");
  if (job.state === "failed") finish(job.id, entry, job.error.message);
}

function finish(id, entry, problem) {
  entry.over = true;
  entry.events?.close();
  const {item, button, bar, note, look} = entry.element;
  if (problem === undefined || problem === "cancelled") {
    item.remove();
    if (problem) toast("Cancelled");
    else announce(`Done: ${entry.about.request.prompt}`);
  } else {
    item.classList.add("bad");
    bar.remove();
    look.remove();
    note.textContent = problem;
    button.textContent = "Dismiss";
    button.setAttribute("aria-label", `Dismiss: ${entry.about.request.prompt}`);
    announce(`Failed: ${problem}`);
  }
  if (problem && entry.about.grid) onMissed(entry.about.grid, problem);
  showCounts();
  pump();
}

async function collect(job, entry) {
  entry.taken ??= new Set();
  for (const [i, image] of job.images.entries()) {
    const id = `${job.id}/${i}`;
    if (entry.taken.has(id) || knows(id)) continue;
    entry.taken.add(id);
    const response = await fetch(image.url).catch(() => null);
    if (!response?.ok) {
      entry.taken.delete(id);
      continue;
    }
    const kept = {id, blob: await response.blob(), parameters: image.parameters, request: {...entry.about.request, model: job.model},
                  form: entry.about.form, grid: entry.about.grid, seed: image.seed, width: image.width, height: image.height,
                  time: job.created * 1000 + i};
    addImage(kept);
    await images.put({...kept, url: undefined});
    images.trim();
  }
}

// Jobs that ran, and requests that waited, when the page was left.
export async function resume(missed) {
  onMissed = missed;
  $("cancel").onclick = cancelAll;
  $("drop-outbox").onclick = drop;
  for (const [id, about] of settings.read("jobs", [])) {
    try {
      follow(await ask(`/v1/jobs/${id}`), about.request ? about : {request: about});
    } catch { /* its result has been dropped */ }
  }
  outbox = await waiting.all();
  showCounts();
  pump();
}
