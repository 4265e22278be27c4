"""Time the workloads of one boot and return a sample per stream. Call it only after the coherence gate passed on this server (M11).

Trap: the first request holds a compile or a graph capture (M10), one repeat swings by 29 % (M15), and a tool that dies with the engine
loses what it had measured. Rule: warm-up of the same shape until two consecutive batches agree, kept apart as cold samples; then every
repeat is a sample, valid or not; a timeout or a dead engine ends the measurement with a described failure and the samples so far, and a
workload without one valid sample is a failure too (M8).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import httpx

from results.records import EngineCounterRecord, SampleRecord
from runners.prompts import PromptKey, Vocabulary, timed_prompt
from runners.rates import StreamRates, aggregate_tok_s, counts_agree, rates_of, settled
from runners.request_fields import timed_body
from runners.sse import read_trace
from runners.stream import (
    COMPLETIONS,
    TRANSPORT_ERRORS,
    Clock,
    LoopLag,
    StreamPolicy,
    Target,
    open_client,
    record_stream,
    run_for,
    undisturbed,
)
from runners.stream_trace import CONNECTION_LOST, TIMEOUTS, StreamTrace
from suites.workloads import Workload

UNSETTLED = "warmup_unsettled"
COUNTS_DIFFER = "token_counts_differ"
NO_VALID_SAMPLE = "no_valid_sample"

_COUNTER_READS = 4
_COUNTER_WAIT_S = 0.5
_METRICS_TIMEOUT_S = 10.0
_METRICS_LIMIT = 16 * 1024 * 1024
GeneratedTokens = Callable[[str], int | None]
"""Reads the engine's own counter of generated tokens from the text of its Prometheus page (`EngineAdapter.generated_tokens`)."""
WindowCounters = Callable[[str, str], Mapping[str, float]]
"""What the engine counted between two texts of its Prometheus page, by our names (`runners.engines.counters.window_counters`)."""


@dataclass(frozen=True)
class ThroughputPlan:
    """What to time on a server. `accepted` comes from `request_fields`; `launch_bound` is True for a canary, whose speed is no model's.

    `flags` are kept with every sample.
    """

    run_id: str
    workloads: tuple[Workload, ...]
    vocabulary: Vocabulary
    accepted: frozenset[str]
    launch_bound: bool
    max_warmups: int
    max_model_len: int | None = None
    flags: tuple[str, ...] = ()
    policy: StreamPolicy = field(default_factory=StreamPolicy)

    def __post_init__(self) -> None:
        if self.max_warmups < 2:
            raise ValueError(f"max_warmups is {self.max_warmups}; two warm-up batches are the least that can agree")
        for workload in self.workloads:
            if self.max_model_len is not None and workload.total_tokens > self.max_model_len:
                raise ValueError(
                    f"workload {workload.name} needs {workload.total_tokens} tokens of context, the server has {self.max_model_len}; "
                    "raise the recipe's context length or choose a smaller workload"
                )


@dataclass(frozen=True)
class BatchStarted:
    """Progress: `concurrency` streams of one repeat were started together."""

    workload: str
    repeat: int
    cold: bool
    concurrency: int


@dataclass(frozen=True)
class BatchDone:
    """Progress: the samples of that batch. Every sample of the result was in one such event, so an interrupted caller has them all."""

    samples: tuple[SampleRecord, ...]


@dataclass(frozen=True)
class WindowDone:
    """Progress: what the engine itself counted over the timed repeats of one workload, warm-up left out."""

    counters: tuple[EngineCounterRecord, ...]


Event = BatchStarted | BatchDone | WindowDone
OnEvent = Callable[[Event], None]
"""Told of each batch as it starts and ends, on the measuring thread: be quick."""


@dataclass(frozen=True)
class ThroughputFailure:
    """What ended the measurement early, or left a workload without a number: `kind` is a `FailureKind` or `NO_VALID_SAMPLE`."""

    kind: str
    detail: str
    workload: str
    repeat: int
    cold: bool

    @property
    def is_hang(self) -> bool:
        """The server was there but did not answer in time."""
        return self.kind in TIMEOUTS

    @property
    def is_lost(self) -> bool:
        """The connection could not be made or was dropped: the server's process tells whether it crashed."""
        return self.kind in CONNECTION_LOST

    @property
    def reason(self) -> str:
        """One sentence for a run record."""
        return f"workload {self.workload}, {'warm-up batch' if self.cold else 'repeat'} {self.repeat}: {self.kind}: {self.detail}"


@dataclass(frozen=True)
class ThroughputResult:
    """All samples, cold ones included, in the order measured, and what the engine counted over each workload's timed repeats.

    Token counts cover every request of the measurement, warm-up too; `client_token_count` is None if a stream failed (its tokens are
    unknown), `engine_token_count` if the engine has no counter.
    """

    samples: tuple[SampleRecord, ...]
    client_token_count: int | None
    engine_token_count: int | None
    failure: ThroughputFailure | None = None
    warnings: tuple[str, ...] = ()
    counters: tuple[EngineCounterRecord, ...] = ()


def measure(
    target: Target,
    plan: ThroughputPlan,
    generated_tokens: GeneratedTokens,
    on_event: OnEvent = lambda event: None,
    clock: Clock = time.perf_counter,
    window_counters: WindowCounters = lambda before, after: {},
) -> ThroughputResult:
    """Time `plan.workloads` in order. Never raises for anything the server does; raises ValueError for a plan that cannot be measured."""
    for workload in plan.workloads:
        timed_prompt(PromptKey(plan.run_id, workload.name, 0, 0), workload.prompt_tokens, plan.vocabulary)
    return run_for(target, _Measurement(target, plan, generated_tokens, window_counters, on_event, clock).run())


class _Measurement:
    """Samples so far, and what ended them."""

    def __init__(
        self,
        target: Target,
        plan: ThroughputPlan,
        generated_tokens: GeneratedTokens,
        window_counters: WindowCounters,
        on_event: OnEvent,
        clock: Clock,
    ) -> None:
        self.target, self.plan, self.on_event, self.clock = target, plan, on_event, clock
        self.generated_tokens, self.window_counters = generated_tokens, window_counters
        self.samples: list[SampleRecord] = []
        self.counters: list[EngineCounterRecord] = []
        self.tokens: list[int | None] = []
        self.warnings: list[str] = []
        self.failure: ThroughputFailure | None = None
        self.failed_batches = 0

    async def run(self) -> ThroughputResult:
        async with open_client(self.target) as client:
            before = await _page(client)
            for workload in self.plan.workloads:
                await self._workload(client, workload)
                if self.failure is not None:
                    break
            client_tokens = _total(self.tokens)
            after = await self._page_after(client, before, client_tokens)
            engine_tokens = self._counted(before, after)
        if counts_agree(client_tokens, engine_tokens) is False:
            self.warnings.append(f"{COUNTS_DIFFER}: the server's usage says {client_tokens} tokens, its metrics {engine_tokens}")
        failure = self.failure or next((f for w in self.plan.workloads if (f := self._without_valid_sample(w))), None)
        return ThroughputResult(tuple(self.samples), client_tokens, engine_tokens, failure, tuple(self.warnings), tuple(self.counters))

    async def _workload(self, client: httpx.AsyncClient, workload: Workload) -> None:
        flags: tuple[str, ...] = ()
        if not await self._warm_up(client, workload) and self.failure is None:
            flags = (UNSETTLED,)
            never = f"{self.plan.max_warmups} warm-up batches, no two in a row within 5 %"
            self.warnings.append(f"{UNSETTLED}: workload {workload.name}: {never}")
        if self.failure is not None:
            return
        before, untimed = await _page(client), len(self.tokens)
        for repeat in range(workload.repeats):
            await self._batch(client, workload, repeat, cold=False, flags=flags)
            if self.failure is not None:
                return
        await self._count(client, workload, before, _total(self.tokens[untimed:]))

    async def _count(self, client: httpx.AsyncClient, workload: Workload, before: str | None, client_tokens: int | None) -> None:
        """Keep what the engine says about the repeats that have just ended."""
        after = await self._page_after(client, before, client_tokens)
        found = self.window_counters(before, after) if before is not None and after is not None else {}
        counters = tuple(EngineCounterRecord(self.plan.run_id, workload.name, metric, value) for metric, value in found.items())
        if counters:
            self.counters += counters
            self.on_event(WindowDone(counters))

    async def _page_after(self, client: httpx.AsyncClient, before: str | None, client_tokens: int | None) -> str | None:
        """The engine's page once it agrees with the client's count. They count a little after they answer: a difference is read again."""
        if before is None:
            return None
        page: str | None = None
        for attempt in range(_COUNTER_READS):
            if attempt > 0:
                await asyncio.sleep(_COUNTER_WAIT_S)
            page = await _page(client)
            if page is None or (counted := self._counted(before, page)) is None or counts_agree(client_tokens, counted) is not False:
                break
        return page

    def _counted(self, before: str | None, after: str | None) -> int | None:
        """Tokens that the engine counted between two pages; None if it does not say, or was started anew."""
        start = self.generated_tokens(before) if before is not None else None
        end = self.generated_tokens(after) if after is not None else None
        return None if start is None or end is None or end < start else end - start

    async def _warm_up(self, client: httpx.AsyncClient, workload: Workload) -> bool:
        """Whether two consecutive warm-up batches agreed in their aggregate rate, which for one stream is its decode rate (M10)."""
        previous: float | None = None
        for repeat in range(self.plan.max_warmups):
            latest = await self._batch(client, workload, repeat, cold=True)
            if self.failure is not None:
                return False
            if settled(previous, latest):
                return True
            previous = latest
        return False

    async def _batch(
        self, client: httpx.AsyncClient, workload: Workload, repeat: int, *, cold: bool, flags: tuple[str, ...] = ()
    ) -> float | None:
        """Run the streams of one batch together and keep their samples; returns the batch's aggregate rate."""
        self.on_event(BatchStarted(workload.name, repeat, cold, workload.concurrency))
        keys = [PromptKey(self.plan.run_id, workload.name, repeat, stream, cold) for stream in range(workload.concurrency)]
        with undisturbed():  # reading makes so many objects that collecting garbage meanwhile would be a quarter of a token's cost
            traces = await self._streams(client, workload, keys)
            aggregate, no_aggregate = aggregate_tok_s(traces)
            batch = _Batch(workload, self.plan.launch_bound, aggregate, no_aggregate, (*self.plan.flags, *flags))
            samples = tuple(_sample(batch, key, trace, rates_of(trace)) for key, trace in zip(keys, traces, strict=True))
        self.tokens += [trace.completion_tokens if trace.failure is None else None for trace in traces]
        self.samples += samples
        self._judge(keys[0], traces)
        self.on_event(BatchDone(samples))
        return aggregate

    async def _streams(self, client: httpx.AsyncClient, workload: Workload, keys: Sequence[PromptKey]) -> list[StreamTrace]:
        prompts = [timed_prompt(key, workload.prompt_tokens, self.plan.vocabulary) for key in keys]
        bodies = [timed_body(self.target.model, p, workload.completion_tokens, self.plan.accepted) for p in prompts]
        with LoopLag(clock=self.clock) as lag:
            raws = await asyncio.gather(*(record_stream(client, COMPLETIONS, b, self.plan.policy, self.clock) for b in bodies))
        return [read_trace(raw, workload.completion_tokens, workload.prompt_tokens, lag.during(raw.t_sent, raw.t_end)) for raw in raws]

    def _judge(self, key: PromptKey, traces: Sequence[StreamTrace]) -> None:
        """End the measurement if the server hangs or is gone, or if every stream of two batches in a row failed in whatever way."""
        failures = [t.failure for t in traces if t.failure is not None]
        self.failed_batches = self.failed_batches + 1 if len(failures) == len(traces) else 0
        fatal = [f for f in failures if f.kind in TIMEOUTS | CONNECTION_LOST]
        if fatal or self.failed_batches >= 2:
            cause = (fatal or failures)[0]
            self.failure = ThroughputFailure(cause.kind, cause.detail, key.workload, key.repeat, key.cold)

    def _without_valid_sample(self, workload: Workload) -> ThroughputFailure | None:
        timed = [s for s in self.samples if s.workload == workload.name and not s.cold]
        if any(s.valid for s in timed):
            return None
        detail = f"none of {len(timed)} samples is valid; the last: {timed[-1].invalid_reason if timed else 'never measured'}"
        return ThroughputFailure(NO_VALID_SAMPLE, detail, workload.name, workload.repeats - 1, cold=False)


@dataclass(frozen=True)
class _Batch:
    """What the samples of one batch share."""

    workload: Workload
    launch_bound: bool
    aggregate_tok_s: float | None
    no_aggregate: str | None
    flags: tuple[str, ...]


def _sample(batch: _Batch, key: PromptKey, trace: StreamTrace, rates: StreamRates) -> SampleRecord:
    reasons = [r for r in (rates.null_reason, f"aggregate_tok_s: {batch.no_aggregate}" if batch.no_aggregate else None) if r]
    return SampleRecord(
        run_id=key.run_id,
        workload=key.workload,
        repeat=key.repeat,
        stream=key.stream,
        concurrency=batch.workload.concurrency,
        cold=key.cold,
        launch_bound=batch.launch_bound,
        prompt_tokens=trace.prompt_tokens,
        completion_tokens=trace.completion_tokens,
        cached_tokens=trace.cached_tokens,
        ttft_s=rates.ttft_s,
        decode_tok_s=rates.decode_tok_s,
        prefill_tok_s=rates.prefill_tok_s,
        itl_p50_s=rates.itl_p50_s,
        itl_p90_s=rates.itl_p90_s,
        itl_p99_s=rates.itl_p99_s,
        e2e_s=rates.e2e_s,
        e2e_tok_s=rates.e2e_tok_s,
        aggregate_tok_s=batch.aggregate_tok_s,
        client_lag_s=trace.client_lag_s,
        valid=rates.valid,
        invalid_reason=rates.invalid_reason,
        null_reason="; ".join(reasons) or None,
        carried_by=rates.carried_by,
        flags=(*rates.flags, *batch.flags),
    )


async def _page(client: httpx.AsyncClient) -> str | None:
    """The engine's Prometheus page now; None if it cannot be had (SGLang serves it only when asked to at launch)."""
    page = bytearray()
    try:
        async with asyncio.timeout(_METRICS_TIMEOUT_S), client.stream("GET", "/metrics") as answer:
            async for data in answer.aiter_raw():
                page += data
                if len(page) > _METRICS_LIMIT:
                    return None
            status = answer.status_code
    except (*TRANSPORT_ERRORS, TimeoutError):
        return None
    return page.decode("utf-8", "replace") if status == 200 else None


def _total(tokens: Sequence[int | None]) -> int | None:
    """Tokens of these streams; None if those of one are not known, because it failed or nobody counted them."""
    known = [count for count in tokens if count is not None]
    return sum(known) if len(known) == len(tokens) else None
