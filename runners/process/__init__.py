"""The engine server as a process: start it, know which processes are ours, wait for it, watch it, prove that it is gone."""
