"""Train a canary: ``python -m suites.canaries.train moe --out DIR --max-minutes N [--device cuda]``.

The trap: a model that merely knows the corpus answers right in the precision it was trained in, with margins so thin that
an honest FP4 kernel changes a token, or so uneven that one token decides the gate. The rule: training ends with every
linear weight on the universal grid, sees the rounding of every format on the way, and pushes the distance between the
golden token and the runner-up (the margin, in logits) of every answer token towards 15.

Phases with a fixed number of steps: ``plain`` memorises, ``robust`` moves the weights onto the grid (straight-through: forward and
backward with grid weights, update on the float masters) under noise, ``polish`` lifts the worst margin of each batch, ``experts`` (only
where there are some) makes each of them decide a token; the last one keeps the best weights it saw. ``--from-shipped`` starts with the
weights of the canary that ships and runs the last phase alone. The learning rate depends on the step alone, so ``--max-minutes`` only
decides when a run pauses: the state is saved and the same command goes on from there. Thread and kernel scheduling still change float
sums: a second training gives other weights.

Needs torch, transformers and tokenizers (``canary`` dependency group), safetensors and NumPy, nothing else.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import math
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from suites.canaries import tokenizer as canary_tokenizer
from suites.canaries import zoo
from suites.canaries.architectures import (
    ARCHITECTURES,
    Phase,
    build_model,
    grid_parameters,
    is_transposed,
    rows_by_inputs,
)
from suites.canaries.batches import BatchSampler, collate
from suites.canaries.decisive import PER_STEP, DecisiveExperts
from suites.canaries.experts import RouterLoads
from suites.canaries.fakequant import ActivationQuantiser, round_to_grid
from suites.canaries.finish import write_finished
from suites.canaries.reproduce import load_model
from suites.canaries.scoring import Evaluation, answer_logits, evaluate, margins

log = logging.getLogger("canary.train")

SEED = 20261130
MARGIN_TARGET = 15.0
POLISH_TARGET = 17.0
BALANCE_WEIGHT = 0.02
EVALUATE_EVERY = 100
LOG_EVERY_S = 10.0
WARM_UP_STEPS = 30
WEIGHT_NOISE = (0.0, 0.02, 0.05, 0.1)
ACTIVATION_NOISE = (0.0, 0.02, 0.05)
TRAINED_FORMATS = ("none", "fp8", "nvfp4", "nvfp4", "mxfp4")
"""NVFP4 twice: its rounding is what the canary is most often asked to bear."""

STATE_FILE = "state.pt"


class StateError(Exception):
    """The saved state belongs to another training."""


class Trainer:
    """The model, its optimiser and where in the phases it stands."""

    def __init__(self, canary: str, phases: tuple[Phase, ...], out: Path, device: str) -> None:
        torch.manual_seed(SEED)
        self.canary, self.phases, self.out, self.device = canary, phases, out, torch.device(device)
        self.tokenizer = canary_tokenizer.build_tokenizer()
        self.pad_id = self.tokenizer.token_to_id(canary_tokenizer.PAD)
        self.sampler = BatchSampler(self.tokenizer, SEED)
        self.model: Any = build_model(canary).to(self.device)
        self.routers = RouterLoads(self.model)
        self.activations = ActivationQuantiser(self.model)
        self.decisive = DecisiveExperts(self.model, self.activations.experts, self.sampler.gate, self.pad_id)
        self.weights = grid_parameters(self.model)
        self.transposed = is_transposed(self.model)
        self.phase_index, self.step, self.train_s = 0, 0, 0.0
        self.history: list[dict[str, float | int | str]] = []
        self.lost_loss, self.lost_margins = 0.0, list[float]()
        self.best: tuple[int, int, float] | None = None
        self.best_weights: dict[str, Tensor] = {}
        self.optimiser = self._new_optimiser()

    @property
    def phase(self) -> Phase:
        return self.phases[self.phase_index]

    @property
    def done(self) -> bool:
        return self.phase_index == len(self.phases)

    def _new_optimiser(self) -> torch.optim.AdamW:
        matrices = [p for p in self.model.parameters() if p.dim() >= 2]
        vectors = [p for p in self.model.parameters() if p.dim() < 2]
        return torch.optim.AdamW(
            [
                {"params": matrices, "weight_decay": self.phase.weight_decay},
                {"params": vectors, "weight_decay": 0.0},
            ],
            lr=self.phase.learning_rate,
            betas=(0.9, 0.98),
            eps=1e-8,
            fused=True,
        )

    def train_step(self) -> float:
        """One optimiser step; returns the cross-entropy of the batch."""
        fraction = self.step / self.phase.steps
        cosine = 0.5 * (1 + math.cos(math.pi * fraction)) * 0.98 + 0.02
        for group in self.optimiser.param_groups:
            group["lr"] = self.phase.learning_rate * min(1.0, (self.step + 1) / WARM_UP_STEPS) * cosine
        batch = self.sampler.batch(self.step, fraction if self.phase.name == "plain" else 1.0)
        ids, labels = (t.to(self.device) for t in collate(batch, self.pad_id))
        masters = self._disturb(fraction) if self.phase.on_grid else None
        self.model.train()
        self.routers.clear()
        logits, targets = answer_logits(self.model, ids, labels)
        cross_entropy = functional.cross_entropy(logits, targets)
        loss = cross_entropy + BALANCE_WEIGHT * self.routers.balance_loss()
        if self.phase.on_grid:
            margin = margins(logits, targets)
            loss = loss + 0.1 * functional.relu(MARGIN_TARGET - margin).mean()
            loss = loss + self.phase.worst_margin_weight * functional.relu(POLISH_TARGET - margin.min())
        if self.phase.lost_expert_weight:
            loss = loss + self.phase.lost_expert_weight * self._lost_expert_loss()
        self.optimiser.zero_grad()
        loss.backward()
        if masters is not None:
            self._restore(masters)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()
        self.step += 1
        return float(cross_entropy.item())

    def _lost_expert_loss(self) -> Tensor:
        if not self.decisive.prompt_of:
            self.decisive.designate()
            log.info("prompts of the experts: %s, lowest margins %s", self.decisive.prompt_of, self.decisive.all_lowest_margins())
        loss = self.decisive.loss(self.sampler.random.sample(range(len(self.decisive.pairs)), PER_STEP))
        self.lost_loss = float(loss.item())
        return loss

    def put_on_grid(self) -> dict[str, Tensor]:
        """Replace the linear weights by their grid values; returns the masters for `_restore`."""
        masters = {name: p.data for name, p in self.weights.items()}
        for p in self.weights.values():
            p.data = rows_by_inputs(round_to_grid(rows_by_inputs(p.data, self.transposed)), self.transposed)
        return masters

    def _disturb(self, fraction: float) -> dict[str, Tensor]:
        """Grid weights (or plain ones), weight noise, and one activation format for this step."""
        choose = self.sampler.random.choice
        if fraction >= self.phase.grid_only_after or choose((True, True, True, False)):
            masters = self.put_on_grid()
        else:
            masters = {name: p.data for name, p in self.weights.items()}
        noise = choose(WEIGHT_NOISE)
        if noise:
            for p in self.weights.values():
                p.data = p.data + noise * p.data.pow(2).mean().sqrt() * torch.randn_like(p.data)
        self.activations.activation_format = choose(TRAINED_FORMATS)
        self.activations.noise = choose(ACTIVATION_NOISE)
        return masters

    def _restore(self, masters: dict[str, Tensor]) -> None:
        for name, p in self.weights.items():
            p.data = masters[name]
        self.activations.off()

    def evaluate_on_grid(self) -> tuple[Evaluation, Evaluation]:
        """(gate, BOS prompts) with the weights as they would be packed."""
        masters = self.put_on_grid() if self.phase.on_grid else None
        result = (
            evaluate(self.model, self.sampler.gate, self.pad_id),
            evaluate(self.model, self.sampler.bos, self.pad_id),
        )
        self.lost_margins = self.decisive.all_lowest_margins() if self.decisive.prompt_of else []
        if masters is not None:
            self._restore(masters)
        self.routers.clear()
        return result

    def note(self, cross_entropy: float) -> None:
        """Evaluate, log one line, keep the weights if they are the best of the polish phase, and save the state."""
        gate, bos = self.evaluate_on_grid()
        entry: dict[str, float | int | str] = {
            "phase": self.phase.name,
            "step": self.step,
            "train_s": round(self.train_s, 1),
            "batch_cross_entropy": cross_entropy,
            "gate_loss": gate.loss,
            "gate_wrong": gate.wrong,
            "gate_min_margin": gate.min_margin,
            "gate_p1_margin": gate.p1_margin,
            "bos_wrong": bos.wrong,
            "bos_min_margin": bos.min_margin,
        }
        decisive = sum(margin < 0 for margin in self.lost_margins)
        if self.lost_margins:
            entry |= {"lost_expert_loss": self.lost_loss, "decisive_experts": decisive, "weakest_expert_margin": max(self.lost_margins)}
        self.history.append(entry)
        log.info("%s wrong prompts: %s", json.dumps(entry), list((*gate.wrong_prompts, *bos.wrong_prompts))[:8])
        self._keep_if_best((-gate.wrong - bos.wrong, decisive, min(gate.min_margin, bos.min_margin)))
        self.save_state()

    def _keep_if_best(self, score: tuple[int, int, float]) -> None:
        if self.phase_index == len(self.phases) - 1 and (self.best is None or score > self.best):
            self.best = score
            self.best_weights = {name: p.detach().clone() for name, p in self.model.named_parameters()}

    def take_best(self) -> None:
        """Go back to the best weights of the last phase."""
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(self.best_weights[name])

    def take_shipped_weights(self) -> None:
        """Begin with the canary that ships."""
        with tempfile.TemporaryDirectory() as scratch:
            folder = zoo.materialise(self.canary, "bf16", Path(scratch))
            self.model.load_state_dict(load_model(folder, "float32").state_dict())

    def next_phase(self) -> None:
        self.phase_index, self.step = self.phase_index + 1, 0
        if not self.done:
            self.optimiser = self._new_optimiser()
        self.save_state()

    def save_state(self) -> None:
        """Everything a later run needs to go on; written beside and renamed, so that a kill never leaves half a file."""
        state = {
            "phases": [dataclasses.asdict(phase) for phase in self.phases],
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "phase_index": self.phase_index,
            "step": self.step,
            "train_s": self.train_s,
            "history": self.history,
            "best": self.best,
            "best_weights": self.best_weights,
            "expert_prompts": self.decisive.prompt_of,
            "torch_rng": torch.get_rng_state(),
            "cuda_rng": torch.cuda.get_rng_state() if self.device.type == "cuda" else None,
            "sampler_rng": self.sampler.random.getstate(),
        }
        partial = self.out / f"{STATE_FILE}.partial"
        torch.save(state, partial)
        partial.replace(self.out / STATE_FILE)

    def load_state(self) -> None:
        """Go on from the saved state; raises `StateError` if it belongs to other phases."""
        state = torch.load(self.out / STATE_FILE, weights_only=True, map_location=self.device)
        if state["phases"] != [dataclasses.asdict(phase) for phase in self.phases]:
            raise StateError(f"{self.out / STATE_FILE} was made with other phases: choose another --out folder")
        self.model.load_state_dict(state["model"])
        self.phase_index, self.step, self.train_s = state["phase_index"], state["step"], state["train_s"]
        self.history, self.best, self.best_weights = state["history"], state["best"], state["best_weights"]
        self.decisive.prompt_of = state["expert_prompts"]
        if not self.done:
            self.optimiser = self._new_optimiser()
            self.optimiser.load_state_dict(state["optimiser"])
        torch.set_rng_state(state["torch_rng"].cpu())
        if state["cuda_rng"] is not None and self.device.type == "cuda":
            torch.cuda.set_rng_state(state["cuda_rng"].cpu())
        version, words, gauss = state["sampler_rng"]
        self.sampler.random.setstate((version, tuple(words), gauss))


def run_phases(trainer: Trainer, budget_s: float) -> None:
    """Train until all phases are done or ``budget_s`` seconds of this call are used; one log line every `LOG_EVERY_S`."""
    started = last_line = time.monotonic()
    while not trainer.done:
        phase = trainer.phase
        while trainer.step < phase.steps:
            before = time.monotonic()
            if before - started > budget_s:
                trainer.save_state()
                return
            cross_entropy = trainer.train_step()
            now = time.monotonic()
            trainer.train_s += now - before
            if now - last_line > LOG_EVERY_S:
                last_line = now
                log.info(
                    "%s %s step %d/%d, cross-entropy %.4g, lost experts %.3g, %.3f s/step, %.0f s of %.0f s",
                    *(trainer.canary, phase.name, trainer.step, phase.steps, cross_entropy, trainer.lost_loss),
                    *(now - before, now - started, budget_s),
                )
            if trainer.step % EVALUATE_EVERY == 0 or trainer.step == phase.steps:
                trainer.note(cross_entropy)
        trainer.next_phase()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Train a canary model.")
    parser.add_argument("canary", choices=sorted(ARCHITECTURES))
    parser.add_argument("--out", type=Path, required=True, help="folder for the state, and for weights.bin and training.json when finished")
    parser.add_argument("--max-minutes", type=float, required=True, help="minutes after which the run pauses")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, nargs="+", metavar="N", help="other phase lengths, one a phase")
    parser.add_argument("--finish", action="store_true", help="train no further: write the result of the best weights of the last phase")
    parser.add_argument("--from-shipped", action="store_true", help="start with the weights that ship and run the last phase alone")
    return parser


def main() -> int:
    """0: finished, result written. 2: the folder holds another training, or nothing to finish. 3: the time ended first.

    After 3 the same command goes on.
    """
    arguments = _parser().parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(arguments.threads)
    arguments.out.mkdir(parents=True, exist_ok=True)
    phases = ARCHITECTURES[arguments.canary].phases
    if arguments.from_shipped:
        phases = phases[-1:]
    if arguments.steps:
        phases = tuple(dataclasses.replace(phase, steps=steps) for phase, steps in zip(phases, arguments.steps, strict=True))
    trainer = Trainer(arguments.canary, phases, arguments.out, arguments.device)
    if (arguments.out / STATE_FILE).exists():
        try:
            trainer.load_state()
        except StateError as error:
            log.error("%s", error)
            return 2
    elif arguments.from_shipped:
        trainer.take_shipped_weights()
    if not arguments.finish:
        run_phases(trainer, arguments.max_minutes * 60)
    elif trainer.best is None:
        log.error("nothing to finish: the last phase was not evaluated yet")
        return 2
    if not trainer.done and not arguments.finish:
        log.warning("time used at %s step %d: run the same command again to go on", trainer.phase.name, trainer.step)
        return 3
    trainer.take_best()
    write_finished(trainer, SEED)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
