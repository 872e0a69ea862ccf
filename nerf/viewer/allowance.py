"""How much of a training run's time pictures may take."""

RESTING, MOVING = 0.04, 0.16  # seconds of pictures per second of training, while all cameras rest and while one moves
MOST_SAVED = 0.1  # seconds: what was not used for long does not become one long pause
MOVED_LATELY = 1.0  # seconds for which a camera counts as moving after its last picture


class Allowance:
    """Seconds that pictures may take, earned by training. A picture may overdraw it; the next ones wait for that."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._since_moved = MOVED_LATELY

    def earn(self, trained: float, moving: bool) -> None:
        """After so many seconds of training. moving: whether a picture of a moving camera waits."""
        self._since_moved = 0.0 if moving else self._since_moved + trained
        share = MOVING if self._since_moved < MOVED_LATELY else RESTING
        self.seconds = min(MOST_SAVED, self.seconds + share * trained)

    def spend(self, seconds: float) -> None:
        """For a picture."""
        self.seconds -= seconds
