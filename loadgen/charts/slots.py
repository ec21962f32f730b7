"""Slots: who was in which one, when, and what it did there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Literal

import numpy as np

from loadgen.charts.picture import Columns, Picture, colour, plain
from loadgen.charts.theme import ink
from loadgen.charts.timeline import SECONDS, column, zoom
from loadgen.engine.trace import Iteration, Slots
from loadgen.report.figures import clean, duration, percent
from loadgen.report.tables import Column, Table

MOST_STAYS, MOST_PARTS = 400, 1500  # more are too small to be seen, and make a page heavy
FEW_STAYS = 40  # so many have their names written into them
FEW_SLOTS = 64  # so many are drawn even where they are empty
LISTED = 40
_LETTER = 0.022  # of a narrow picture's width
SERIES = {"prefill": "prefill", "decode": "decode", "waiting": "wait", "ended": "waste"}
MEANINGS = {
    "prefill": "its prompt is computed",
    "decode": "gives a token in each step",
    "waiting": "holds its slot while others compute",
    "ended": "has ended and still holds its slot",
}

Doing = Literal["prefill", "decode", "waiting", "ended"]


@dataclass(slots=True)
class Part:
    """What a request did in its slot, for a while. None: it computed nothing, and we cannot yet say why."""

    doing: Doing | None
    start_s: float
    end_s: float


@dataclass(slots=True)
class Stay:
    """A request in a slot, from when it took it until it left."""

    request: str
    slot: int
    parts: list[Part] = field(default_factory=list)

    @property
    def start_s(self) -> float:
        return self.parts[0].start_s

    @property
    def end_s(self) -> float:
        return self.parts[-1].end_s

    def go_on(self, doing: Doing | None, end_s: float, start_s: float) -> bool:
        """`doing` this until `end_s`. Whether that is something new."""
        last = self.parts[-1] if self.parts else None
        if last is not None and last.doing is None and doing is not None:
            last.doing = "waiting"
        if last is not None and last.doing == doing:
            last.end_s = end_s
            return False
        self.parts.append(Part(doing, start_s if last is None else last.end_s, end_s))
        return True

    def leave(self, idle: Doing) -> None:
        """`idle`: what it did if it computed nothing at last."""
        if self.parts[-1].doing is None:
            self.parts[-1].doing = idle


class _Floor:
    """Who is in which slot, step by step, and who was."""

    def __init__(self) -> None:
        self.stays: list[Stay] = []
        self._taken = Slots()
        self._open: dict[str, Stay] = {}
        self._parts = 0

    @property
    def is_full(self) -> bool:
        return len(self.stays) >= MOST_STAYS or self._parts >= MOST_PARTS

    def is_unclear(self, cut_s: float) -> bool:
        """Whether somebody computes nothing just before the cut: only what comes later says why."""
        idle = [stay.parts[-1] for stay in self._open.values() if stay.parts[-1].doing is None]
        return any(part.start_s < cut_s for part in idle)

    def see(self, step: Iteration) -> None:
        lost, came = self._taken.start(step)
        self._leave(lost, "waiting")
        for name, slot in came.items():
            self.stays.append(self._open.setdefault(name, Stay(name, slot)))
        prompts, decodes = {name for name, _ in step.prefill}, set(step.decode)
        end_s = step.start_s + step.step_s
        for name, stay in self._open.items():
            doing: Doing | None = "prefill" if name in prompts else "decode" if name in decodes else None
            self._parts += stay.go_on(doing, end_s, step.start_s)
        self._leave(self._taken.end(step), "ended")

    def close(self) -> None:
        self._leave([*self._open], "waiting")

    def _leave(self, names: Iterable[str], idle: Doing) -> None:
        for name in names:
            self._open.pop(name).leave(idle)


def slots(
    trace: Sequence[Iteration],
    title: str = "Slots",
    *,
    name: str = "slots",
    until_s: float | None = None,
    in_seconds: bool = False,
) -> Picture:
    """Each slot a row, each request a bar in it, coloured by what it did; an empty slot is blank.

    Of a long trace, the part before `until_s`, and as much of it as can be read. `name`: of the picture and
    of its data, where a page has several. `in_seconds`: even where all steps take one.
    """
    stays, until_s = _stays(trace, until_s)
    used = 1 + max((stay.slot for stay in stays), default=0)
    count = max(used, *(step.slots for step in trace), 1)
    rows = count if count <= FEW_SLOTS else used
    shares = _shares(stays, count * until_s)
    in_steps = not in_seconds and _in_steps(trace)
    spent = f"{until_s:,.0f} steps" if in_steps else duration(until_s)
    says = _says(shares, count, spent)
    if rows < count:
        says += f" The {count - rows:,} slots that were never used are not drawn."
    if trace and until_s < trace[-1].start_s + trace[-1].step_s:
        says += f" Only the first {spent} are drawn, so that single requests can be seen."
    return Picture(
        name=name,
        title=f"{clean(title)} (SIMULATED)",
        says=says,
        spec=_spec(name, rows, until_s, in_steps, [*shares]),
        data={name: _parts(stays), f"{name}-stays": _names(stays, until_s)},
        table=_table(stays),
        by="doing",
        series={doing: SERIES[doing] for doing in shares},
        height=min(max(24 * rows, 70), 420),
    )


def _stays(trace: Sequence[Iteration], until_s: float | None) -> tuple[list[Stay], float]:
    """Those that began before the cut, clipped there, and where that is."""
    floor, cut_s = _Floor(), inf if until_s is None else until_s
    for step in trace:
        if floor.is_full:
            cut_s = min(cut_s, step.start_s)
        if step.start_s >= cut_s and not floor.is_unclear(cut_s):
            break
        floor.see(step)
    floor.close()
    stays = [stay for stay in floor.stays if stay.start_s < cut_s]
    for stay in stays:
        stay.parts = [replace(p, end_s=min(p.end_s, cut_s)) for p in stay.parts if p.start_s < cut_s]
    return stays, min(cut_s, max((stay.end_s for stay in stays), default=0.0))


def _shares(stays: list[Stay], whole_s: float) -> dict[str, float]:
    """Of all slots' time, by what was done in it; in the order of SERIES."""
    spent = dict.fromkeys(SERIES, 0.0)
    for stay in stays:
        for part in stay.parts:
            spent[str(part.doing)] += part.end_s - part.start_s
    return {doing: s / whole_s for doing, s in spent.items() if s > 0}


def _says(shares: Mapping[str, float], slots: int, spent: str) -> str:
    if not shares:
        return "No request was ever in a slot."

    def share(*doing: Doing) -> str:
        return percent(min(1.0, sum(shares.get(each, 0.0) for each in doing)), 100)

    said = f"Of the time of {slots:,} slots in {spent}, {share('prefill', 'decode')} was used"
    if "ended" in shares:
        said += f", {share('ended')} wasted on requests that had ended"
    if "waiting" in shares:
        said += f", {share('waiting')} spent waiting for others' steps"
    return f"{said}, {percent(max(0.0, 1 - sum(shares.values())), 100)} empty."


def _in_steps(trace: Sequence[Iteration]) -> bool:
    return bool(trace) and all(step.step_s == 1 and step.start_s == step.iteration for step in trace)


def _parts(stays: list[Stay]) -> Columns:
    found = [(stay, part) for stay in stays for part in stay.parts]
    return {
        "slot": [stay.slot for stay, _ in found],
        "start_s": column(np.array([part.start_s for _, part in found])),
        "end_s": column(np.array([part.end_s for _, part in found])),
        "doing": [part.doing for _, part in found],
        "request": [clean(stay.request, 40) for stay, _ in found],
    }


def _names(stays: list[Stay], until_s: float) -> Columns:
    """The outline of each stay, with a name where there are few and it fits in."""
    names = [clean(stay.request, 40) for stay in stays]
    fits = [
        len(stays) <= FEW_STAYS and (stay.end_s - stay.start_s) / until_s > _LETTER * len(name)
        for stay, name in zip(stays, names, strict=True)
    ]
    return {
        "slot": [stay.slot for stay in stays],
        "start_s": column(np.array([stay.start_s for stay in stays])),
        "end_s": column(np.array([stay.end_s for stay in stays])),
        "name": [name if fit else "" for name, fit in zip(names, fits, strict=True)],
    }


def _spec(name: str, rows: int, until_s: float, is_in_steps: bool, shown: Sequence[str]) -> dict[str, Any]:
    """Bars, an edge around each stay, and names in them."""
    import altair as alt

    x, y = _axes(rows, until_s, "steps from the start" if is_in_steps else SECONDS)
    pad = 0.06 if rows <= FEW_SLOTS else 0.0

    def layer(data: str) -> alt.Chart:
        chart = alt.Chart(alt.NamedData(data))
        high, low, middle = (f"datum.slot + {part}" for part in (pad, 1 - pad, 0.5))
        return chart.transform_calculate(high=high, low=low, middle=middle).encode(x=x)

    edge = 1.5 if rows <= FEW_SLOTS // 4 else 0.6
    edges = layer(f"{name}-stays").mark_rect(clip=True, filled=False, stroke=ink("paper"), strokeWidth=edge)
    names = layer(f"{name}-stays").mark_text(
        align="left", baseline="middle", dx=5, fontSize=11, fontWeight=600, color=ink("paper")
    )
    return plain(
        alt.layer(
            _bars(layer(name), shown).encode(y=y("high"), y2="low:Q").add_params(zoom(encodings=["x"])),
            edges.encode(x2="end_s:Q", y=y("high"), y2="low:Q"),
            names.encode(y=y("middle"), text="name:N"),
        )
    )


def _axes(rows: int, until_s: float, title: str) -> tuple[Any, Callable[[str], Any]]:
    """Time, and slots: the first on top, their numbers in the middle of their rows."""
    import altair as alt

    times = alt.Scale(domain=[0, until_s or 1], nice=False)
    middles = [slot + 0.5 for slot in range(0, rows, -(-rows // 16))]
    label = "format(datum.value - 0.5, 'd')"
    axis = alt.Axis(values=middles, labelExpr=label, labelOverlap=False, grid=False, ticks=False)
    scale = alt.Scale(domain=[rows, 0], nice=False)
    x = alt.X("start_s:Q", title=title, scale=times, axis=alt.Axis(grid=False))
    return x, lambda field: alt.Y(f"{field}:Q", title="slot", scale=scale, axis=axis)


def _bars(chart: Any, shown: Sequence[str]) -> Any:
    import altair as alt

    return chart.mark_rect(clip=True).encode(
        x2="end_s:Q",
        color=colour("doing", {doing: SERIES[doing] for doing in shown or SERIES}),
        tooltip=[
            alt.Tooltip("request:N"),
            alt.Tooltip("doing:N"),
            alt.Tooltip("slot:Q"),
            alt.Tooltip("start_s:Q", title="from, s", format=".4~f"),
            alt.Tooltip("end_s:Q", title="to, s", format=".4~f"),
        ],
    )


def _table(stays: list[Stay]) -> Table:
    columns = [
        Column("slot"), Column("request", "label"), Column("from, s"), Column("to, s"),
        *(Column(f"{doing}, s") for doing in SERIES),
    ]  # fmt: skip
    rows = [
        [
            str(stay.slot),
            clean(stay.request, 40),
            f"{stay.start_s:.4g}",
            f"{stay.end_s:.4g}",
            *(f"{sum(p.end_s - p.start_s for p in stay.parts if p.doing == d):.4g}" for d in SERIES),
        ]
        for stay in stays[:LISTED]
    ]
    notes = [f"{doing}: {meaning}." for doing, meaning in MEANINGS.items()]
    if len(stays) > LISTED:
        notes.append(f"The first {LISTED} of {len(stays):,} requests in a slot.")
    return Table("Requests in slots", columns, rows, notes)
