"""The operations through the native library: torch.ops.nerf, C++ on CPU tensors and CUDA on CUDA tensors.

Names, arguments and docstrings are those of reference.py. Importing this loads the library and hands PyTorch the fake
kernels and the derivatives that the operations' files hold.
"""

from nerf.ops import library, reference, registry

library.load_library()
registry.register()
globals().update(
    {
        name: registry.native_function(name, function)
        for name, function in vars(reference).items()
        if name in registry.FAKES  # total_variation, which total_variation_grad differentiates, is no operation
    }
)
