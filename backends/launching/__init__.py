"""Launching a cubin from Python by what its manifest says. All but `driver.py` is pure and knows no CUDA."""
