// The page of rocm-sd: a form that becomes jobs, jobs that become images, images that give their settings back.
import {beginControls} from "./controls.js";
import {$, ask, complain, fill, onFile, state} from "./core.js";
import {currentModel, editor, focusField, keepForm, kFields, noteChange, ownSize, readForm, setForm, showDerived, snapshot, startFrom} from "./fields.js";
import {beginGallery, newest, restore, showUpscalers} from "./gallery.js";
import {beginGrids, missed, placeImage} from "./grid.js";
import {listenForUndo} from "./history.js";
import {isBusy, resume, submit} from "./jobs.js";
import {files, settings} from "./store.js";

const form = $("form");

async function draw() {
  if (!form.reportValidity()) return;
  complain();
  noteChange();
  try {
    const {controls, ...kept} = snapshot();
    await submit(await readForm(), {form: kept});
    watchLater(500);
    if (matchMedia("(max-width: 56rem)").matches) $("queue").scrollIntoView({block: "start"});
  } catch (error) {
    complain(error.message);
    focusField(error.param);
  }
}

function showLoras(names) {
  $("lora-box").hidden = names.length === 0;
  const used = (name) => new RegExp(`<lora:${name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}(:[^>]*)?>`);
  const show = () => {
    const filter = $("lora-filter").value.toLowerCase();
    $("loras").replaceChildren(...names.filter((n) => n.toLowerCase().includes(filter)).map((name) => {
      const button = Object.assign(document.createElement("button"), {type: "button", className: "quiet", textContent: name});
      button.setAttribute("aria-pressed", used(name).test($("prompt").value));
      button.onclick = () => {
        const prompt = $("prompt");
        prompt.value = used(name).test(prompt.value) ? prompt.value.replace(used(name), "").replace(/ +/g, " ").trim()
                                                     : `${prompt.value.trim()} <lora:${name}:1>`.trim();
        noteChange("LoRA");
        button.setAttribute("aria-pressed", used(name).test(prompt.value));
      };
      const item = document.createElement("li");
      item.append(button);
      return item;
    }));
  };
  $("lora-filter").oninput = show;
  $("prompt").addEventListener("change", show);
  show();
}

async function takeFile(file) {
  complain();
  try {
    if (!await restore(file)) await startFrom(file);
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

const gigabytes = (bytes) => (bytes / 2 ** 30).toFixed(1);
const speedOf = (seconds) => !(seconds > 0) ? "" : seconds >= 1 ? `${seconds.toFixed(1)} s a step` : `${(1 / seconds).toFixed(1)} steps/s`;

async function watchServer() {
  try {
    const [now, memory] = await Promise.all([ask("/ready"), ask("/sdapi/v1/memory").catch(() => ({}))]);
    const worker = now.workers.find((w) => w.state !== "waiting") ?? now.workers[0];
    const used = memory.cuda?.system ?? memory.ram;
    const parts = [worker.device_name.split(",")[0].replace(/^host: /, ""), used && `${gigabytes(used.used)} of ${gigabytes(used.total)} GB`, speedOf(worker.seconds_per_step),
                   now.queued > 0 && `${now.queued} wait`];
    $("status").textContent = now.ready ? parts.filter(Boolean).join(" · ") : worker.error ?? "Loading the model…";
    $("status").title = now.workers.map((w) => [w.device_name, w.model, speedOf(w.seconds_per_step)].filter(Boolean).join(", ")).join("\n");
    if (now.ready && !state.models.some((m) => m.width)) await loadCapabilities();
    watchLater(!now.ready ? 1500 : isBusy() ? 3000 : 30000);
  } catch {
    $("status").textContent = "The server does not answer";
    watchLater(3000);
  }
}

async function loadCapabilities() {
  const first = state.cap === null;
  const list = (path) => ask(path).catch(() => []);
  const [cap, document_, samplers, schedules, upscalers, latentModes] = await Promise.all([
    ask("/v1/capabilities"), ask("/openapi.json").catch(() => ({})), ask("/sdapi/v1/samplers"), ask("/sdapi/v1/schedulers"), list("/sdapi/v1/upscalers"),
    list("/sdapi/v1/latent-upscale-modes")]);
  Object.assign(state, {cap, models: cap.models, samplers, schedules, options: new Set(cap.options.map((o) => o.name)),
                        paths: new Set(Object.keys(document_.paths ?? {})), upscalers: upscalers.map((u) => u.name), latentModes: latentModes.map((m) => m.name)});
  fill($("model"), cap.models.map((m) => [m.name, `${m.name} (${m.kind})`]));
  fill($("sampler"), [["", "Automatic"], ...samplers.map((s) => [s.name, s.name])]);
  fill($("schedule"), [["", "Automatic"], ...schedules.filter((s) => s.name !== "automatic").map((s) => [s.name, s.label])]);
  $("count").max = cap.limits.images;
  $("steps").max = $("hires-steps").max = cap.limits.steps;
  $("hires-box").hidden = !state.options.has("hires_scale");
  const enlargers = [...state.latentModes, ...state.upscalers].filter((name) => name !== "None");
  $("hires-upscaler-box").hidden = !state.options.has("hires_upscaler") || enlargers.length === 0;
  fill($("hires-upscaler"), [["", "Automatic"], ...enlargers.map((name) => [name, name])]);
  showUpscalers();
  if (first) {
    const kept = settings.read("form", {});
    $("model").value = cap.models.find((m) => m.current)?.name;
    await beginControls(kept.controls, noteChange);
    const {controls, ...values} = kept;
    setForm(values);
    await beginGrids();
    showLoras(cap.loras);
  }
  if (!$("width").value || !$("height").value) ownSize();
}

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  settings.write("theme", name);
}

// Which panels are open.
function keepPanels() {
  const panels = [...form.querySelectorAll("details")];
  const open = settings.read("panels", []);
  for (const panel of panels) {
    panel.open = open.includes(panel.id);
    panel.addEventListener("toggle", () => settings.write("panels", panels.filter((one) => one.open).map((one) => one.id)));
  }
}

function listen() {
  form.addEventListener("submit", (event) => { event.preventDefault(); draw(); });
  form.addEventListener("input", () => { showDerived(); keepForm(); });
  form.addEventListener("change", (event) => { if (kFields.includes(event.target.id) || event.target.closest("#controls")) noteChange(); });
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && event.target.closest("#grid-box input") && !event.ctrlKey) {
      event.preventDefault();
      $("go-grid").click();
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !$("viewer").open) draw();
  });
  const step = (values) => () => { noteChange(); for (const [id, value] of Object.entries(values())) $(id).value = value; noteChange(); showDerived(); };
  $("swap").onclick = step(() => ({width: $("height").value, height: $("width").value}));
  $("own-size").onclick = step(() => { const model = currentModel(); return model?.width ? {width: model.width, height: model.height} : {}; });
  $("random-seed").onclick = step(() => ({seed: -1}));
  $("last-seed").onclick = step(() => ({seed: newest()?.seed ?? $("seed").value}));
  $("theme").onclick = () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  $("brush").oninput = () => { editor.brush = Number($("brush").value); };
  $("erase").onchange = () => { editor.erase = $("erase").checked; };
  $("undo").onclick = () => editor.undo();
  $("clear").onclick = () => editor.clear();
  $("remove").onclick = () => startFrom(null);
  $("file").onchange = () => { if ($("file").files[0]) startFrom($("file").files[0]); $("file").value = ""; };
  onFile($("start-box"), startFrom);
  onFile(document.body, takeFile);
  listenForUndo();
  keepPanels();
}

async function begin() {
  setTheme(settings.read("theme", matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
  listen();
  await beginGallery(placeImage);
  try {
    await loadCapabilities();
  } catch (error) {
    complain(error.message);
  }
  editor.brush = Number($("brush").value);
  const start = await files.get("start");
  if (start) await startFrom(start, await files.get("mask"), true);
  await resume(missed);
  watchServer();
}

begin();
