"""Stands for vllm.utils."""
