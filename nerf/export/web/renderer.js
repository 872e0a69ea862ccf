// The WebGL 2 side: textures, the program of march.glsl, and pictures, of which rows can be drawn a few at a time.
"use strict";

const SMALLER = "export it with web_features=3, or train it with a smaller field.num_voxels";

class Renderer {
  constructor(canvas, scene, data, source) {
    const gl = canvas.getContext("webgl2", { alpha: false, antialias: false, preserveDrawingBuffer: true });
    if (!gl) throw new Error("this browser has no WebGL 2; switch on hardware acceleration, or open the page in another one");
    this.gl = gl;
    this.scene = scene;
    const most = gl.getParameter(gl.MAX_3D_TEXTURE_SIZE);
    if (Math.max(...data.size) > most)
      throw new Error(`the scene needs 3D textures of ${Math.max(...data.size)} texels, this GPU has ${most}; ${SMALLER}`);
    this.program = this.link(VERTICES, source);
    this.copy = this.link(VERTICES, COPY);
    gl.useProgram(this.program);
    this.at = {};
    for (let i = 0; i < gl.getProgramParameter(this.program, gl.ACTIVE_UNIFORMS); ++i) {
      const name = gl.getActiveUniform(this.program, i).name;
      this.at[name.replace("[0]", "")] = gl.getUniformLocation(this.program, name);
    }
    gl.pixelStorei(gl.UNPACK_ALIGNMENT, 1);
    data.atlas.forEach((bytes, i) => this.texture3D(i, data.size, gl.RGBA8, gl.RGBA, bytes, gl.LINEAR));
    for (let i = data.atlas.length; i < 3; ++i) this.texture3D(i, [1, 1, 1], gl.RGBA8, gl.RGBA, new Uint8Array(4), gl.LINEAR);
    this.texture3D(3, data.brickSize, gl.RGBA8UI, gl.RGBA_INTEGER, data.bricks, gl.NEAREST);
    this.weights(4, scene.network.weights);
    this.constants(data);
    this.target = null;
  }

  link(vertices, fragments) {
    const gl = this.gl, program = gl.createProgram();
    for (const [kind, source] of [[gl.VERTEX_SHADER, vertices], [gl.FRAGMENT_SHADER, fragments]]) {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, source);
      gl.compileShader(shader);
      gl.attachShader(program, shader);
      if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS) && !gl.isContextLost())
        throw new Error(`this GPU's driver does not compile the shader: ${gl.getShaderInfoLog(shader)}`);
    }
    gl.linkProgram(program);
    if (!gl.getProgramParameter(program, gl.LINK_STATUS)) throw new Error(`WebGL: ${gl.getProgramInfoLog(program)}`);
    return program;
  }

  texture3D(unit, size, inside, format, bytes, filter) {
    const gl = this.gl;
    gl.activeTexture(gl.TEXTURE0 + unit);
    gl.bindTexture(gl.TEXTURE_3D, gl.createTexture());
    for (const name of [gl.TEXTURE_WRAP_S, gl.TEXTURE_WRAP_T, gl.TEXTURE_WRAP_R]) gl.texParameteri(gl.TEXTURE_3D, name, gl.CLAMP_TO_EDGE);
    for (const name of [gl.TEXTURE_MIN_FILTER, gl.TEXTURE_MAG_FILTER]) gl.texParameteri(gl.TEXTURE_3D, name, filter);
    gl.texImage3D(gl.TEXTURE_3D, 0, inside, ...size, 0, format, gl.UNSIGNED_BYTE, bytes);
    if (gl.getError() === gl.OUT_OF_MEMORY)
      throw new Error(`the scene does not fit this GPU's memory; ${SMALLER}`);
  }

  weights(unit, numbers) {
    const gl = this.gl, rows = Math.ceil(numbers.length / 1024), padded = new Float32Array(1024 * rows);
    padded.set(numbers);
    gl.activeTexture(gl.TEXTURE0 + unit);
    gl.bindTexture(gl.TEXTURE_2D, gl.createTexture());
    for (const name of [gl.TEXTURE_MIN_FILTER, gl.TEXTURE_MAG_FILTER]) gl.texParameteri(gl.TEXTURE_2D, name, gl.NEAREST);
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA32F, 256, rows, 0, gl.RGBA, gl.FLOAT, padded);
  }

  constants(data) {
    const gl = this.gl, s = this.scene, at = this.at;
    ["uAtlas0", "uAtlas1", "uAtlas2", "uBricks", "uWeights"].forEach((name, unit) => at[name] && gl.uniform1i(at[name], unit));
    gl.uniform3fv(at.uCells, s.resolution.map((size) => size - 1));
    gl.uniform3fv(at.uAtlasSize, data.size);
    gl.uniform3fv(at.uLower, s.lower);
    gl.uniform3fv(at.uScale, s.scale);
    gl.uniform1f(at.uStep, s.step);
    gl.uniform1f(at.uNear, s.near);
    gl.uniform1f(at.uFar, s.far);
    gl.uniform1f(at.uMinTransmittance, s.minTransmittance);
    gl.uniform1f(at.uMinWeight, s.minWeight);
    gl.uniform4fv(at.uDensity, s.density);
    gl.uniform4fv(at.uFeatureLow, s.featureLow);
    gl.uniform4fv(at.uFeatureRange, s.featureRange);
    gl.uniform1f(at.uContraction, s.contraction);
    gl.uniformMatrix3fv(at.uSceneAxes, false, s.axes);
    gl.uniform3fv(at.uSceneCenter, s.center);
    gl.uniform2fv(at.uFrustum, s.frustum);
    gl.uniform2fv(at.uDepthRange, s.depthRange);
    this.background(s.background);
  }

  background(rgb) {
    this.gl.useProgram(this.program);
    this.gl.uniform3fv(this.at.uBackground, rgb);
  }

  // A target of this size in texels, kept until another size is asked for.
  resize(width, height) {
    if (this.target && this.target.width === width && this.target.height === height) return;
    const gl = this.gl;
    if (this.target) {
      gl.deleteTexture(this.target.texture);
      gl.deleteFramebuffer(this.target.frame);
    }
    const texture = gl.createTexture(), frame = gl.createFramebuffer();
    gl.activeTexture(gl.TEXTURE5);
    gl.bindTexture(gl.TEXTURE_2D, texture);
    gl.texStorage2D(gl.TEXTURE_2D, 1, gl.RGBA8, width, height);
    for (const name of [gl.TEXTURE_WRAP_S, gl.TEXTURE_WRAP_T]) gl.texParameteri(gl.TEXTURE_2D, name, gl.CLAMP_TO_EDGE);
    gl.bindFramebuffer(gl.FRAMEBUFFER, frame);
    gl.framebufferTexture2D(gl.FRAMEBUFFER, gl.COLOR_ATTACHMENT0, gl.TEXTURE_2D, texture, 0);
    this.target = { width, height, texture, frame };
  }

  // Rows [first, last) of the target, counted from below. camera: axes (right, up, backward), center, fx, fy, cx, cy.
  // It returns when they are drawn, so that the time it takes is the GPU's: gl.finish() waits for nothing in Chromium.
  draw(camera, mode, rays, first = 0, last = this.target.height) {
    const gl = this.gl, { width, height, frame } = this.target;
    gl.useProgram(this.program);
    gl.bindFramebuffer(gl.FRAMEBUFFER, frame);
    gl.viewport(0, 0, width, height);
    gl.enable(gl.SCISSOR_TEST);
    gl.scissor(0, first, width, last - first);
    gl.uniformMatrix3fv(this.at.uAxes, false, camera.axes.flat());
    gl.uniform3fv(this.at.uCenter, camera.center);
    gl.uniform4fv(this.at.uIntrinsics, camera.intrinsics);
    gl.uniform1f(this.at.uHeight, height);
    gl.uniform1i(this.at.uRays, rays);
    gl.uniform1i(this.at.uMode, mode);
    gl.drawArrays(gl.TRIANGLES, 0, 3);
    gl.disable(gl.SCISSOR_TEST);
    gl.readPixels(0, first, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, new Uint8Array(4));
  }

  // The target on the canvas, stretched to its size.
  show() {
    const gl = this.gl;
    gl.bindFramebuffer(gl.FRAMEBUFFER, null);
    gl.viewport(0, 0, gl.drawingBufferWidth, gl.drawingBufferHeight);
    gl.useProgram(this.copy);
    gl.activeTexture(gl.TEXTURE5);
    const smooth = this.target.width === gl.drawingBufferWidth ? gl.NEAREST : gl.LINEAR;
    for (const name of [gl.TEXTURE_MIN_FILTER, gl.TEXTURE_MAG_FILTER]) gl.texParameteri(gl.TEXTURE_2D, name, smooth);
    gl.uniform1i(gl.getUniformLocation(this.copy, "uPicture"), 5);
    gl.drawArrays(gl.TRIANGLES, 0, 3);
  }

  // A whole picture as bytes, rows from top to bottom, RGBA: what tests read.
  pixels(camera, width, height, rays) {
    const gl = this.gl, bytes = new Uint8Array(4 * width * height), row = 4 * width;
    this.resize(width, height);
    this.draw(camera, 0, rays);
    gl.readPixels(0, 0, width, height, gl.RGBA, gl.UNSIGNED_BYTE, bytes);
    const flipped = new Uint8Array(bytes.length);
    for (let y = 0; y < height; ++y) flipped.set(bytes.subarray(row * y, row * (y + 1)), row * (height - 1 - y));
    return flipped;
  }
}

const VERTICES = `#version 300 es
out vec2 place;
void main() {
  place = vec2(gl_VertexID & 1, gl_VertexID >> 1) * 2.0;
  gl_Position = vec4(place * 2.0 - 1.0, 0.0, 1.0);
}`;
const COPY = `#version 300 es
precision highp float;
uniform sampler2D uPicture;
in vec2 place;
out vec4 color;
void main() { color = vec4(texture(uPicture, place).rgb, 1.0); }`;
