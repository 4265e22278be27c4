"""One real boot of the dense canary on the release named by `SPARKPROOF_ASV_ENGINE` (such as `vllm==0.32.0`).

Trap: asv's step detector only knows "up is worse", and module-level names become attributes of every benchmark. Rule: rates are tracked as
seconds per token, a gate failure as a 0/1 of its own, and nothing is imported at module level.
"""


class CanaryBoot:
    """Both numbers come from one boot. A boot that failed its gate has no time per token."""

    timeout = 3600

    def setup_cache(self) -> dict[str, object]:
        """Make the boot once, and give its cell as `sparkproof run --json` prints it."""
        import json  # noqa: PLC0415
        import os  # noqa: PLC0415
        import subprocess  # noqa: PLC0415
        import sys  # noqa: PLC0415

        engine = os.environ.get("SPARKPROOF_ASV_ENGINE")
        if not engine:
            raise NotImplementedError("set SPARKPROOF_ASV_ENGINE to an engine such as vllm==0.32.0")
        command = [sys.executable, "-m", "runners.cli.main", "run", "--engine", engine, "--model", "canary-dense", "--json"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        cell: dict[str, object] = json.loads(done.stdout)["cells"][0]
        return cell

    def track_time_per_token(self, cell: dict[str, object]) -> float:
        """Seconds per token of the median decode rate; NaN (not available) when nothing was timed."""
        decode = cell["decode_tok_s"]
        return 1 / float(decode["median"]) if isinstance(decode, dict) else float("nan")

    track_time_per_token.unit = "seconds"  # type: ignore[attr-defined]

    def track_incoherent(self, cell: dict[str, object]) -> int:
        """1 if the gate found the release incoherent or wrong, else 0."""
        return int(cell["outcome"] in ("incoherent", "wrong"))
