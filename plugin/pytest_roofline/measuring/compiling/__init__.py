"""Triton kernels compiled ahead of time for targets that need not be here, and their binaries read."""
