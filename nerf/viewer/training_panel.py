"""The part of a page that shows and steers a training run."""

import numpy as np
import viser
import viser.uplot

from nerf.training.loop import TrainMetrics
from nerf.viewer.live import LiveScene

MOST_POINTS = 300  # of a curve
COLORS = ("#2563eb", "#d97706", "#059669", "#dc2626", "#7c3aed", "#0891b2")
STEPS = viser.uplot.Series(label="step")
CURVE_SIDES = 2.0  # width by height


class TrainingPanel:
    """Progress, curves, and buttons to pause and stop; update() brings it up to date."""

    def __init__(self, client: viser.ClientHandle, live: LiveScene) -> None:
        gui, self._live, self._shown = client.gui, live, None
        with gui.add_folder("Progress"):
            self.progress = gui.add_progress_bar(0.0)
            self.status = gui.add_markdown("no figures yet")
            self.pause = gui.add_button("pause")
            self.stop = gui.add_button("stop and save", color="red")
            empty = np.zeros(1), np.full(1, np.nan)
            psnr = STEPS, viser.uplot.Series(label="PSNR", stroke=COLORS[0], width=2)
            flat = {"x": viser.uplot.Scale(time=False)}
            self.psnr = gui.add_uplot(
                empty, psnr, title="PSNR of training batches, dB", scales=flat, aspect=CURVE_SIDES
            )
            logarithmic = flat | {"y": viser.uplot.Scale(distr=3)}
            nothing = STEPS, viser.uplot.Series(label="photometric", stroke=COLORS[0])
            self.losses = gui.add_uplot(empty, nothing, title="losses", scales=logarithmic, aspect=CURVE_SIDES)
        self.pause.on_click(lambda _: self._toggle())
        self.stop.on_click(lambda _: live.stop())
        self.update()

    def update(self) -> None:
        """Shows the newest figures, if they are new."""
        live = self._live
        state = len(live.history), live.paused, live.stop_asked, live.changes
        if state == self._shown:
            return
        self._shown = state
        self.pause.label = "go on" if live.paused else "pause"
        self.pause.disabled = self.stop.disabled = live.stop_asked or not live.changes
        if live.history:
            self.status.content = in_words(live)
            self.progress.value = 100 * live.history[-1].progress
            self.psnr.data, (self.losses.series, self.losses.data) = psnr_curve(live.history), loss_curves(live.history)

    def _toggle(self) -> None:
        self._live.pause(not self._live.paused)
        self.update()


def in_words(live: LiveScene) -> str:
    """The newest log entry."""
    last = live.history[-1]
    left = last.seconds * (1 - last.progress) / max(last.progress, 1e-6)
    doing = "finished" if not live.changes else "stopping" if live.stop_asked else "paused" if live.paused else ""
    return (
        f"**step {last.step}** of {last.total_steps} {doing or f'· {left:.0f} s left'}  \n"
        f"PSNR {last.psnr:.2f} dB, {last.rays_per_second / 1e3:.0f}k rays/s  \n"
        f"{last.samples_per_ray:.1f} samples a ray, {100 * live.occupied:.1f}% of the cells occupied"
    )


def thinned(history: list[TrainMetrics]) -> list[TrainMetrics]:
    """At most MOST_POINTS entries, evenly, with the first and the last."""
    chosen = np.linspace(0, len(history) - 1, min(len(history), MOST_POINTS)).round().astype(int)
    return [history[index] for index in chosen]


def psnr_curve(history: list[TrainMetrics]) -> tuple[np.ndarray, np.ndarray]:
    """Steps and PSNR, float64."""
    some = thinned(history)
    return np.array([m.step for m in some], float), np.array([m.psnr for m in some], float)


def loss_curves(
    history: list[TrainMetrics],
) -> tuple[tuple[viser.uplot.Series, ...], tuple[np.ndarray, ...]]:
    """The series of all losses, and their steps and values; what a logarithm has no place for is left out."""
    some = thinned(history)
    names = sorted({name for metrics in some for name in metrics.losses})
    values = [np.array([metrics.losses.get(name, np.nan) for metrics in some], float) for name in names]
    series = [viser.uplot.Series(label=name, stroke=COLORS[i % len(COLORS)]) for i, name in enumerate(names)]
    steps = np.array([metrics.step for metrics in some], float)
    return (STEPS, *series), (steps, *(np.where(value > 0, value, np.nan) for value in values))
