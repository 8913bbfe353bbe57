// What every part of the page uses: elements, requests, messages, the state that they share.
export const $ = (id) => document.getElementById(id);

// el("button", {type: "button", class: "quiet", "aria-label": "Close", onclick: close}, "Close")
export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element[name] = value;
    else if (name === "class") element.className = value;
    else if (value === true) element.setAttribute(name, "");
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

export const state = {
  cap: null,        // /v1/capabilities
  options: new Set(),  // fields that /v1/jobs takes
  paths: new Set(),    // of /openapi.json
  models: [], samplers: [], schedules: [], upscalers: [], latentModes: [],
  start: null,      // the image to start from, a Blob
};

export async function ask(path, options = {}) {
  if (options.body !== undefined)
    options = {...options, method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(options.body)};
  const response = await fetch(path, options);
  if (response.status === 204) return null;
  const answer = await response.json().catch(() => ({}));
  if (!response.ok && path !== "/ready") {
    const error = new Error(answer.error?.message ?? answer.errors ?? answer.detail ?? `${response.status} ${response.statusText}`);
    error.status = response.status;
    error.param = answer.error?.param;
    throw error;
  }
  return answer;
}

export const toBase64 = (blob) => new Promise((resolve) => {
  const reader = new FileReader();
  reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
  reader.readAsDataURL(blob);
});

// A file in base64, whichever of the three kinds it is.
export function dataUrl(base64) {
  const kind = base64.startsWith("/9j/") ? "jpeg" : base64.startsWith("UklGR") ? "webp" : "png";
  return `data:image/${kind};base64,${base64}`;
}

export function complain(message) {
  $("alert").textContent = message ?? "";
  $("alert").hidden = !message;
  if (message) $("alert").scrollIntoView({block: "nearest"});
}

// For screen readers alone.
export function announce(text) { $("said").textContent = text; }

let toastTimer = 0;
export function toast(text, undo) {
  const box = $("toast");
  box.firstElementChild.textContent = text;
  const button = box.querySelector("button");
  button.hidden = !undo;
  button.onclick = () => { undo?.(); box.hidden = true; };
  box.hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => { box.hidden = true; }, 8000);
}

export function fill(select, entries) {
  const before = select.value;
  select.replaceChildren(...entries.map(([value, label]) => new Option(label, value)));
  if (entries.some(([value]) => value === before)) select.value = before;
}

// Files that are dropped on the element, which no one above it then takes.
export function onFile(element, take) {
  element.addEventListener("dragover", (event) => { event.preventDefault(); element.classList.add("over"); });
  element.addEventListener("dragleave", () => element.classList.remove("over"));
  element.addEventListener("drop", (event) => {
    event.preventDefault();
    event.stopPropagation();
    element.classList.remove("over");
    if (event.dataTransfer.files[0]) take(event.dataTransfer.files[0]);
  });
}

export function save(blob, name) {
  const url = URL.createObjectURL(blob);
  el("a", {href: url, download: name}).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
