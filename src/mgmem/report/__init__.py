"""Figures, animations and tables out of models and recorded results."""
