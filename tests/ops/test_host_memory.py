"""Memory of the host that a GPU reads and writes in place."""

import torch

from nerf.ops.host_memory import HostCounts, host_zeros


def test_host_memory_is_the_devices_to_read_and_write(cuda: str) -> None:
    device = torch.device(cuda)
    before = torch.cuda.memory_allocated()
    for shape, dtype in (((0, 4), torch.float32), ((3, 4), torch.float16), ((100_000, 16), torch.bfloat16)):
        memory = host_zeros(shape, dtype, device)
        assert memory.is_cuda and memory.dtype == dtype and memory.shape == shape and not memory.any()
        rows = torch.arange(0, shape[0], 2, device=device)
        values = torch.rand(len(rows), shape[1], device=device).to(dtype)
        memory.index_copy_(0, rows, values)
        assert torch.equal(memory.index_select(0, rows), values) and torch.equal(memory.cpu()[::2], values.cpu())
        del memory, rows, values
    assert torch.cuda.memory_allocated() == before


def test_counts_in_host_memory_are_read_without_waiting(cuda: str) -> None:
    counts = HostCounts(2, torch.device(cuda))
    assert counts.read() == [0, 0]
    for given in ([3, 2**40], [5, 7]):
        counts.keep_larger(torch.tensor(given, device=cuda))
    torch.cuda.synchronize()
    assert counts.read() == [5, 2**40]
    counts.clear()
    counts.keep_larger(torch.tensor([1, 0], device=cuda))
    torch.cuda.synchronize()
    assert counts.read() == [1, 0]
