"""Key frames: cameras with times, and the smooth path that meets each at its time.

Legend: K key frames, S segments between them (K, or K - 1 without a loop), N points of the path. All arithmetic is in
float64 on the CPU.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nerf.cameras.cameras import Cameras
from nerf.cameras.limits import FASTEST, SLOWEST, SMALLEST_ANGLE
from nerf.cameras.splines import PIECES, distances, interpolate_poses, parameters_at

LEAST_SECONDS, MOST_SECONDS = 0.1, 600.0  # from one key frame to the next
DEFAULT_SECONDS = 2.0


@dataclass(frozen=True, eq=False)
class KeyFrame:
    """A camera that the path passes."""

    c2w: Tensor  # [3,4]
    fov: float  # vertical angle of view, radians
    seconds: float = DEFAULT_SECONDS  # from the key frame before it; of the first one: from the last, in a loop

    def __post_init__(self) -> None:
        if not SMALLEST_ANGLE <= self.fov < math.pi:
            raise ValueError(f"fov: found {self.fov}, expected an angle of at least {SMALLEST_ANGLE:g} and below pi")

    def timed(self, seconds: float) -> "KeyFrame":
        """The same after other seconds, within what a path may have."""
        return replace(self, seconds=min(max(LEAST_SECONDS, seconds), MOST_SECONDS))  # NaN is the least


@dataclass(frozen=True)
class KeyFramePath:
    """Key frames in their order. Changes return a new path."""

    keys: tuple[KeyFrame, ...] = ()
    loop: bool = False  # from the last key frame on to the first

    def __len__(self) -> int:
        return len(self.keys)

    def inserted(self, index: int, key: KeyFrame) -> "KeyFramePath":
        """With one more key frame, which gets this index."""
        return replace(self, keys=(*self.keys[:index], key, *self.keys[index:]))

    def without(self, index: int) -> "KeyFramePath":
        return replace(self, keys=self.keys[:index] + self.keys[index + 1 :])

    def moved(self, index: int, to: int) -> "KeyFramePath":
        """With a key frame at another place in the order."""
        return self.without(index).inserted(to, self.keys[index])

    def timed(self, index: int, seconds: float) -> "KeyFramePath":
        """With other seconds to a key frame."""
        return self.without(index).inserted(index, self.keys[index].timed(seconds))

    @property
    def durations(self) -> list[float]:
        """Seconds of each segment, S numbers."""
        seconds = [key.seconds for key in self.keys]
        if len(self) < 2:
            return []
        return [*seconds[1:], seconds[0]] if self.loop else seconds[1:]

    @property
    def seconds(self) -> float:
        """Of the whole path."""
        return sum(self.durations)

    def stretched(self, seconds: float) -> "KeyFramePath":
        """With all durations in proportion, so that the whole takes so many seconds."""
        if not self.durations:
            return self
        return replace(self, keys=tuple(key.timed(key.seconds * seconds / self.seconds) for key in self.keys))

    def frames(self, fps: float) -> Tensor:
        """Times of the frames of a video, at least two; the last one is the end, or in a loop the one before it.

        fps: frames per second. Raises ValueError where they are not from SLOWEST to FASTEST.
        """
        if not SLOWEST <= fps <= FASTEST:
            raise ValueError(f"fps: found {fps}, expected {SLOWEST:g} to {FASTEST:g} frames per second")
        number = max(2, round(self.seconds * fps))
        times = torch.arange(number, dtype=torch.float64) / (number if self.loop else number - 1)
        return self.seconds * times

    def at(self, times: Tensor) -> tuple[Tensor, Tensor]:
        """Poses [N,3,4] and vertical angles of view [N] at times [N], seconds from 0 to the path's.

        The camera moves on the spline of nerf/cameras/splines.py; the distance it has traveled is a monotone cubic of
        time (_distance_at), so that the speed does not jump at key frames. Focal lengths change in proportion.
        Raises ValueError for fewer than 2 key frames.
        """
        if len(self) < 2:
            raise ValueError(f"key frames: found {len(self)}, expected at least 2")
        # In a loop the key frames go on around both ends, so that the seam is a place like any other.
        around = (self.keys[-1], *self.keys, *self.keys[:2]) if self.loop else self.keys
        c2w = torch.stack([key.c2w.double().cpu() for key in around])
        first = 1 if self.loop else 0
        durations = torch.tensor(self.durations, dtype=torch.float64)
        u, traveled = distances(c2w, first, first + len(durations))
        targets = _distance_at(times.double().cpu(), durations, traveled[::PIECES], self.loop)
        places = parameters_at(u, traveled, targets)
        focal = torch.tensor([1 / math.tan(key.fov / 2) for key in around], dtype=torch.float64)
        segment = places.floor().long().clamp(0, len(around) - 2)
        focal = torch.lerp(focal[segment], focal[segment + 1], places - segment)
        return interpolate_poses(c2w, places), 2 * torch.atan(1 / focal)

    def cameras(self, fps: float, width: int, height: int) -> Cameras:
        """The cameras of the frames, float32 pinholes of this size in pixels."""
        poses, fov = self.at(self.frames(fps))
        focal = 0.5 * height / torch.tan(0.5 * fov)
        middle = torch.tensor([width / 2, height / 2]).expand(len(focal), 2)
        return Cameras(poses.float(), torch.cat([focal[:, None].expand(-1, 2), middle], dim=1).float(), width, height)


def _distance_at(times: Tensor, durations: Tensor, traveled: Tensor, loop: bool) -> Tensor:
    """The distance [N] at times [N]: piecewise cubic through traveled [S+1], which is met after durations [S].

    The speed at a key frame is the harmonic mean of the mean speeds before and after it, which keeps the distance
    rising (Fritsch and Butland 1984): no segment is slower in its middle than half its mean speed. Where a path has an
    end, it has the mean speed of the segment there.
    """
    mean = traveled.diff() / durations
    speeds = 2 / (1 / mean.roll(1) + 1 / mean)
    speeds = torch.cat([speeds, speeds[:1]])
    if not loop:
        speeds[0], speeds[-1] = mean[0], mean[-1]
    ends = torch.nn.functional.pad(durations.cumsum(0), (1, 0))
    segment = torch.searchsorted(ends, times, right=True).clamp(1, len(durations)) - 1
    duration = durations[segment]
    x = ((times - ends[segment]) / duration).clamp(0, 1)
    from_start = (1 + 2 * x) * traveled[segment] + x * duration * speeds[segment]
    from_end = (3 - 2 * x) * traveled[segment + 1] - (1 - x) * duration * speeds[segment + 1]
    return (1 - x).square() * from_start + x.square() * from_end
