"""The phases of one boot. Each takes what is known so far, adds to it, or raises `PhaseFailure`.

Trap: a phase that cleans up, stores and decides at once cannot be tested or trusted. Rule: a phase does its one thing; recording, teardown
and conclusions belong to `runners/pipeline.py`.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from results.records import BackendRecord, EngineBuildRecord, RecipeRecord
from results.redact import plain, redact_argv, redact_environment
from results.vocabulary import Outcome, Purpose
from runners.boot import Boot
from runners.coherence.gate import GateFailure, GateResult, recheck, run_gate
from runners.engines.answers import without_logprobs
from runners.engines.base import HttpRequest, ServeCommand
from runners.engines.counters import window_counters
from runners.engines.identity import same_public_version
from runners.envs.environment import ensure
from runners.errors import InfrastructureError, InstallFailed, SparkproofError, Unsupported, UsageError
from runners.failure import PhaseFailure
from runners.fit_check import fit_of
from runners.launchers import docker as containers
from runners.launchers.images import image_facts
from runners.log_diagnosis import diagnose
from runners.models import LocalModel, materialise, pinned
from runners.plan import backend_id
from runners.process.ports import free_port
from runners.process.ready import NotReady, Probes
from runners.process.serve_script import container_by_hand, write_serve_script
from runners.process.server import LaunchError
from runners.prompts import PromptKey, Vocabulary, timed_prompt
from runners.request_fields import probe_request_fields
from runners.serve_request import serve_command, serve_request
from runners.serving import RemoteServer, Serving
from runners.throughput import BatchDone, Event, ThroughputPlan, WindowDone, measure
from runners.vocabulary_file import offline_vocabulary
from suites.backends import Expressed
from suites.backends import Unsupported as BackendUnsupported
from suites.format_support import cannot_run
from suites.recipes import Recipe

MODEL_WARMUPS, CANARY_WARMUPS = 6, 2
"""Warm-up batches at most (M10). A canary's rate is launch overhead, which need not settle and is no model's speed: two must do."""
_COMMON_IDS = 30_000
DUMMY_WEIGHTS = "weights=dummy"
"""Flag of every sample of a shape: no number of random weights is ever one of the model that they imitate."""
_PROBE_TOKENS = 32


def resolve(boot: Boot) -> None:
    """Refuse what this version cannot express before anything is installed, and record what was asked for."""
    cell, recorder = boot.cell, boot.recorder
    recorder.update(recipe=_recipe_record(cell.recipe), recipe_id=cell.recipe.recipe_id)
    reason = cell.recipe.unsupported(cell.spec.name, cell.spec.version)
    if reason is None and cell.spec.distribution != "endpoint":
        capability = boot.node.compute_capability
        reason = cannot_run(cell.spec.name, cell.recipe.weight_format, has_cuda=boot.has_cuda, compute_capability=capability)
    if reason is not None:
        raise PhaseFailure(Outcome.UNSUPPORTED, reason)
    if isinstance(cell.expressed, BackendUnsupported):
        raise PhaseFailure(Outcome.UNSUPPORTED, f"{cell.spec} cannot express backend {cell.backend.name}: {cell.expressed.reason}")
    identity = backend_id(cell.spec.name, cell.backend, cell.expressed)
    recorder.update(
        backend=BackendRecord(
            backend_id=identity,
            engine=cell.spec.name,
            name=cell.backend.name,
            arguments=redact_argv(cell.expressed.arguments),
            environment=redact_environment(cell.expressed.environment),
        ),
        backend_id=identity,
        configured=dict(cell.expressed.configured),
    )
    _check_memory(boot, cell.expressed)
    if cell.recipe.runs_its_own_code(cell.spec.name):
        recorder.warn(f"recipe {cell.recipe.name} lets the engine run code out of the model's repository (--trust-remote-code)")
    missing = offline_vocabulary(cell.recipe, cell.spec.name, cell.spec.version, boot.cache_root, os.environ).missing
    if missing is not None and cell.spec.distribution != "endpoint":
        recorder.warn(missing)
    for report in cell.recipe.known_bad_for(cell.spec.name, boot.version):
        way_round = f" Way round: {report.workaround}" if report.workaround else ""
        recorder.warn(f"reported broken ({report.link}; {report.kernel}, {report.seen_in}): {report.symptom}.{way_round}")


def _check_memory(boot: Boot, expressed: Expressed) -> None:
    if boot.cell.spec.distribution == "endpoint":
        return
    fit = fit_of(boot.cell.recipe, expressed, boot.node, has_cuda=boot.has_cuda)
    if fit is None:
        return
    if fit.refused:
        raise PhaseFailure(Outcome.UNSUPPORTED, fit.sentence)
    if fit.worth_a_warning:
        boot.recorder.warn(fit.sentence)


def install(boot: Boot) -> None:
    """Make the environment and the model available; both are made once and reused."""
    if boot.cell.spec.distribution == "docker":
        _get_image(boot)
    if boot.cell.spec.distribution == "venv":
        try:
            boot.environment = ensure(boot.cell.spec, has_cuda=boot.has_cuda, progress=boot.progress, cache_root=boot.cache_root)
        except InstallFailed as error:
            raise PhaseFailure(Outcome.INSTALL_FAILED, str(error)) from error
        except Unsupported as error:
            raise PhaseFailure(Outcome.UNSUPPORTED, str(error)) from error
        except InfrastructureError as error:
            raise PhaseFailure(Outcome.INFRASTRUCTURE, str(error)) from error
        build = boot.environment.build
        boot.recorder.update(
            build=EngineBuildRecord(build.digest, build.engine, build.version, build.distribution, build.python_version, build.wheels),
            build_id=build.digest,
            cell_id=boot.cell.cell_id(boot.recorder.run.node_id, build.digest),
        )
    try:
        boot.model = materialise(boot.cell.recipe, boot.cache_root, boot.progress, may_download=boot.may_download)
    except Unsupported as error:
        raise PhaseFailure(Outcome.UNSUPPORTED, str(error)) from error
    except (InfrastructureError, InstallFailed) as error:
        raise PhaseFailure(Outcome.INFRASTRUCTURE, f"the model could not be prepared: {error}") from error
    _pin(boot, boot.model.commit)


def _pin(boot: Boot, commit: str | None) -> None:
    """Make the commit that a branch, or no revision at all, stood for part of the cell: the same name may be other weights tomorrow."""
    recipe = pinned(boot.cell.recipe, commit)
    if recipe == boot.cell.recipe:
        return
    boot.recorder.warn(f"the recipe pins no commit; {recipe.source.hub} at {commit} is what was served")
    boot.cell = replace(boot.cell, recipe=recipe)
    run = boot.recorder.run
    boot.recorder.update(recipe=_recipe_record(boot.cell.recipe), recipe_id=boot.cell.recipe.recipe_id)
    boot.recorder.update(cell_id=boot.cell.cell_id(run.node_id, run.build_id))


def _recipe_record(recipe: Recipe) -> RecipeRecord:
    return RecipeRecord(
        recipe_id=recipe.recipe_id,
        name=recipe.name,
        model=recipe.model,
        revision=recipe.revision,
        quantization=recipe.quantization,
        kind=recipe.kind,
        definition=recipe.model_dump(mode="json"),
    )


def _get_image(boot: Boot) -> None:
    """The image, pulled if it is not here. What was pulled is the build: a tag may move, a digest does not."""
    spec = boot.cell.spec
    try:
        boot.docker.check()
        image = boot.docker.ensure_image(spec.target, platform.machine(), boot.progress)
    except SparkproofError as error:
        raise PhaseFailure(Outcome.INFRASTRUCTURE, str(error)) from error
    boot.image = image
    build_id = image.image_id.removeprefix("sha256:")
    boot.recorder.update(
        build=EngineBuildRecord(build_id, spec.name, boot.version, spec.distribution, image_digest=image.digest or image.image_id),
        build_id=build_id,
        cell_id=boot.cell.cell_id(boot.recorder.run.node_id, build_id),
    )
    for fact in image_facts():
        if fact.engine == spec.name and fact.image.replace("{version}", boot.version) == spec.target and fact.evidence != "seen":
            boot.recorder.warn(f"the image {spec.target} is known for this release as {fact.evidence} only ({fact.source})")


def launch_server(boot: Boot, serve: Callable[[ServeCommand, int], Serving]) -> None:
    """Start our own server with the exact command recorded, or attach to the endpoint. `serve` starts a command on a port."""
    spec, model = boot.cell.spec, boot.require_model()
    if spec.distribution == "endpoint":
        boot.serving = RemoteServer(spec.target, boot.headers)
        return
    port = free_port()
    vocabulary = boot.vocabulary = offline_vocabulary(boot.cell.recipe, spec.name, spec.version, boot.cache_root, os.environ)
    request = serve_request(
        boot.cell,
        model_path=str(model.path),
        served_name=model.name,
        port=port,
        has_cuda=boot.has_cuda,
        vocabulary=vocabulary.environment,
        small_cache=boot.recorder.run.purpose is Purpose.SWEEP,
    )
    command = serve_command(boot.cell, boot.environment.python if boot.environment is not None else Path(), request)
    try:
        if boot.image is not None:
            run_id, mounts = boot.recorder.run.run_id, mounts_of(boot)
            argv = containers.planned_argv(boot.docker, command, boot.image, run_id, port, mounts, has_cuda=boot.has_cuda)
            script = container_by_hand(argv, command.environment)
        else:
            argv, script = command.argv, command
        boot.recorder.update(command=redact_argv(argv), environment=redact_environment(command.environment))
        write_serve_script(script, boot.recorder.folder.serve_script)
        boot.serving = serve(command, port)
    except (LaunchError, InfrastructureError, UsageError) as error:
        raise PhaseFailure(Outcome.INFRASTRUCTURE, str(error)) from error


def mounts_of(boot: Boot) -> tuple[containers.Mount, ...]:
    """The folders that a container needs to see of the node."""
    model, folder = boot.require_model(), boot.vocabulary.folder
    mounts = containers.model_mounts(model.path) if model.path is not None else ()
    return mounts if folder is None else (*mounts, containers.Mount(folder))


def ready(boot: Boot) -> None:
    """Wait until our server answers with a token, or say why it never will."""
    serving, model = boot.require_serving(), boot.require_model()
    prompt = probe_prompt(model)
    client = boot.client()
    try:
        probes = Probes(
            health=client.health,
            models=client.models,
            # without log-probabilities: a server whose logits are NaN refuses to write them, and is ready all the same
            one_token=lambda: client.one_token(without_logprobs(boot.adapter.greedy_request(model.name, prompt, 1))),
        )
        result = serving.wait_ready(model.name, probes)
    finally:
        client.close()
    if isinstance(result, NotReady):
        diagnosis = diagnose(boot.cell.spec.name, boot.version, boot.recorder.folder.log, result.kind, result.reason)
        raise PhaseFailure(diagnosis.outcome, diagnosis.reason, signature=diagnosis.signature, excerpt=diagnosis.excerpt)


def identify(boot: Boot) -> None:
    """Ask the server what it is; a version that is not the one asked for is a failure (M24)."""
    serving = boot.require_serving()
    client = boot.client()
    try:
        answers: dict[str, Any] = {}
        for request in boot.adapter.info_requests(boot.version):
            answer = client.ask(request)
            if answer.ok:
                answers[request.path] = answer.data
        metrics = client.ask(HttpRequest("/metrics"))
        if metrics.ok and isinstance(metrics.data, str):
            answers["/metrics"] = metrics.data
    finally:
        client.close()
    identity = boot.adapter.identify(boot.version, answers, serving.log_text())
    boot.identity = identity
    boot.recorder.update(
        server_version=identity.version,
        served_model=identity.model,
        max_model_len=identity.max_model_len,
        kv_cache_tokens=identity.kv_cache_tokens,
        model_memory_bytes=identity.model_memory_bytes,
        actual=dict(identity.kernels),
    )
    for line in identity.unparsed[:10]:
        boot.recorder.warn(f"log line not understood, nothing concluded from it: {plain(line, 300)}")
    asked = boot.cell.spec.version
    if identity.version is None:
        boot.recorder.warn("the server does not say which version it is")
    elif asked is not None and not same_public_version(asked, identity.version):
        said = plain(identity.version, 60)
        raise PhaseFailure(Outcome.INFRASTRUCTURE, f"the server says it is {said}, but {asked} was asked for: this is another build")


def coherence(boot: Boot) -> None:
    """The gate. Its records are stored whatever it says; a failure ends the boot before anything is timed (M11)."""
    result = run_gate(boot.gate_target(), boot.adapter, boot.progress)
    _judge(boot, result)


def check_again(boot: Boot) -> None:
    """The first prompts of the gate once more, after load."""
    _judge(boot, recheck(boot.gate_target(), boot.adapter, boot.progress))


def _judge(boot: Boot, result: GateResult | GateFailure) -> None:
    boot.recorder.append((*result.records, *result.scores))
    if isinstance(result, GateFailure):
        raise server_failure(boot, result.reason, is_hang=result.is_hang)
    for note in result.notes:
        boot.recorder.warn(note)
    if result.outcome is not None:
        raise PhaseFailure(result.outcome, result.reason)


def warm_up(boot: Boot) -> None:
    """Find out which optional request fields this server takes (M8). The untimed warm-up batches belong to each workload (M10)."""
    model = boot.require_model()
    fields = probe_request_fields(boot.target, probe_prompt(model))
    if fields.failure is not None:
        raise server_failure(boot, f"the request probe failed: {fields.failure.detail}", is_hang=False)
    boot.fields = fields
    boot.recorder.update(dropped_request_fields=fields.dropped_names)
    for warning in fields.warnings:
        boot.recorder.warn(warning)


def throughput(boot: Boot) -> None:
    """Time every workload; samples are stored as they come, and a failure keeps those that were made."""
    assert boot.fields is not None
    model = boot.require_model()
    plan = ThroughputPlan(
        run_id=boot.recorder.run.run_id,
        workloads=boot.cell.workloads,
        vocabulary=vocabulary_of(model),
        accepted=boot.fields.accepted,
        launch_bound=boot.cell.recipe.launch_bound,
        max_warmups=CANARY_WARMUPS if boot.cell.recipe.launch_bound else MODEL_WARMUPS,
        max_model_len=boot.recorder.run.max_model_len,
        flags=(DUMMY_WEIGHTS,) if boot.cell.recipe.dummy else (),
    )

    def on_event(event: Event) -> None:
        if isinstance(event, BatchDone):
            boot.recorder.append(event.samples)
        elif isinstance(event, WindowDone):
            boot.recorder.append(event.counters)
        else:
            kind = "warm-up" if event.cold else "repeat"
            boot.progress(f"{event.workload}: {kind} {event.repeat + 1}, {event.concurrency} streams")

    try:
        version = boot.recorder.run.server_version or boot.version
        counters = partial(window_counters, boot.cell.spec.name, version)
        result = measure(boot.target, plan, boot.adapter.generated_tokens, on_event, window_counters=counters)
    except ValueError as error:  # a workload that this server's context cannot hold
        raise PhaseFailure(Outcome.INFRASTRUCTURE, str(error)) from error
    boot.recorder.update(engine_token_count=result.engine_token_count, client_token_count=result.client_token_count)
    for warning in result.warnings:
        boot.recorder.warn(warning)
    if result.failure is not None:
        raise server_failure(boot, result.failure.reason, is_hang=result.failure.is_hang)


def server_failure(boot: Boot, reason: str, *, is_hang: bool) -> PhaseFailure:
    """What a failed request means: our own limit, a dead server (crash, out of memory), a silent one (hang), or a refusal."""
    serving = boot.require_serving()
    ours = serving.our_fault()
    if ours is not None:
        return PhaseFailure(Outcome.INFRASTRUCTURE, ours)
    ended = serving.ended()
    kind = Outcome.CRASH if ended is not None or not is_hang else Outcome.HANG
    sentence = f"{reason}; {ended}" if ended else reason
    diagnosis = diagnose(boot.cell.spec.name, boot.version, boot.recorder.folder.log, kind, sentence)
    return PhaseFailure(diagnosis.outcome, diagnosis.reason, signature=diagnosis.signature, excerpt=diagnosis.excerpt)


def vocabulary_of(model: LocalModel) -> Vocabulary:
    """Ids that a timed prompt may use. A model that we only know by name gets a range every tokenizer of today has."""
    return Vocabulary(model.vocab_size or _COMMON_IDS, model.bos_id, model.special_ids)


def probe_prompt(model: LocalModel) -> tuple[int, ...]:
    """A short prompt that every server of this model can answer: a canary's own, or ids as a timed prompt has them."""
    if model.canary is not None:
        return model.canary.prompts[0].prompt_ids
    return timed_prompt(PromptKey("probe", "probe", 0, 0), _PROBE_TOKENS, vocabulary_of(model))
