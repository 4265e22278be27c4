"""What goes wrong around one boot, and what must come of it: a pure function of a seed.

Trap: faults that somebody thought of are planted where somebody thought of them, and the pipeline is right exactly there. Rule: the kind of
fault, its moment, its size and what else is odd at the same time are drawn from the seed; each kind says which outcomes are right. Seeds
are dealt from shuffled decks, so any `len(DECK)` seeds in a row from a multiple of it hold every kind as often as the deck does.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from results.vocabulary import Outcome, Phase

LATER = (Phase.COHERENCE, Phase.WARMUP, Phase.THROUGHPUT, Phase.RECHECK)
"""Phases in which a server is asked for tokens."""
ANY = (Phase.RESOLVE, Phase.INSTALL, Phase.LAUNCH, Phase.READY, Phase.IDENTIFY, *LATER, Phase.TEARDOWN)
_SILENCE_S, _REFUSAL_S, _IDLE_S, _LOCK_S, _MEMORY_S = 180.0, 60.0, 60.0, 60.0, 60.0
"""Limits of the product that a schedule may have to wait for."""
ORDINARY_S = 900.0
"""What a boot of a scripted engine may take on a machine that is anything but idle; it takes ten seconds."""


@dataclass(frozen=True)
class Misbehaviour:
    """What the engine is told to do (`tests/chaos/engine.py`).

    `boot`: before it serves. `act`: from request number `after` of `phase` on (from 0), `code` its exit code or signal. `noise`: what it
    writes into its log, before it serves. `orphans`: processes that it leaves to init, deaf to SIGTERM. `deaf`: so is it itself.
    `leak_bytes`: in a file of /dev/shm that outlives it. `delay_s`: before it listens.
    """

    boot: str = ""
    phase: str = ""
    after: int = 0
    act: str = ""
    code: int = 0
    noise: str = ""
    orphans: int = 0
    deaf: bool = False
    leak_bytes: int = 0
    delay_s: float = 0.0


@dataclass(frozen=True)
class Strike:
    """Signals to the runner, `delay_s` after its boot has reached `phase`, `gap_s` apart."""

    phase: str
    delay_s: float
    signals: tuple[str, ...]
    gap_s: float = 0.0


@dataclass(frozen=True)
class Trouble:
    """What happens around both, once the boot has reached `phase` ("" before the runner starts): `disk_full` (all but `amount` bytes),
    `clock` (jumps by `amount` seconds), `database` (kept by another program for `amount` seconds), `port` (somebody else takes it)."""

    kind: str
    phase: str
    amount: float = 0.0


@dataclass(frozen=True)
class Schedule:
    """One boot. `outcomes`: the right ones; empty: no boot may come into being. `alone`: it would spoil what is proven of others beside it.

    `longest_s`: a runner that lives longer hangs.
    """

    seed: int
    kind: str
    outcomes: frozenset[Outcome]
    engine: Misbehaviour = Misbehaviour()
    strike: Strike | None = None
    trouble: Trouble | None = None
    alone: bool = False
    longest_s: float = ORDINARY_S


_Draw = Callable[[random.Random], Schedule]


def _schedule(kind: str, *outcomes: Outcome, **more: object) -> Schedule:
    return Schedule(0, kind, frozenset(outcomes), **more)  # type: ignore[arg-type]


def _good(rng: random.Random) -> Schedule:
    return _schedule("good", Outcome.PASS, engine=Misbehaviour(delay_s=rng.random() * 3))


def _never_ready(rng: random.Random) -> Schedule:
    silent = rng.choice(("silent", "half_open", "http_500"))
    engine = Misbehaviour(boot="silent") if silent == "silent" else Misbehaviour(phase=Phase.READY, act=silent)
    return _schedule("never_ready", Outcome.HANG, engine=engine, longest_s=ORDINARY_S + _SILENCE_S)


def _refuses_tokens(rng: random.Random) -> Schedule:
    engine = Misbehaviour(phase=Phase.READY, act="http_500_tokens")
    return _schedule("refuses_tokens", Outcome.CRASH, engine=engine, longest_s=ORDINARY_S + _REFUSAL_S)


def _never_ready_interrupted(rng: random.Random) -> Schedule:
    engine = replace(_never_ready(rng).engine, deaf=rng.random() < 0.5)
    strike = Strike(Phase.READY, rng.random() * 4, (rng.choice(("SIGINT", "SIGTERM", "SIGHUP", "SIGKILL")),))
    return _schedule("never_ready_interrupted", Outcome.INTERRUPTED, engine=engine, strike=strike)


def _ends_before_ready(rng: random.Random) -> Schedule:
    how, outcome = rng.choice((("exit", Outcome.CRASH), ("signal", Outcome.CRASH), ("out_of_memory", Outcome.OOM)))
    code = rng.choice((0, 1, 3, 255)) if how == "exit" else rng.choice((6, 9, 11))
    return _schedule("ends_before_ready", outcome, engine=Misbehaviour(boot=how, code=code, delay_s=rng.random() * 2))


def _dies(kind: str, *phases: Phase) -> _Draw:
    def draw(rng: random.Random) -> Schedule:
        how = rng.choice(("exit", "signal"))
        code = rng.choice((0, 1, 139)) if how == "exit" else rng.choice((6, 9, 11))
        engine = Misbehaviour(phase=rng.choice(phases), after=rng.choice((0, 1, 2, 4)), act=how, code=code)
        return _schedule(kind, Outcome.CRASH, engine=replace(engine, after=_reachable(engine)))

    return draw


def _reachable(engine: Misbehaviour) -> int:
    """A phase must ask so often that the fault comes up: the gate asks hundreds of times, the others a few."""
    most = {Phase.IDENTIFY: 1, Phase.WARMUP: 0, Phase.THROUGHPUT: 3, Phase.RECHECK: 4}
    return min(engine.after, most.get(Phase(engine.phase), 1000))


def _answers_wrongly(act: str) -> _Draw:
    """Answers that are none, from a request of the gate or a later one on, for good."""

    def draw(rng: random.Random) -> Schedule:
        engine = Misbehaviour(phase=rng.choice(LATER), after=rng.choice((0, 1, 3, 30)), act=act)
        return _schedule(act, Outcome.CRASH, engine=replace(engine, after=_reachable(engine)))

    return draw


def _half_open(rng: random.Random) -> Schedule:
    """Streams that stop in the middle (a minute until that is a hang), or a server that accepts and is silent until the user has enough."""
    if rng.random() < 0.4:
        engine = Misbehaviour(phase=Phase.THROUGHPUT, after=rng.choice((1, 2, 3)), act="stops_mid_stream")
        return _schedule("half_open", Outcome.HANG, engine=engine, longest_s=ORDINARY_S + _IDLE_S)
    engine = Misbehaviour(phase=(phase := rng.choice(LATER)), act="half_open", deaf=rng.random() < 0.3)
    strike = Strike(phase, 1 + rng.random() * 3, (rng.choice(("SIGINT", "SIGTERM", "SIGKILL")),))
    return _schedule("half_open", Outcome.INTERRUPTED, engine=engine, strike=strike)


def _huge_log(rng: random.Random) -> Schedule:
    lines = rng.choice(("gigabyte", "gigabyte_no_newline"))
    if rng.random() < 0.5:
        return _schedule("huge_log", Outcome.INFRASTRUCTURE, engine=Misbehaviour(noise=lines))
    engine = Misbehaviour(phase=rng.choice((Phase.COHERENCE, Phase.THROUGHPUT)), act=lines)
    return _schedule("huge_log", Outcome.INFRASTRUCTURE, engine=engine)


def _odd_log(rng: random.Random) -> Schedule:
    ends = rng.random() < 0.5
    engine = Misbehaviour(noise=rng.choice(("no_newline", "invalid_utf8", "escapes", "zeros")), boot="exit" if ends else "", code=1)
    return _schedule("odd_log", Outcome.CRASH if ends else Outcome.PASS, engine=engine)


def _orphans(rng: random.Random) -> Schedule:
    engine = Misbehaviour(orphans=rng.choice((1, 2, 5)), deaf=rng.random() < 0.5)
    if rng.random() < 0.5:
        return _schedule("orphans", Outcome.PASS, engine=engine)
    return _schedule("orphans", Outcome.CRASH, engine=replace(engine, phase=Phase.COHERENCE, act="signal", code=9))


def _port_stolen(rng: random.Random) -> Schedule:
    engine = Misbehaviour(boot=rng.choice(("loses_port", "loses_port_and_stays")))
    return _schedule("port_stolen", Outcome.INFRASTRUCTURE, engine=engine, trouble=Trouble("port", Phase.LAUNCH))


def _memory_kept(rng: random.Random) -> Schedule:
    engine = Misbehaviour(leak_bytes=int((1.4 + rng.random()) * 2**30))
    return _schedule("memory_kept", Outcome.PASS, engine=engine, alone=True, longest_s=ORDINARY_S + _MEMORY_S)


def _clock_jump(rng: random.Random) -> Schedule:
    jump = rng.choice((3600.0, -3600.0, 86_400.0, -86_400.0, 40 * 86_400.0, -3650 * 86_400.0))
    base = _good(rng) if rng.random() < 0.7 else _ends_before_ready(rng)
    return replace(base, kind="clock_jump", trouble=Trouble("clock", rng.choice((Phase.INSTALL, Phase.READY, *LATER)), jump))


def _disk_full(rng: random.Random) -> Schedule:
    """Whether the last row still fits is luck; if not, the boot is filed by the next start."""
    trouble = Trouble("disk_full", rng.choice((Phase.RESOLVE, Phase.LAUNCH, Phase.READY, *LATER)), rng.choice((0, 4096, 65536, 400_000)))
    return _schedule("disk_full", Outcome.INFRASTRUCTURE, Outcome.INTERRUPTED, trouble=trouble)


def _database_locked(rng: random.Random) -> Schedule:
    kind, longest = "database_locked", ORDINARY_S + 6 * _LOCK_S
    if (how := rng.random()) < 0.5:
        trouble = Trouble("database", rng.choice(("", Phase.READY, Phase.THROUGHPUT)), 2 + rng.random() * 20)
        return _schedule(kind, Outcome.PASS, trouble=trouble, longest_s=longest)
    if how < 0.65:
        return _schedule(kind, trouble=Trouble("database", "", 600.0), longest_s=longest)
    return _schedule(kind, Outcome.PASS, trouble=Trouble("database", rng.choice((Phase.READY, Phase.THROUGHPUT)), 600.0), longest_s=longest)


def _struck(kind: str, *signals: str, gap_s: float = 0.0) -> _Draw:
    def draw(rng: random.Random) -> Schedule:
        base = _good(rng) if rng.random() < 0.7 else _orphans(rng)
        strike = Strike(rng.choice(ANY), rng.choice((0.0, rng.random())), signals, gap_s * rng.random())
        return replace(base, kind=kind, strike=strike, outcomes=base.outcomes | {Outcome.INTERRUPTED})

    return draw


_KINDS: tuple[tuple[int, _Draw], ...] = (
    (2, _good),
    (1, _never_ready),
    (1, _refuses_tokens),
    (3, _never_ready_interrupted),
    (4, _ends_before_ready),
    (2, _dies("ready_then_dies", Phase.IDENTIFY)),
    (4, _dies("dies_in_gate", Phase.COHERENCE)),
    (4, _dies("dies_while_timed", Phase.WARMUP, Phase.THROUGHPUT, Phase.RECHECK)),
    (3, _answers_wrongly("http_500")),
    (1, _answers_wrongly("garbage")),
    (1, _answers_wrongly("drops")),
    (3, _half_open),
    (2, _huge_log),
    (2, _odd_log),
    (2, _orphans),
    (2, _port_stolen),
    (1, _memory_kept),
    (3, _clock_jump),
    (3, _disk_full),
    (2, _database_locked),
    (3, _struck("sigint", "SIGINT")),
    (3, _struck("sigterm", "SIGTERM")),
    (1, _struck("sighup", "SIGHUP")),
    (4, _struck("sigkill", "SIGKILL")),
    (2, _struck("twice", "SIGINT", "SIGINT", gap_s=2.0)),
    (1, _struck("twice_then_killed", "SIGTERM", "SIGINT", "SIGKILL", gap_s=1.0)),
)
DECK: tuple[_Draw, ...] = tuple(draw for count, draw in _KINDS for _ in range(count))


def schedule_of(seed: int) -> Schedule:
    """The schedule of a seed, the same on every machine."""
    deck, place = divmod(seed, len(DECK))
    order = list(range(len(DECK)))
    random.Random(f"deck {deck}").shuffle(order)
    rng = random.Random(f"schedule {seed}")
    drawn = DECK[order[place]](rng)
    return replace(drawn, seed=seed, engine=_with_extras(drawn, rng))


def _with_extras(drawn: Schedule, rng: random.Random) -> Misbehaviour:
    """Now and then something else is odd too, that must change nothing."""
    engine = drawn.engine
    if drawn.trouble is not None or drawn.alone:
        return engine
    if not engine.noise and rng.random() < 0.15:
        engine = replace(engine, noise=rng.choice(("invalid_utf8", "escapes", "zeros")))
    if not engine.orphans and rng.random() < 0.1:
        engine = replace(engine, orphans=1)
    return engine
