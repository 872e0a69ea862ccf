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
    let beside = cross(this.start.up, backward);
    if (Math.hypot(...beside) < 1e-6) {  // along up no direction is the right one, so any is taken
      const sizes = backward.map(Math.abs), least = sizes.indexOf(Math.min(...sizes));
      beside = cross(sizes.map((_, i) => Number(i === least)), backward);
    }
    const right = unit(beside);
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

  pan(x, y) {  // in focal lengths, so that what lies at the target's distance stays under the pointer
    const [right, up] = this.axes();
    const scale = Math.hypot(...plus(this.center, this.target, -1));
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
    const height = element.clientHeight, focal = this.focal(element.clientWidth, height);
    const x = event.clientX - before.clientX, y = event.clientY - before.clientY;
    if (this.pointers.size > 1) {
      const other = [...this.pointers.values()].find((pointer) => pointer.pointerId !== event.pointerId);
      const gap = (pointer) => Math.hypot(pointer.clientX - other.clientX, pointer.clientY - other.clientY);
      this.zoom(Math.max(1, gap(before)) / Math.max(1, gap(event)));
      this.pan(x / focal / 2, y / focal / 2);
    } else if (event.shiftKey || event.buttons & 6) this.pan(x / focal, y / focal);
    else this.orbit(-4 * x / height, -4 * y / height);
    this.pointers.set(event.pointerId, event);
  }

  key(event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;  // the browser's: zoom, back
    const step = 0.05, turn = { ArrowLeft: [step, 0], ArrowRight: [-step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] }[event.key];
    if (turn) this.orbit(...turn);
    else if (event.key === "+" || event.key === "-") this.zoom(event.key === "+" ? 0.95 : 1.05);
    else return;
    event.preventDefault();
  }

  // In pixels: a window that is narrower than the start's picture shows all of its width.
  focal(width, height) {
    return this.start.focal * Math.min(height, width / this.start.aspect);
  }

  camera(width, height) {
    const focal = this.focal(width, height);
    return { axes: this.axes(), center: this.center, intrinsics: [focal, focal, width / 2, height / 2] };
  }
}
