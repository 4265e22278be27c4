"""All canaries, formats and backends of one release in as few engine processes as possible."""
