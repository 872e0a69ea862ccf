"""How the optimized CUDA kernel of each operation differs from the naive one, in one line each."""

from dataclasses import dataclass


@dataclass(frozen=True)
class KernelNotes:
    """The idea of the naive (plain) and of the optimized (fast) CUDA kernel."""

    plain: str
    fast: str


ONE_THREAD_EACH = "one thread per point and channel"
KERNEL_NOTES = {
    "camera_rays": KernelNotes("a thread per pixel", "a thread per ray; a warp writes its rays together"),
    "march_rays": KernelNotes("a thread walks a ray", "a warp per ray, each lane walks a piece of the lattice"),
    "march_visible": KernelNotes(
        "a thread walks a ray",
        "a warp per ray: each lane asks of eight points of the lattice whether anything is near, then looks at one; "
        "four rays side by side where they are close; what was seen is noted as bits, which eight lanes of a ray write",
    ),
    "render_rays": KernelNotes(
        "a thread walks a pixel's rays",
        "a warp prepares four pixels at once, then walks a pixel's rays side by side; its lanes share the corners of a "
        "cell, whose samples are added up before it is read, on its way while the one before is added",
    ),
    "interpolate_trilinear": KernelNotes(
        ONE_THREAD_EACH,
        "32 bits; rows of whole 16 bytes: a thread per float4; backward: runs of points keep sums of vertices, two"
        " threads side by side along z; 16 channels: the threads of a point share its rows; from sm_90 one 16-byte"
        " reduction per addition",
    ),
    "composite_rays": KernelNotes(
        "a thread per ray",
        "common channel counts: a warp per ray, eight lanes where rays are many and short; transmittance by scans over "
        "lanes, lanes beside each other along a row, all loads of a round on their way together",
    ),
    "mlp": KernelNotes(
        "a thread per row, backward one per parameter too",
        "tensor cores; forward one kernel: a tile of rows stays in shared memory through all layers, weights go by; "
        "backward the same, gradients of weights as products over splits of the rows, added in one order",
    ),
    "activate_density": KernelNotes("a thread per sample", "the same"),
    "pixel_directions": KernelNotes("a thread per pixel", "the same"),
    "pixel_colors": KernelNotes("a thread per pixel", "the same"),
    "pair_ssim": KernelNotes("a thread per pair of pixels", "the same"),
    "world_depth": KernelNotes("a thread per ray", "the same"),
    "compare_beside": KernelNotes("a thread per patch", "the same"),
    "shading_inputs": KernelNotes(
        "a thread per four numbers, backward per pixel", "sines by the special function unit; backward 16 lanes a pixel"
    ),
    "contract_basis": KernelNotes(
        "a thread per sample and color or channel",
        "degrees known at compile time: a warp moves the rows of its samples as one run, turned in shared memory",
    ),
    "distortion_loss": KernelNotes(
        "a thread per ray", "a warp per ray, eight lanes where rays are many and short; sums over pairs by scans"
    ),
    "draw_pixels": KernelNotes("a thread per pixel, seven reads of its search on their way together", "the same"),
    "carve_points": KernelNotes("a thread per point", "the same"),
    "shift_pixels": KernelNotes("a thread per pixel", "the same"),
    "sample_images": KernelNotes(
        "a thread per ray", "a thread per value; four bytes: one load, one store, small blocks"
    ),
    "total_variation_grad": KernelNotes(
        "a thread per value",
        "rows of whole 16 bytes: a thread per 16 bytes, blocks walk tiles so that neighbors are cached, or "
        "threads follow a list of vertices",
    ),
    "adam_step": KernelNotes(
        "a thread per value, powers included",
        "a block computes its powers once; packs of 16 bytes, the rest where gradients are not zero; 12, 16 and 28 "
        "channels: a warp takes 32 rows, looks for the neighbors of each once, and shares out their packs",
    ),
    "all_finite": KernelNotes(
        "a thread per 4096 numbers",
        "a block per 4096 numbers, of any tensor; all its loads of 16 bytes on their way at once",
    ),
    "interpolate_cells": KernelNotes(
        ONE_THREAD_EACH,
        "rows of whole 16 bytes: a thread per pack, small blocks; backward in the order of its writes, or a warp per "
        "point",
    ),
    "index_add": KernelNotes(
        "a thread and an atomic addition per number", "scatter, own or bins, by contention and slice"
    ),
}
