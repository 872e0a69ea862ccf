// From the bytes in the page to what the shader reads: an atlas of bricks, each of 9^3 vertices, and where they lie.
"use strict";

const SIDE = 9;  // vertices of a brick of 8^3 cells, the neighbors' first ones included

async function inflate(base64) {
  const text = atob(base64.trim()), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; ++i) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

// scene: the page's header. buffer: numbers of vertex bricks, their masks, numbers of cell bricks, planes of bytes.
function unpack(scene, buffer) {
  const n = scene.vertexBricks, cells = scene.cellBricks, kept = scene.vertices, channels = scene.channels;
  const vertexBrick = new Uint32Array(buffer, 0, n);
  const cellBrick = new Uint32Array(buffer, 4 * n, cells);
  const masks = new Uint8Array(buffer, 4 * (n + cells), 64 * n);
  const planes = new Uint8Array(buffer, 4 * (n + cells) + 64 * n, channels * kept);
  for (let c = 0; c < channels; ++c)  // stored as differences
    for (let i = c * kept + 1; i < (c + 1) * kept; ++i) planes[i] += planes[i - 1];
  const [vx, vy, vz] = scene.resolution.map((size) => Math.ceil(size / 8));
  const brickAt = new Int32Array(vx * vy * vz).fill(-1), rows = new Int32Array(512 * n).fill(-1);
  for (let b = 0, row = 0; b < n; ++b) {
    brickAt[vertexBrick[b]] = b;
    for (let i = 0; i < 512; ++i)
      if (masks[64 * b + (i >> 3)] >> (i & 7) & 1) rows[512 * b + i] = row++;
  }
  const [cx, cy, cz] = scene.resolution.map((size) => Math.ceil((size - 1) / 8));
  const across = Math.ceil(Math.cbrt(cells)), deep = Math.max(1, Math.ceil(cells / (across * across)));
  const size = [SIDE * across, SIDE * across, SIDE * deep];
  const chunks = scene.chunks, atlas = [];
  for (let c = 0; c < chunks; ++c) atlas.push(new Uint8Array(4 * size[0] * size[1] * size[2]));
  const bricks = new Uint8Array(4 * cx * cy * cz);
  for (let slot = 0; slot < cells; ++slot) {
    const id = cellBrick[slot], x = Math.floor(id / (cy * cz)), y = Math.floor(id / cz) % cy, z = id % cz;
    const sx = slot % across, sy = Math.floor(slot / across) % across, sz = Math.floor(slot / (across * across));
    bricks.set([sx, sy, sz, 1], 4 * (x + cx * (y + cy * z)));
    for (let k = 0; k < SIDE; ++k)
      for (let j = 0; j < SIDE; ++j)
        for (let i = 0; i < SIDE; ++i) {
          const bx = x + (i >> 3), by = y + (j >> 3), bz = z + (k >> 3);
          if (bx >= vx || by >= vy || bz >= vz) continue;
          const brick = brickAt[(bx * vy + by) * vz + bz];
          const row = brick < 0 ? -1 : rows[512 * brick + 64 * (i & 7) + 8 * (j & 7) + (k & 7)];
          if (row < 0) continue;
          const at = 4 * (SIDE * sx + i + size[0] * (SIDE * sy + j + size[1] * (SIDE * sz + k)));
          for (let c = 0; c < channels; ++c) atlas[c >> 2][at + (c & 3)] = planes[c * kept + row];
        }
  }
  return { atlas, size, bricks, brickSize: [cx, cy, cz] };
}
