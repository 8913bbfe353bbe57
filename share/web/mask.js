// The image to start from, and a brush that marks what is to be drawn anew.
const kUndo = 30;
const kShade = "rgb(179 38 30 / 0.55)";

export class MaskEditor {
  constructor(canvas, onChange) {
    this.canvas = canvas;
    this.onChange = onChange;
    this.layer = document.createElement("canvas");  // opaque white where painted
    this.picture = null;
    this.strokes = [];  // earlier states of the layer
    this.brush = 40;
    this.erase = false;
    this.cursor = null;  // of the keyboard
    canvas.addEventListener("pointerdown", (e) => this.begin(e));
    canvas.addEventListener("pointermove", (e) => this.move(e));
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => this.end());
    canvas.addEventListener("keydown", (e) => this.key(e));
  }

  get painted() { return this.strokes.length > 0 && !this.isEmpty(); }

  async load(blob, mask) {
    this.picture = await createImageBitmap(blob);
    for (const c of [this.canvas, this.layer]) {
      c.width = this.picture.width;
      c.height = this.picture.height;
    }
    this.strokes = [];
    if (mask) {
      this.remember();
      this.layer.getContext("2d").drawImage(await createImageBitmap(mask), 0, 0);
    }
    this.cursor = null;
    this.draw();
  }

  isEmpty() {
    const {width, height} = this.layer;
    return !this.layer.getContext("2d").getImageData(0, 0, width, height).data.some((value) => value);
  }

  remember() {
    const {width, height} = this.layer;
    this.strokes.push(this.layer.getContext("2d").getImageData(0, 0, width, height));
    if (this.strokes.length > kUndo) this.strokes.shift();
  }

  undo() {
    const before = this.strokes.pop();
    if (before) this.layer.getContext("2d").putImageData(before, 0, 0);
    this.changed();
  }

  clear() {
    this.remember();
    this.layer.getContext("2d").clearRect(0, 0, this.layer.width, this.layer.height);
    this.changed();
  }

  // Where the event is on the picture, which the canvas shows with object-fit: contain.
  place(event) {
    const box = this.canvas.getBoundingClientRect();
    const scale = Math.min(box.width / this.canvas.width, box.height / this.canvas.height);
    const left = box.left + (box.width - this.canvas.width * scale) / 2;
    const top = box.top + (box.height - this.canvas.height * scale) / 2;
    return {x: (event.clientX - left) / scale, y: (event.clientY - top) / scale, scale};
  }

  begin(event) {
    if (!this.picture || event.button > 0) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.remember();
    this.last = this.place(event);
    this.stroke(this.last, this.last);
  }
  move(event) {
    if (!this.last) return;
    const now = this.place(event);
    this.stroke(this.last, now);
    this.last = now;
  }
  end() {
    if (!this.last) return;
    this.last = null;
    this.changed();
  }

  key(event) {
    if (!this.picture) return;
    const step = Math.max(4, this.brush / 4);
    const moves = {ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step]};
    if (event.key === "z" && (event.ctrlKey || event.metaKey)) this.undo();
    else if (event.key === " ") {
      this.cursor ??= {x: this.canvas.width / 2, y: this.canvas.height / 2};
      this.remember();
      this.stroke(this.cursor, this.cursor);
      this.changed();
    } else if (moves[event.key]) {
      this.cursor ??= {x: this.canvas.width / 2, y: this.canvas.height / 2};
      this.cursor.x = Math.min(this.canvas.width, Math.max(0, this.cursor.x + moves[event.key][0]));
      this.cursor.y = Math.min(this.canvas.height, Math.max(0, this.cursor.y + moves[event.key][1]));
      this.draw();
    } else {
      return;
    }
    event.preventDefault();
  }

  stroke(from, to) {
    const context = this.layer.getContext("2d");
    context.globalCompositeOperation = this.erase ? "destination-out" : "source-over";
    context.strokeStyle = "#fff";
    context.lineCap = context.lineJoin = "round";
    context.lineWidth = this.brush * this.canvas.width / 512;  // of a picture 512 wide
    context.beginPath();
    context.moveTo(from.x, from.y);
    context.lineTo(to.x + 0.01, to.y);
    context.stroke();
    this.draw();
  }

  draw() {
    const context = this.canvas.getContext("2d");
    const {width, height} = this.canvas;
    context.drawImage(this.picture, 0, 0);
    const shade = document.createElement("canvas");
    shade.width = width;
    shade.height = height;
    const tint = shade.getContext("2d");
    tint.drawImage(this.layer, 0, 0);
    tint.globalCompositeOperation = "source-in";
    tint.fillStyle = kShade;
    tint.fillRect(0, 0, width, height);
    context.drawImage(shade, 0, 0);
    if (!this.cursor) return;
    context.strokeStyle = "#1a5fb4";
    context.lineWidth = Math.max(1, width / 256);
    context.beginPath();
    context.arc(this.cursor.x, this.cursor.y, this.brush * width / 1024, 0, 2 * Math.PI);
    context.stroke();
  }

  changed() {
    this.draw();
    this.onChange();
  }

  // White on black, as the server takes it; null where nothing is painted.
  async mask() {
    if (!this.painted) return null;
    const out = document.createElement("canvas");
    out.width = this.layer.width;
    out.height = this.layer.height;
    const context = out.getContext("2d");
    context.fillStyle = "#000";
    context.fillRect(0, 0, out.width, out.height);
    context.drawImage(this.layer, 0, 0);
    return new Promise((resolve) => out.toBlob(resolve, "image/png"));
  }
  // As it is kept between reloads: transparent where nothing is painted.
  async layerBlob() {
    return this.painted ? new Promise((resolve) => this.layer.toBlob(resolve, "image/png")) : null;
  }
}
