"""One training loop for every task and every model, which it knows by their protocols only."""
