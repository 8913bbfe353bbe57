// The form: its values as an object, what is kept of them, and the request that they make.
import {$, complain, state, toBase64, toast} from "./core.js";
import {controlRequests, controlValues, setControls} from "./controls.js";
import {remember} from "./history.js";
import {MaskEditor} from "./mask.js";
import {files, settings} from "./store.js";

export const kFields = [
  "prompt", "negative", "model", "width", "height", "sampler", "schedule", "steps", "cfg", "count", "seed", "strength", "brush", "blur",
  "masked-content", "only-masked", "padding", "invert", "hires", "hires-scale", "hires-strength", "hires-steps", "hires-upscaler",
];
// Where a request's field is in the form, for errors.
const kFieldOf = {cfg_scale: "cfg", negative_prompt: "negative", mask_blur: "blur", only_masked_padding: "padding", masked_content: "masked-content",
                  hires_scale: "hires-scale", hires_steps: "hires-steps", hires_denoising_strength: "hires-strength", hires_upscaler: "hires-upscaler"};

const valueOf = (field) => field.type === "checkbox" ? field.checked : field.value;

export function snapshot() {
  return {...Object.fromEntries(kFields.map((id) => [id, valueOf($(id))])), controls: controlValues()};
}

let last = null;  // the form as it was when a step of the history was last made

export function keepForm() {
  const values = snapshot();
  settings.write("form", {...values, controls: values.controls.map(({image, ...rest}) => rest)});
}

export function setForm(values) {
  for (const [id, value] of Object.entries(values)) {
    const field = $(id);
    if (id === "controls" || !field || value === undefined || value === null) continue;
    if (field.tagName === "SELECT" && ![...field.options].some((o) => o.value === String(value))) continue;
    if (field.type === "checkbox") field.checked = value === true;
    else field.value = value;
  }
  if (values.controls) setControls(values.controls);
  showDerived();
  keepForm();
  last = snapshot();
}

const same = (a, b) => JSON.stringify(a) === JSON.stringify(b) && a.controls.every((unit, i) => unit.image === b.controls[i]?.image);

// A step of the history where the form differs from the last one.
export function noteChange(what = "settings") {
  const now = snapshot(), before = last ?? now;
  last = now;
  keepForm();
  return same(before, now) ? undefined : remember(what, () => setForm(before), () => setForm(now));
}

// Values of elsewhere: with a way back.
export function takeOver(values, said) {
  noteChange();
  const before = snapshot();
  setForm(values);
  const now = snapshot();
  const back = remember("settings taken over", () => setForm(before), () => setForm(now));
  if (said) toast(said, back);
}

export const currentModel = () => state.models.find((m) => m.name === $("model").value);

export function ownSize() {
  const model = currentModel();
  if (model?.width) setForm({width: model.width, height: model.height});
}

export function showDerived() {
  $("strength-out").textContent = Number($("strength").value).toFixed(2);
  $("hires-strength-out").textContent = Number($("hires-strength").value).toFixed(2);
  const scaled = (id) => Math.round(Number($(id).value) * Number($("hires-scale").value) / 8) * 8;
  $("hires-size").textContent = `${scaled("width")} × ${scaled("height")}`;
  $("hires-fields").hidden = !$("hires").checked;
  $("padding-box").hidden = !$("only-masked").checked;
}

// The request that the form makes; what was left empty is left to the model.
export async function readForm() {
  const number = (id) => Number($(id).value);
  const request = {
    model: $("model").value, prompt: $("prompt").value, width: number("width"), height: number("height"),
    count: number("count"), seed: number("seed"),
  };
  if ($("steps").value) request.steps = number("steps");
  if ($("cfg").value) request.cfg_scale = number("cfg");
  if ($("negative").value) request.negative_prompt = $("negative").value;
  if ($("sampler").value) request.sampler = $("sampler").value;
  if ($("schedule").value) request.schedule = $("schedule").value;
  if (state.start) Object.assign(request, await readStart());
  if ($("hires").checked && state.options.has("hires_scale")) {
    Object.assign(request, {hires_scale: number("hires-scale"), hires_denoising_strength: number("hires-strength")});
    if ($("hires-steps").value) request.hires_steps = number("hires-steps");
    if ($("hires-upscaler").value && state.options.has("hires_upscaler")) request.hires_upscaler = $("hires-upscaler").value;
  }
  const controls = await controlRequests();
  if (controls.length) request.controls = controls;
  return request;
}

async function readStart() {
  const request = {init_image: await toBase64(state.start), strength: Number($("strength").value)};
  const mask = await editor.mask();
  if (!mask) return request;
  Object.assign(request, {mask: await toBase64(mask), mask_blur: Number($("blur").value)});
  if ($("masked-content").value !== "original") request.masked_content = $("masked-content").value;
  if ($("invert").checked) request.mask_invert = true;
  if ($("only-masked").checked) Object.assign(request, {only_masked: true, only_masked_padding: Number($("padding").value)});
  return request;
}

export function focusField(param) {
  const id = kFieldOf[param] ?? param;
  if (id && kFields.includes(id)) $(id).focus();
}

// The image to start from.

export const editor = new MaskEditor($("mask"), () => {
  $("undo").disabled = editor.strokes.length === 0;
  editor.layerBlob().then((blob) => files.put("mask", blob));
});

async function showStart(blob, mask) {
  state.start = blob;
  files.put("start", blob);
  if (blob) await editor.load(blob, mask);
  files.put("mask", blob ? await editor.layerBlob() : null);
  $("start").hidden = !blob;
  if (blob) $("start-box").open = true;
  $("undo").disabled = editor.strokes.length === 0;
}

// With a way back; `silent` where a reload brings the image again.
export async function startFrom(blob, mask = null, silent = false) {
  const before = {blob: state.start, mask: state.start ? await editor.layerBlob() : null};
  try {
    await showStart(blob, mask);
  } catch {
    await showStart(before.blob, before.mask);
    complain("That is no picture that this browser can read: PNG, JPEG or WebP are.");
    return;
  }
  if (silent) return;
  const size = ({width, height}) => ({width, height}), multiple = (side) => Math.min(4096, Math.max(8, Math.round(side / 8) * 8));
  const sizeBefore = size(snapshot());
  if (blob) setForm({width: multiple(editor.picture.width), height: multiple(editor.picture.height)});
  const sizeNow = size(snapshot());
  const back = remember(blob ? "image to start from" : "image removed", async () => { await showStart(before.blob, before.mask); setForm(sizeBefore); },
                        async () => { await showStart(blob, mask); setForm(sizeNow); });
  if (!blob) toast("Image removed", back);
}
