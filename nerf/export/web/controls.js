// The camera that a person moves: it turns around a point, with the mouse, with fingers or with keys.
"use strict";

const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
const plus = (a, b, scale = 1) => a.map((x, i) => x + scale * b[i]);
const unit = (a) => a.map((x) => x / Math.hypot(...a));

// A vector turned by an angle around a unit axis (Rodrigues).
function turned(vector, axis, angle) {
  const c = Math.cos(angle), s = Math.sin(angle), k = dot(axis, vector) * (1 - c), side = cross(axis, vector);
  return vector.map((x, i) => x * c + side[i] * s + axis[i] * k);
}

class Orbit {
  // start: center, target, up and focal, the focal length over the picture's height.
  constructor(element, start, changed) {
    this.start = start;
    this.changed = changed;
    this.pointers = new Map();
    this.reset();
    element.style.touchAction = "none";
    element.addEventListener("contextmenu", (event) => event.preventDefault());
    element.addEventListener("pointerdown", (event) => {
      element.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, event);
    });
    for (const name of ["pointerup", "pointercancel"])
      element.addEventListener(name, (event) => this.pointers.delete(event.pointerId));
    element.addEventListener("pointermove", (event) => this.move(event, element));
    element.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(Math.exp(0.001 * event.deltaY * (event.deltaMode ? 30 : 1)));
    }, { passive: false });
    element.addEventListener("dblclick", () => this.reset());
    addEventListener("keydown", (event) => this.key(event));
  }

  reset() {
    Object.assign(this, { center: [...this.start.center], target: [...this.start.target] });
    this.changed();
  }

  axes() {  // right, up, backward
    const backward = unit(plus(this.center, this.target, -1));
    const right = unit(cross(this.start.up, backward));
    return [right, cross(backward, right), backward];
  }

  orbit(x, y) {
    const [right, , backward] = this.axes(), up = this.start.up;
    const height = Math.acos(Math.max(-1, Math.min(1, dot(backward, up))));
    y = Math.max(0.02, Math.min(Math.PI - 0.02, height + y)) - height;  // not over the pole
    let arm = turned(plus(this.center, this.target, -1), right, y);
    this.center = plus(this.target, turned(arm, up, x));
    this.changed();
  }

  pan(x, y) {  // in heights of the picture
    const [right, up] = this.axes();
    const scale = Math.hypot(...plus(this.center, this.target, -1)) / this.start.focal;
    for (const name of ["center", "target"]) this[name] = plus(plus(this[name], right, -x * scale), up, y * scale);
    this.changed();
  }

  zoom(factor) {
    this.center = plus(this.target, plus(this.center, this.target, -1), factor);
    this.changed();
  }

  move(event, element) {
    const before = this.pointers.get(event.pointerId);
    if (!before) return;
    const height = element.clientHeight, x = (event.clientX - before.clientX) / height, y = (event.clientY - before.clientY) / height;
    if (this.pointers.size > 1) {
      const other = [...this.pointers.values()].find((pointer) => pointer.pointerId !== event.pointerId);
      const gap = (pointer) => Math.hypot(pointer.clientX - other.clientX, pointer.clientY - other.clientY);
      this.zoom(Math.max(1, gap(before)) / Math.max(1, gap(event)));
      this.pan(x / 2, y / 2);
    } else if (event.shiftKey || event.buttons & 6) this.pan(x, y);
    else this.orbit(-4 * x, -4 * y);
    this.pointers.set(event.pointerId, event);
  }

  key(event) {
    const step = 0.05, turn = { ArrowLeft: [step, 0], ArrowRight: [-step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] }[event.key];
    if (turn) this.orbit(...turn);
    else if (event.key === "+" || event.key === "-") this.zoom(event.key === "+" ? 0.95 : 1.05);
    else return;
    event.preventDefault();
  }

  camera(width, height) {
    const focal = this.start.focal * Math.min(height, width / this.start.aspect);
    return { axes: this.axes(), center: this.center, intrinsics: [focal, focal, width / 2, height / 2] };
  }
}
