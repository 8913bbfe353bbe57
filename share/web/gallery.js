// Finished images: the gallery, the viewer with its parameters, enlarging, and settings that come out of PNG files.
import {$, announce, ask, complain, dataUrl, el, state, toBase64, toast} from "./core.js";
import {startFrom, takeOver} from "./fields.js";
import {remember} from "./history.js";
import {images} from "./store.js";

const gallery = [];  // newest first: {id, blob, url, parameters, request, form, seed, width, height, time, grid}
let shown = -1;
let onImage = () => {};  // told of each image that comes or goes

export const knows = (id) => gallery.some((image) => image.id === id);
export const imageOf = (id) => gallery.find((image) => image.id === id);
export const newest = () => gallery[0];

export function addImage(image) {
  if (knows(image.id)) return;
  image.url = URL.createObjectURL(image.blob);
  const at = gallery.findIndex((other) => other.time < image.time);
  gallery.splice(at < 0 ? gallery.length : at, 0, image);
  draw();
  onImage(image);
}

async function take(image) {
  gallery.splice(gallery.indexOf(image), 1);
  await images.remove(image.id);
  draw();
  onImage(image);
}

async function bring(image) {
  await images.put({...image, url: undefined});
  addImage(image);
}

function draw() {
  $("empty").hidden = gallery.length > 0;
  const known = new Map([...$("gallery").children].map((item) => [item.dataset.id, item]));
  $("gallery").replaceChildren(...gallery.map((image) => known.get(image.id) ?? tile(image)));
}

function tile(image) {
  const name = image.request.prompt || "image";
  const picture = el("img", {src: image.url, alt: name, loading: "lazy", width: image.width, height: image.height});
  const item = el("li", {}, el("button", {type: "button", title: name, onclick: () => view(image.id)}, picture));
  item.dataset.id = image.id;
  return item;
}

export function view(id) { open(gallery.findIndex((image) => image.id === id)); }

function open(index) {
  const image = gallery[index];
  if (!image) return;
  shown = index;
  $("large").src = image.url;
  $("large").alt = image.request.prompt || "image";
  $("parameters").textContent = image.parameters;
  $("download").href = image.url;
  $("download").download = `${image.seed}.png`;
  $("previous").disabled = index === 0;
  $("next").disabled = index === gallery.length - 1;
  if (!$("viewer").open) $("viewer").showModal();
}

async function removeShown() {
  const image = gallery[shown];
  await take(image);
  if (gallery.length) open(Math.min(shown, gallery.length - 1));
  else $("viewer").close();
  toast("Image deleted", remember("image deleted", () => bring(image), () => take(image)));
}

function useShown() {
  const {request: r, form, seed} = gallery[shown];
  const values = form ?? {prompt: r.prompt, negative: r.negative_prompt ?? "", model: r.model, width: r.width, height: r.height, steps: r.steps ?? "",
                          cfg: r.cfg_scale ?? "", sampler: r.sampler ?? "", schedule: r.schedule ?? "", strength: r.strength};
  takeOver({...values, seed}, "Settings taken over");
  $("viewer").close();
}

// Enlarging, where the server offers it.

export function showUpscalers() {
  const names = state.upscalers.filter((name) => name !== "None");
  $("enlarge-box").hidden = !state.paths.has("/sdapi/v1/extra-single-image") || names.length === 0;
  $("upscaler").replaceChildren(...names.map((name) => new Option(name, name)));
}

async function enlarge() {
  const image = gallery[shown], factor = Number($("factor").value), name = $("upscaler").value;
  if (!$("factor").reportValidity()) return;
  $("enlarge").disabled = true;
  announce("Enlarging");
  try {
    const answer = await ask("/sdapi/v1/extra-single-image", {body: {
      image: await toBase64(image.blob), resize_mode: 0, upscaling_resize: factor, upscaler_1: name}});
    const blob = toBlob(answer.image);
    const {width, height} = await createImageBitmap(blob);
    const kept = {id: `${image.id}/x${factor}/${name}/${Date.now()}`, blob, seed: image.seed, width, height, time: Date.now(), request: image.request, form: image.form,
                  parameters: `${image.parameters}, Postprocess upscale by: ${factor}, Postprocess upscaler: ${name}`};
    await bring(kept);
    view(kept.id);
    announce(`Enlarged to ${width} by ${height}`);
  } catch (error) {
    $("viewer").close();
    complain(error.message);
  }
  $("enlarge").disabled = false;
}

function toBlob(base64) {
  return new Blob([Uint8Array.from(atob(base64), (c) => c.charCodeAt(0))], {type: dataUrl(base64).slice(5, dataUrl(base64).indexOf(";"))});
}

// A PNG with parameters brings its settings back.
export async function restore(file) {
  const {parameters: p} = await ask("/sdapi/v1/png-info", {body: {image: await toBase64(file)}});
  if (!p || p.Prompt === undefined) return false;
  const [width, height] = (p.Size ?? "").split("x");
  const label = (list, name) => list.find((one) => (one.label ?? one.name) === name);
  const values = {
    prompt: p.Prompt, negative: p["Negative prompt"] ?? "", steps: p.Steps, cfg: p["CFG scale"], seed: p.Seed,
    width: width || undefined, height: height || undefined, model: p.Model,
    sampler: label(state.samplers, p.Sampler)?.name ?? "", schedule: label(state.schedules, p["Schedule type"])?.name ?? "",
    blur: p["Mask blur"], hires: p["Hires upscale"] !== undefined,
  };
  if (values.hires)
    Object.assign(values, {"hires-scale": p["Hires upscale"], "hires-steps": p["Hires steps"] ?? "", "hires-upscaler": p["Hires upscaler"],
                           "hires-strength": p["Denoising strength"]});
  else values.strength = p["Denoising strength"];
  takeOver(values, "Settings restored from the image");
  return true;
}

export async function beginGallery(told) {
  onImage = told;
  for (const image of await images.all()) addImage(image);
  $("use").onclick = useShown;
  $("use-image").onclick = () => { startFrom(gallery[shown].blob); $("viewer").close(); };
  $("delete").onclick = removeShown;
  $("close").onclick = () => $("viewer").close();
  $("previous").onclick = () => open(shown - 1);
  $("next").onclick = () => open(shown + 1);
  $("enlarge").onclick = enlarge;
  $("copy").onclick = async () => {
    const done = await navigator.clipboard?.writeText($("parameters").textContent).then(() => true, () => false);
    announce(done ? "Parameters copied" : "This browser does not let pages copy");
  };
  document.addEventListener("keydown", (event) => {
    if (!$("viewer").open || event.target.closest("input, select, pre")) return;
    if (event.key === "ArrowLeft") open(shown - 1);
    if (event.key === "ArrowRight") open(shown + 1);
  });
}
