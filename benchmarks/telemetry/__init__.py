"""What the telemetry of a boot costs, in CPU seconds per second of one core."""
