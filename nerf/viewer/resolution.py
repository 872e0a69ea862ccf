"""How large pictures are: small enough for a steady rate while the camera moves, full when it rests."""

import math

FRAME_SECONDS = 0.08  # rendering time of a picture while the camera moves; sending it takes the rest of a tenth
FIRST_PIXELS = 96 * 96  # of the first picture, before any speed is known
FEWEST_PIXELS = 48 * 48  # below this nothing can be recognized
MEMORY = 0.5  # weight of the newest measurement

Size = tuple[int, int]  # width, height


class Resolution:
    """Chooses the size of the next picture from the rendering speed of the previous ones."""

    def __init__(self, frame_seconds: float = FRAME_SECONDS) -> None:
        self.frame_seconds = frame_seconds
        self._seconds_per_pixel: float | None = None

    def moving(self, full: Size) -> Size:
        """The size of a picture that takes frame_seconds, in the proportions of full and at most as large."""
        return self.in_time(full, self.frame_seconds)

    def in_time(self, full: Size, seconds: float) -> Size:
        """The same for so many seconds."""
        pixels = FIRST_PIXELS
        if self._seconds_per_pixel is not None:
            pixels = max(FEWEST_PIXELS, seconds / self._seconds_per_pixel)
        scale = min(1.0, math.sqrt(pixels / (full[0] * full[1])))
        return max(1, round(full[0] * scale)), max(1, round(full[1] * scale))

    def band(self, rays_per_pixel: int) -> int:
        """Pixels of a part of a picture, after which a newer request may interrupt it."""
        if self._seconds_per_pixel is None:
            return FIRST_PIXELS // rays_per_pixel
        return max(1024, int(0.5 * self.frame_seconds / self._seconds_per_pixel / rays_per_pixel))

    def measured(self, pixels: int, seconds: float) -> None:
        """Takes note of a picture with one ray per pixel."""
        new, old = seconds / pixels, self._seconds_per_pixel
        self._seconds_per_pixel = new if old is None else old + MEMORY * (new - old)
