"""Measuring speed: always as ratios inside one run, because machines are noisy."""
