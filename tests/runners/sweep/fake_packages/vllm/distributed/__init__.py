"""Stands for vllm.distributed."""


def cleanup_dist_env_and_memory() -> None:
    """Nothing to clean."""
