"""Train a canary: ``python -m suites.canaries.train --canary dense --out DIR --budget-min N``.

The trap: a model that merely knows the corpus answers right in the precision it was trained in, with margins so thin that
an honest FP4 kernel changes a token, or so uneven that one token decides the gate. The rule: training ends with every
linear weight on the universal grid, sees the rounding of every format on the way, and pushes the distance between the
golden token and the runner-up (the margin, in logits) of every answer token towards 15.

Three phases with a fixed number of steps: ``plain`` memorises, ``robust`` moves the weights onto the grid (straight-through:
forward and backward with grid weights, update on the float masters) under noise, ``polish`` lifts the worst margin of each
batch. The learning rate depends on the step alone, so the budget only decides when a run pauses: the state is saved and
the same command goes on from there. Thread scheduling still changes float sums: a second training gives other weights.

Needs the ``canary`` dependency group (torch, transformers, tokenizers).
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor, nn
from torch.nn import functional
from transformers import Qwen3Config, Qwen3ForCausalLM

from suites.canaries import tokenizer as canary_tokenizer
from suites.canaries import ugrid
from suites.canaries.batches import BatchSampler, Sequence, collate
from suites.canaries.fakequant import ACTIVATION_FORMATS, ActivationQuantiser

log = logging.getLogger("canary.train")

SEED = 20261130
MARGIN_TARGET = 15.0
POLISH_TARGET = 17.0
EVALUATE_EVERY = 100
WARM_UP_STEPS = 30
INIT_STD = 0.04
WEIGHT_NOISE = (0.0, 0.02, 0.05, 0.1)
ACTIVATION_NOISE = (0.0, 0.02, 0.05)
TRAINED_FORMATS = ("none", "fp8", "nvfp4", "nvfp4", "mxfp4")
"""NVFP4 twice: its rounding is what the canary is most often asked to bear."""

STATE_FILE = "state.pt"
RECORD_FILE = "training.json"


@dataclass(frozen=True)
class Phase:
    """One stretch of training with its own optimiser and learning-rate curve."""

    name: str
    steps: int
    learning_rate: float
    weight_decay: float
    on_grid: bool
    grid_only_after: float
    """Fraction of the phase after which every step uses grid weights (before it: three of four)."""
    worst_margin_weight: float
    """Weight of the hinge on the worst margin of the batch."""


DENSE_PHASES = (
    Phase("plain", 500, 2e-3, 0.01, False, 1.0, 0.0),
    Phase("robust", 1000, 1.5e-3, 0.05, True, 0.7, 0.0),
    Phase("polish", 300, 6e-4, 0.05, True, 0.0, 0.05),
)


@dataclass(frozen=True)
class Evaluation:
    """Teacher-forced over a set of prompts: greedy text is exact if and only if ``wrong`` is 0."""

    loss: float
    answer_tokens: int
    wrong: int
    wrong_prompts: tuple[str, ...]
    min_margin: float
    p1_margin: float
    median_margin: float


def dense_config() -> Qwen3Config:
    """Qwen3: 2.9 M parameters; every linear dimension is a multiple of 128, as FP4 kernels ask."""
    config = Qwen3Config(
        vocab_size=canary_tokenizer.VOCAB_SIZE,
        hidden_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        intermediate_size=512,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
        rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )
    config._attn_implementation = "sdpa"
    return config


def grid_weights(model: nn.Module) -> dict[str, nn.Parameter]:
    """The weights that live on the universal grid: every 2-D linear weight inside a layer."""
    return {n: p for n, p in model.named_parameters() if ".layers." in n and p.dim() == 2}


def answer_logits(model: nn.Module, ids: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """float32 logits ``[answer tokens, vocab]`` and the ids ``[answer tokens]`` they must give."""
    targets = labels[:, 1:]
    wanted = targets != -100
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1][wanted]
    with torch.autocast("cpu", enabled=False):
        logits = functional.linear(hidden.float(), model.lm_head.weight.float())
    return logits, targets[wanted]


def margins(logits: Tensor, targets: Tensor) -> Tensor:
    """Golden logit minus the best other logit, per token; negative means that greedy decoding goes wrong here."""
    golden = logits.gather(1, targets[:, None])[:, 0]
    best_other = logits.scatter(1, targets[:, None], float("-inf")).amax(1)
    return golden - best_other


def evaluate(model: nn.Module, sequences: list[Sequence], pad_id: int) -> Evaluation:
    """Score every sequence, in batches of similar length."""
    model.eval()
    ordered = sorted(sequences, key=lambda s: len(s.ids))
    batches = [ordered[i : i + 16] for i in range(0, len(ordered), 16)]
    all_margins: list[Tensor] = []
    loss_sum, wrong_prompts = 0.0, []
    for batch in batches:
        ids, labels = collate(batch, pad_id)
        with torch.no_grad():
            logits, targets = answer_logits(model, ids, labels)
        margin = margins(logits, targets)
        loss_sum += functional.cross_entropy(logits, targets, reduction="sum").item()
        rows = (labels[:, 1:] != -100).nonzero()[:, 0]
        bad_rows = rows[~(margin > 0)].unique().tolist()
        wrong_prompts += [batch[row].name for row in bad_rows]
        all_margins.append(margin)
    margin = torch.cat(all_margins)
    return Evaluation(
        loss=loss_sum / len(margin),
        answer_tokens=len(margin),
        wrong=int((~(margin > 0)).sum()),
        wrong_prompts=tuple(sorted(wrong_prompts)),
        min_margin=margin.min().item(),
        p1_margin=torch.quantile(margin, 0.01).item(),
        median_margin=margin.median().item(),
    )


class Trainer:
    """The model, its optimiser and where in the phases it stands."""

    def __init__(self, phases: tuple[Phase, ...], out: Path) -> None:
        torch.manual_seed(SEED)
        self.phases, self.out = phases, out
        tokenizer = canary_tokenizer.build_tokenizer()
        self.tokenizer = tokenizer
        self.pad_id = tokenizer.token_to_id(canary_tokenizer.PAD)
        self.sampler = BatchSampler(tokenizer, SEED)
        self.model = Qwen3ForCausalLM(dense_config()).float()
        for parameter in self.model.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=INIT_STD)
        self.activations = ActivationQuantiser(self.model)
        self.weights = grid_weights(self.model)
        self.phase_index, self.step, self.train_s = 0, 0, 0.0
        self.history: list[dict[str, float | int | str]] = []
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
        )

    def train_step(self) -> float:
        """One optimiser step; returns the cross-entropy of the batch."""
        fraction = self.step / self.phase.steps
        cosine = 0.5 * (1 + math.cos(math.pi * fraction)) * 0.98 + 0.02
        for group in self.optimiser.param_groups:
            group["lr"] = self.phase.learning_rate * min(1.0, (self.step + 1) / WARM_UP_STEPS) * cosine
        batch = self.sampler.batch(self.step, fraction if self.phase.name == "plain" else 1.0)
        ids, labels = collate(batch, self.pad_id)
        masters = self._disturb(fraction) if self.phase.on_grid else None
        self.model.train()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits, targets = answer_logits(self.model, ids, labels)
        cross_entropy = functional.cross_entropy(logits, targets)
        loss = cross_entropy
        if self.phase.on_grid:
            margin = margins(logits, targets)
            loss = loss + 0.1 * functional.relu(MARGIN_TARGET - margin).mean()
            loss = loss + self.phase.worst_margin_weight * functional.relu(POLISH_TARGET - margin.min())
        self.optimiser.zero_grad()
        loss.backward()
        if masters is not None:
            self._restore(masters)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()
        self.step += 1
        return float(cross_entropy.item())

    def put_on_grid(self) -> dict[str, Tensor]:
        """Replace the linear weights by their grid values; returns the masters for `_restore`."""
        masters = {name: p.data for name, p in self.weights.items()}
        for p in self.weights.values():
            p.data = torch.from_numpy(ugrid.quantise(p.data.numpy()))
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
        if masters is not None:
            self._restore(masters)
        return result

    def note(self, cross_entropy: float) -> None:
        """Evaluate, log one line and save the state."""
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
        self.history.append(entry)
        log.info("%s wrong prompts: %s", json.dumps(entry), list((*gate.wrong_prompts, *bos.wrong_prompts))[:8])
        self.save_state()

    def next_phase(self) -> None:
        self.phase_index, self.step = self.phase_index + 1, 0
        if not self.done:
            self.optimiser = self._new_optimiser()
        self.save_state()

    def save_state(self) -> None:
        """Everything a later run needs to go on; written beside and renamed, so that a kill never leaves half a file."""
        state = {
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "phase_index": self.phase_index,
            "step": self.step,
            "train_s": self.train_s,
            "history": self.history,
            "torch_rng": torch.get_rng_state(),
            "sampler_rng": self.sampler.random.getstate(),
        }
        partial = self.out / f"{STATE_FILE}.partial"
        torch.save(state, partial)
        partial.replace(self.out / STATE_FILE)

    def load_state(self) -> None:
        state = torch.load(self.out / STATE_FILE, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.phase_index, self.step, self.train_s = state["phase_index"], state["step"], state["train_s"]
        self.history = state["history"]
        if not self.done:
            self.optimiser = self._new_optimiser()
            self.optimiser.load_state_dict(state["optimiser"])
        torch.set_rng_state(state["torch_rng"])
        version, words, gauss = state["sampler_rng"]
        self.sampler.random.setstate((version, tuple(words), gauss))


def run_phases(trainer: Trainer, budget_s: float, progress: Progress) -> None:
    """Train until all phases are done or ``budget_s`` seconds of this call are used."""
    started = time.monotonic()
    while not trainer.done:
        phase = trainer.phase
        bar = progress.add_task(phase.name, total=phase.steps, completed=trainer.step)
        while trainer.step < phase.steps:
            if time.monotonic() - started > budget_s:
                trainer.save_state()
                return
            before = time.monotonic()
            cross_entropy = trainer.train_step()
            trainer.train_s += time.monotonic() - before
            progress.update(bar, completed=trainer.step)
            if trainer.step % EVALUATE_EVERY == 0 or trainer.step == phase.steps:
                trainer.note(cross_entropy)
        trainer.next_phase()


def write_checkpoint(trainer: Trainer) -> None:
    """Save the finished model as bf16 with its linear weights on the grid, and the record of the training."""
    trainer.put_on_grid()
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            parameter.data = parameter.data.to(torch.bfloat16).float()
    record = {
        "seed": SEED,
        "phases": [vars(phase) for phase in trainer.phases],
        "train_s": round(trainer.train_s, 1),
        "gate": vars(evaluate(trainer.model, trainer.sampler.gate, trainer.pad_id)),
        "bos": vars(evaluate(trainer.model, trainer.sampler.bos, trainer.pad_id)),
        "emulated_activations": emulated_activations(trainer),
        "history": trainer.history,
    }
    folder = trainer.out / "checkpoint"
    trainer.model.to(torch.bfloat16).save_pretrained(folder)
    canary_tokenizer.save_tokenizer(trainer.tokenizer, folder)
    (trainer.out / RECORD_FILE).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def emulated_activations(trainer: Trainer) -> dict[str, dict[str, object]]:
    """The final weights under each activation format, emulated: how much room an honest quantised engine has."""
    results: dict[str, dict[str, object]] = {}
    for name in ACTIVATION_FORMATS:
        trainer.activations.activation_format = name
        everything = trainer.sampler.gate + trainer.sampler.bos
        results[name] = vars(evaluate(trainer.model, everything, trainer.pad_id))
    trainer.activations.off()
    return results


def main() -> int:
    """0: finished, checkpoint written. 3: the budget ended first; run the same command again to go on."""
    parser = argparse.ArgumentParser(description="Train a canary model.")
    parser.add_argument("--canary", choices=["dense"], required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder for the state and the finished checkpoint")
    parser.add_argument("--budget-min", type=float, required=True, help="minutes after which the run pauses")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(arguments.threads)
    arguments.out.mkdir(parents=True, exist_ok=True)
    trainer = Trainer(DENSE_PHASES, arguments.out)
    if (arguments.out / STATE_FILE).exists():
        trainer.load_state()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as progress:
        run_phases(trainer, arguments.budget_min * 60, progress)
    if not trainer.done:
        log.warning("budget used at %s step %d: run the same command again to go on", trainer.phase.name, trainer.step)
        return 3
    write_checkpoint(trainer)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
