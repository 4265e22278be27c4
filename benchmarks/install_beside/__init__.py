"""What installing the next environment beside a measurement costs, in decode rate."""
