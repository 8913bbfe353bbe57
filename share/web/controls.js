// ControlNets: up to four units, each with a model, an image to follow, and how.
import {$, complain, el, onFile, state, toBase64} from "./core.js";
import {files} from "./store.js";

const kMost = 4;
const kPreprocess = [["none", "None: the image is a map"], ["canny", "Canny edges"], ["invert", "Invert"], ["grey", "Grey"], ["scribble_xdog", "Scribble (of a photo)"],
                     ["scribble", "Scribble (of dark lines)"], ["threshold", "Threshold"], ["tile", "Tile"], ["inpaint", "Inpaint (of the mask)"]];
const kModes = [["balanced", "Balanced"], ["prompt", "Prompt is more important"], ["control", "ControlNet is more important"]];
const kTypes = [["none", "Not a union model"], ...["openpose", "depth", "softedge", "canny", "normal", "segment", "tile", "inpaint"].map((t) => [t, t])];
const kValues = ["model", "preprocess", "strength", "start", "end", "mode", "type"];
const kNumbers = new Set(["strength", "start", "end"]);

let units = [], made = 0;
let changed = () => {};

const choice = (entries) => el("select", {}, ...entries.map(([value, label]) => new Option(label, value)));
const number = (value) => el("input", {type: "number", min: 0, max: 1, step: 0.05, value, inputmode: "decimal", required: true});

class Unit {
  constructor(values) {
    this.image = null;
    this.fields = {
      model: choice(state.cap.controls.map((name) => [name, name])),
      preprocess: choice(kPreprocess), mode: choice(kModes), type: choice(kTypes),
      strength: el("input", {type: "range", min: 0, max: 2, step: 0.05, value: 1}), start: number(0), end: number(1),
    };
    for (const name of kValues) {
      const field = this.fields[name];
      if (values[name] !== undefined && (field.tagName !== "SELECT" || [...field.options].some((o) => o.value === values[name]))) field.value = values[name];
    }
    this.element = this.build();
    this.show(values.image ?? null);
  }

  build() {
    const {model, preprocess, strength, start, end, mode, type} = this.fields;
    strength.id = `control-strength-${++made}`;  // of the two that its label holds, the one that it names
    const out = el("output", {for: strength.id}, Number(strength.value).toFixed(2));
    strength.addEventListener("input", () => { out.textContent = Number(strength.value).toFixed(2); });
    const file = el("input", {type: "file", accept: "image/png,image/jpeg,image/webp", class: "hidden"});
    file.onchange = () => { if (file.files[0]) this.take(file.files[0]); file.value = ""; };
    this.picture = el("img", {alt: "The image that is followed"});
    this.drop = el("div", {class: "drop"}, this.picture,
                   el("p", {}, "Drop an image here, or ", el("label", {class: "link"}, "choose one", file)));
    onFile(this.drop, (blob) => this.take(blob));
    const label = (text, field) => el("label", {}, text, field);
    return el("fieldset", {class: "unit"}, this.legend = el("legend"), label("Model", model), this.drop,
              el("div", {class: "row"}, label("Preparation", preprocess), label("Balance", mode)),
              el("label", {for: strength.id}, el("span", {}, "Strength: ", out), strength),
              el("div", {class: "row"}, label("From", start), label("To", end), label("Union type", type)),
              el("button", {type: "button", class: "quiet", onclick: () => { setControls(controlValues().filter((_, i) => units[i] !== this)); changed("ControlNet removed"); }}, "Remove"));
  }

  async take(blob) {
    try {
      (await createImageBitmap(blob)).close();
    } catch {
      complain("That is no picture that this browser can read: PNG, JPEG or WebP are.");
      return;
    }
    this.show(blob);
    keepImages();
    changed("image of a ControlNet");
  }

  show(blob) {
    if (this.url) URL.revokeObjectURL(this.url);
    this.image = blob;
    this.url = blob ? URL.createObjectURL(blob) : "";
    this.picture.hidden = !blob;
    if (blob) this.picture.src = this.url;
  }

  values() { return {...Object.fromEntries(kValues.map((name) => [name, this.fields[name].value])), image: this.image}; }
}

export const controlValues = () => units.map((unit) => unit.values());

export function setControls(list) {
  if (!state.cap?.controls?.length) return;
  const before = units;
  units = list.map((values, i) => new Unit({...values, image: values.image ?? before[i]?.image ?? null}));
  for (const unit of before) unit.show(null);
  units.forEach((unit, i) => { unit.legend.textContent = `ControlNet ${i + 1}`; });
  $("controls").replaceChildren(...units.map((unit) => unit.element));
  $("add-control").disabled = units.length >= kMost;
  if (units.length) $("control-box").open = true;
  keepImages();
}

function keepImages() {
  for (let i = 0; i < kMost; ++i) files.put(`control${i}`, units[i]?.image ?? null);
}

// Panel and what a reload brings back; onChange is told what a step of the history is called.
export async function beginControls(kept, onChange) {
  const can = state.options.has("controls") && state.cap.controls.length > 0;
  $("control-box").hidden = !can;
  if (!can) return;
  const list = [];
  for (const [i, values] of (kept ?? []).slice(0, kMost).entries()) list.push({...values, image: await files.get(`control${i}`)});
  setControls(list);
  changed = onChange;
  $("add-control").onclick = () => { setControls([...controlValues(), {}]); onChange("ControlNet added"); units.at(-1).fields.model.focus(); };
}

export async function controlRequests() {
  const out = [];
  for (const [i, unit] of units.entries()) {
    if (!unit.image) throw new Error(`ControlNet ${i + 1} has no image to follow: choose one, or remove it`);
    const values = unit.values();
    const request = {model: values.model, image: await toBase64(unit.image)};
    for (const name of kValues)
      if (name !== "model") request[name] = kNumbers.has(name) ? Number(values[name]) : values[name];
    out.push(request);
  }
  return out;
}
