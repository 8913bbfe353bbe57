// What was changed and how to take it back: settings, images that were chosen, removed or deleted.
import {$, announce} from "./core.js";

const kMost = 100;
const done = [], undone = [];

function show() {
  $("back").disabled = done.length === 0;
  $("forth").disabled = undone.length === 0;
  $("back").title = done.length ? `Undo: ${done.at(-1).what}` : "Nothing to undo";
  $("forth").title = undone.length ? `Redo: ${undone.at(-1).what}` : "Nothing to redo";
}

// Returns the function that takes this step back.
export function remember(what, back, forth) {
  const step = {what, back, forth};
  done.push(step);
  if (done.length > kMost) done.shift();
  undone.length = 0;
  show();
  return () => {
    const at = done.indexOf(step);
    if (at < 0) return;
    done.splice(at, 1);
    undone.push(step);
    show();
    back();
  };
}

async function move(from, to, way, said) {
  const step = from.pop();
  if (!step) return;
  to.push(step);
  show();
  await step[way]();
  announce(`${said}: ${step.what}`);
}
export const undo = () => move(done, undone, "back", "Undone");
export const redo = () => move(undone, done, "forth", "Done again");

export function listenForUndo() {
  $("back").onclick = undo;
  $("forth").onclick = redo;
  show();
  document.addEventListener("keydown", (event) => {
    const key = event.key.toLowerCase();
    if (!(event.ctrlKey || event.metaKey) || event.defaultPrevented || (key !== "z" && key !== "y")) return;
    // Texts and the mask have an undo of their own.
    if (event.target.closest("textarea, canvas, input:not([type=checkbox], [type=range], [type=file])")) return;
    event.preventDefault();
    if (key === "y" || event.shiftKey) redo();
    else undo();
  });
}
