#version 300 es
// One pixel: rays are marched through bricks of bytes, features are composited, and a small network makes the color
// of their mean (Hedman et al. 2021, "Baking Neural Radiance Fields", section 4). The lattice of samples, the
// contraction and the straightened frustum are those of the training program, so that both make the same picture.
precision highp float;
precision highp int;
precision highp sampler3D;
precision highp usampler3D;

uniform sampler3D uAtlas0, uAtlas1, uAtlas2;  // bricks of 9^3 vertices; channel 0 of the first is density
uniform usampler3D uBricks;                   // slot of each brick of 8^3 cells in the atlas; w is 0 for an empty one
uniform sampler2D uWeights;                   // of the network, four inputs by four outputs at a time
uniform vec3 uCells, uAtlasSize, uLower, uScale;
uniform float uStep, uNear, uFar, uMinTransmittance, uMinWeight;
uniform vec4 uDensity;                        // raw density of byte 0, its range, shift, scale
uniform vec4 uFeatureLow[CHUNKS], uFeatureRange[CHUNKS];
uniform mat3 uAxes;                           // right, up and backward axes of the camera
uniform vec3 uCenter, uBackground;
uniform vec4 uIntrinsics;                     // fx, fy, cx, cy in pixels
uniform float uHeight;                        // of the picture, in pixels
uniform int uRays;                            // per pixel: 1 or 4
uniform int uMode;                            // 0 color, 1 depth, 2 opacity
uniform vec2 uDepthRange;
uniform float uContraction;                   // thickness of the shell of an unbounded scene, 0 for others
uniform mat3 uSceneAxes;                      // of a turned box; of a forward-facing scene: its reference camera
uniform vec3 uSceneCenter;
uniform vec2 uFrustum;                        // near plane (0: another kind of scene) and thickness
out vec4 color;

const float LAST = 1.0 - 1.0 / 4194304.0;
float squash(float x, float limit) { return x / (1.0 + x / limit); }
float unsquash(float x, float limit) { return x / (1.0 - min(x / limit, LAST)); }

struct Ray {
  vec3 origin, direction;  // in cells; with a contraction in halves of the inner box
  float tMin, tMax, leave, limit;
  vec3 frustum;            // t at infinity, depth of the origin, depth per world distance
};

void clipRay(inout Ray ray) {
  for (int axis = 0; axis < 3; ++axis) {
    float o = ray.origin[axis], d = ray.direction[axis];
    if (d == 0.0) {
      if (o < 0.0 || o > uCells[axis]) ray.tMax = -1.0;
    } else {
      float a = -o / d, b = (uCells[axis] - o) / d;
      ray.tMin = max(ray.tMin, min(a, b));
      ray.tMax = min(ray.tMax, max(a, b));
    }
  }
}

vec3 inner() { return 0.5 * uCells / (1.0 + uContraction); }

Ray makeRay(vec3 origin, vec3 direction) {
  Ray ray;
  ray.frustum = vec3(1.0, 0.0, 1.0);
  ray.leave = 1e30;
  ray.limit = 1.0;
  ray.tMin = uNear;
  ray.tMax = uFar;
  origin = (origin - uSceneCenter) * uSceneAxes;
  direction = direction * uSceneAxes;
  if (uFrustum.x > 0.0) {  // Mildenhall et al. 2020, appendix C
    float depth = -origin.z, forward = -direction.z;
    bool ahead = forward > 1e-4;
    if (!ahead) forward = 1.0;
    vec2 tangents = direction.xy / forward, entry = (origin.xy + (uFrustum.x - depth) * tangents) / uFrustum.x;
    vec3 way = vec3(tangents - entry, uFrustum.y);
    float whole = length(way);
    ray.frustum = vec3(whole, depth, forward);
    ray.tMin = whole * (1.0 - uFrustum.x / max(depth + uNear * forward, uFrustum.x));
    ray.tMax = ahead ? whole * (1.0 - uFrustum.x / max(depth + uFar * forward, uFrustum.x)) : -1.0;
    origin = vec3(entry, 0.0);
    direction = way / whole;
  }
  ray.origin = (origin - uLower) * uScale;
  ray.direction = direction * uScale;
  if (uContraction == 0.0) {
    clipRay(ray);
    return ray;
  }
  ray.origin = (ray.origin - 0.5 * uCells) / inner();
  ray.direction /= inner();
  float steepest = 0.0, outward = 0.0, passes = 0.0;
  for (int axis = 0; axis < 3; ++axis) {
    float o = ray.origin[axis], d = ray.direction[axis];
    if (abs(d) > steepest) {
      steepest = abs(d);
      outward = d > 0.0 ? o : -o;
    }
  }
  for (int axis = 0; axis < 3; ++axis)
    passes = max(passes, abs(ray.origin[axis] - ray.direction[axis] / steepest * outward));
  ray.leave = (max(passes, 1.0) - outward) / steepest;
  ray.limit = max(uContraction, sqrt(passes * (1.0 + uContraction))) / steepest;
  float far = min(uFar, ray.leave + ray.limit * 4194304.0);
  ray.tMin = uNear > ray.leave ? ray.leave + squash(uNear - ray.leave, ray.limit) : uNear;
  ray.tMax = far > ray.leave ? ray.leave + squash(far - ray.leave, ray.limit) : far;
  return ray;
}

vec3 position(Ray ray, float t) {  // in cells
  if (uContraction == 0.0) return ray.origin + t * ray.direction;
  float far = t > ray.leave ? ray.leave + unsquash(t - ray.leave, ray.limit) : t;
  vec3 point = ray.origin + far * ray.direction, size = abs(point);
  float norm = max(size.x, max(size.y, size.z));
  float shrink = norm > 1.0 ? (1.0 + squash(norm - 1.0, uContraction)) / norm : 1.0;
  return 0.5 * uCells + inner() * shrink * point;
}

// Up to which t a ray that is now at t stays in this brick, and surely runs straight.
float leavesBrick(Ray ray, float t, vec3 brick) {
  float last = ray.tMax;
  bool contracted = uContraction > 0.0;
  if (contracted) {
    if (t > ray.leave || any(greaterThan(abs(ray.origin + t * ray.direction), vec3(1.0)))) return t;
    last = min(last, ray.leave);
  }
  vec3 walls = 8.0 * (brick + step(vec3(0.0), ray.direction));
  if (contracted) walls = clamp((walls - 0.5 * uCells) / inner(), -1.0, 1.0);
  for (int axis = 0; axis < 3; ++axis)
    if (ray.direction[axis] != 0.0) last = min(last, (walls[axis] - ray.origin[axis]) / ray.direction[axis]);
  return last;
}

float worldDistance(Ray ray, float t) {
  if (uFrustum.x > 0.0) {
    float way = min(t / ray.frustum.x, 1.0 - 1.0 / 1048576.0);
    return (uFrustum.x / (1.0 - way) - ray.frustum.y) / ray.frustum.z;
  }
  return t > ray.leave ? ray.leave + unsquash(t - ray.leave, ray.limit) : t;
}

// Adds what a ray composites: bytes of the features, opacity, and t times weight.
void march(Ray ray, float jitter, inout vec4 features[CHUNKS], inout float opacity, inout float depth) {
  float light = 1.0, k = 0.0;
  for (int i = 0; i < MAX_STEPS; ++i) {
    float t = ray.tMin + (k + 0.5 + jitter) * uStep;
    if (t >= ray.tMax) break;
    vec3 point = clamp(position(ray, t), vec3(0.0), uCells);
    vec3 brick = floor(min(point, uCells - 1e-3) / 8.0);
    uvec4 slot = texelFetch(uBricks, ivec3(brick), 0);
    if (slot.w == 0u) {
      k = max(k + 1.0, ceil((leavesBrick(ray, t, brick) - ray.tMin) / uStep - 0.5 - jitter));
      continue;
    }
    vec3 at = (vec3(slot.xyz) * 9.0 + (point - brick * 8.0) + 0.5) / uAtlasSize;
    vec4 first = texture(uAtlas0, at);
    float raw = uDensity.x + uDensity.y * first.x + uDensity.z;
    float density = (raw > 20.0 ? raw : log(1.0 + exp(raw))) * uDensity.w;
    float weight = light * (1.0 - exp(-density * uStep));
    if (weight >= uMinWeight) {
      features[0] += weight * vec4(first.yzw, 0.0);
#if CHUNKS > 1
      features[1] += weight * texture(uAtlas1, at);
#endif
#if CHUNKS > 2
      features[2] += weight * texture(uAtlas2, at);
#endif
      opacity += weight;
      depth += weight * t;
      light -= weight;
      if (light < uMinTransmittance) break;
    }
    k += 1.0;
  }
}

vec4 weightsAt(int i) { return texelFetch(uWeights, ivec2(i & 255, i >> 8), 0); }

// The network: inputs are the features' means and the encoded direction.
vec3 decode(vec4 features[CHUNKS], vec3 direction) {
  float numbers[4 * INPUTS];
  for (int i = 0; i < 4 * INPUTS; ++i) numbers[i] = 0.0;
  int n = 0;
  for (int c = 0; c < CHUNKS; ++c) {
    vec4 value = uFeatureLow[c] + uFeatureRange[c] * features[c];
    for (int j = 0; j < 4; ++j)
      if (!(c == 0 && j == 3) && n < KEPT) numbers[n++] = value[j];
  }
  for (int j = 0; j < 3; ++j) numbers[n++] = direction[j];
  for (int f = 0; f < FREQUENCIES; ++f)
    for (int j = 0; j < 3; ++j) numbers[n++] = sin(exp2(float(f)) * direction[j]);
  for (int f = 0; f < FREQUENCIES; ++f)
    for (int j = 0; j < 3; ++j) numbers[n++] = cos(exp2(float(f)) * direction[j]);
  vec4 x[WIDEST], y[WIDEST];
  for (int i = 0; i < INPUTS; ++i) x[i] = vec4(numbers[4*i], numbers[4*i+1], numbers[4*i+2], numbers[4*i+3]);
  int at = 0, inputs = INPUTS;
  for (int layer = 0; layer < LAYERS; ++layer) {
    for (int o = 0; o < WIDTH; ++o) {
      vec4 sum = weightsAt(at++);
      for (int i = 0; i < inputs; ++i) {
        sum += mat4(weightsAt(at), weightsAt(at + 1), weightsAt(at + 2), weightsAt(at + 3)) * x[i];
        at += 4;
      }
      y[o] = max(sum, 0.0);
    }
    for (int o = 0; o < WIDTH; ++o) x[o] = y[o];
    inputs = WIDTH;
  }
  vec4 sum = weightsAt(at++);
  for (int i = 0; i < inputs; ++i) {
    sum += mat4(weightsAt(at), weightsAt(at + 1), weightsAt(at + 2), weightsAt(at + 3)) * x[i];
    at += 4;
  }
  return 1.0 / (1.0 + exp(-sum.xyz)) + float(DIFFUSE) * (uFeatureLow[0] + uFeatureRange[0] * features[0]).xyz;
}

vec3 falseColor(float x) {  // near is blue, far is yellow: a fit of viridis
  return vec3(0.28 + x * (-0.35 + x * (-0.2 + 1.27 * x)), 0.02 + x * (1.3 - 0.42 * x),
              0.35 + x * (1.4 + x * (-3.0 + 1.4 * x)));
}

void main() {
  vec2 pixel = gl_FragCoord.xy;
  pixel.y = uHeight - pixel.y;
  vec4 features[CHUNKS];
  for (int c = 0; c < CHUNKS; ++c) features[c] = vec4(0.0);
  float opacity = 0.0, depth = 0.0;
  Ray ray;
  vec2 shifts[4] = vec2[](vec2(-0.125, -0.375), vec2(0.375, -0.125), vec2(0.125, 0.375), vec2(-0.375, 0.125));
  vec3 direction;
  for (int r = 0; r < uRays; ++r) {
    vec2 at = pixel + (uRays > 1 ? shifts[r] : vec2(0.0));
    direction = normalize(uAxes * vec3((at - uIntrinsics.zw) / uIntrinsics.xy * vec2(1.0, -1.0), -1.0));
    ray = makeRay(uCenter, direction);
    float t = 0.0;
    float jitter = uRays > 1 ? (float(r) + 0.5) / 4.0 - 0.5 : 0.0;
    float before = opacity;
    march(ray, jitter, features, opacity, t);
    depth += opacity > before ? worldDistance(ray, t / (opacity - before)) * (opacity - before) : 0.0;
  }
  direction = normalize(uAxes * vec3((pixel - uIntrinsics.zw) / uIntrinsics.xy * vec2(1.0, -1.0), -1.0));
  float mean = 1.0 / max(opacity, 1e-3 * float(uRays));
  for (int c = 0; c < CHUNKS; ++c) features[c] *= mean;
  depth *= mean;
  opacity /= float(uRays);
  vec3 rgb = uBackground;
  if (uMode == 1) {
    float place = (depth - uDepthRange.x) / max(uDepthRange.y - uDepthRange.x, 1e-6);
    rgb = opacity > 0.5 ? falseColor(clamp(place, 0.0, 1.0)) : vec3(0.0);
  } else if (uMode == 2) {
    rgb = vec3(opacity);
  } else if (opacity > 0.0) {
    rgb = decode(features, direction) * opacity + (1.0 - opacity) * uBackground;
  }
  color = vec4(rgb, 1.0);
}
