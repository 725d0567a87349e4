"""The parts of the transformer in `roofline_kernels.transformer`."""
