// The page: loads the scene, draws while the camera moves at the pace of the machine, and in full once it rests.
"use strict";

const MODES = ["color", "depth", "opacity"];
const FRAME = 1000 / 30;  // milliseconds a frame may take while the camera moves
const element = (name) => document.getElementById(name);

function fail(error) {
  element("message").textContent = error.message || String(error);
  element("message").hidden = false;
}

class Page {
  constructor(scene, renderer) {
    Object.assign(this, { scene, renderer, mode: 0, scale: 0.25, rows: null, moved: true, wanted: false });
    this.canvas = element("view");
    this.orbit = new Orbit(this.canvas, scene.start, () => this.change());
    element("mode").onclick = () => {
      this.mode = (this.mode + 1) % MODES.length;
      element("mode").textContent = MODES[(this.mode + 1) % MODES.length];
      this.change();
    };
    element("home").onclick = () => this.orbit.reset();
    element("full").hidden = !document.fullscreenEnabled;  // as on iPhones
    element("full").onclick = () => (document.fullscreenElement ? document.exitFullscreen() : document.documentElement.requestFullscreen());
    element("save").onclick = () => {
      this.wanted = true;
    };
    this.canvas.addEventListener("webglcontextlost", (event) => {
      event.preventDefault();
      fail(new Error("the GPU has dropped this page; reload it"));
    });
    new ResizeObserver(() => this.change()).observe(this.canvas);
    requestAnimationFrame((time) => this.frame(time));
  }

  change() {
    this.moved = true;
  }

  // While the camera moves: the whole picture, small enough. At rest: in full, some rows a frame, four rays a pixel.
  frame(time) {
    const ratio = window.devicePixelRatio || 1, { canvas, renderer } = this;
    const width = Math.max(1, Math.round(canvas.clientWidth * ratio)), height = Math.max(1, Math.round(canvas.clientHeight * ratio));
    // No observer of the canvas is told of other pixels on the same area. A canvas that is given a size is empty.
    if (canvas.width !== width || canvas.height !== height) {
      Object.assign(canvas, { width, height });
      this.moved = true;
    }
    const begin = performance.now();
    if (this.moved) {
      this.moved = false;
      const small = [width, height].map((size) => Math.max(16, Math.round(size * this.scale)));
      renderer.resize(...small);
      renderer.draw(this.orbit.camera(...small), this.mode, 1);
      const took = Math.max(1, performance.now() - begin);
      renderer.show();
      this.scale = Math.max(0.1, Math.min(1, this.scale * Math.sqrt(Math.min(2, FRAME / took))));
      this.pace = took / (small[0] * small[1]);
      this.rows = { next: 0, ready: time + 150 };
      element("state").textContent = `${small[0]} x ${small[1]}, ${Math.round(1000 / took)} frames/s`;
    } else if (this.rows && time >= this.rows.ready) {
      renderer.resize(width, height);
      const rays = this.mode === 0 ? 4 : 1, cost = Math.max(1e-6, this.pace * rays * width);
      const last = Math.min(height, this.rows.next + Math.max(1, Math.floor(FRAME / cost)));
      renderer.draw(this.orbit.camera(width, height), this.mode, rays, this.rows.next, last);
      const took = Math.max(0.1, performance.now() - begin);
      this.pace = 0.5 * (this.pace + took / ((last - this.rows.next) * width * rays));
      this.rows.next = last;
      if (last === height) {
        renderer.show();
        this.rows = null;
        element("state").textContent = `${width} x ${height}`;
      }
    }
    if (this.wanted && !this.rows) this.save();
    requestAnimationFrame((next) => this.frame(next));
  }

  // Called once the picture is drawn in full.
  save() {
    this.wanted = false;
    this.canvas.toBlob((blob) => {
      if (!blob) {
        element("state").textContent = "not saved: the picture is too large for this browser; make the window smaller";
        return;
      }
      const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: `${this.scene.name}.png` });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
  }
}

async function begin() {
  const scene = JSON.parse(element("header").textContent);
  if (!("DecompressionStream" in window)) throw new Error("this browser is too old to unpack the scene; use one of 2023 or later");
  const data = unpack(scene, await inflate(element("data").textContent));
  element("data").remove();
  const renderer = new Renderer(element("view"), scene, data, element("shader").textContent.trim());
  element("message").hidden = true;
  window.nerf = new Page(scene, renderer);
}

begin().catch((error) =>
  fail(error instanceof RangeError ? new Error(`the scene does not fit this browser's memory; ${SMALLER}`) : error));
