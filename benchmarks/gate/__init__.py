"""Which faults the coherence gate catches, by which judge and at which token, and whether it ever cries wolf."""
