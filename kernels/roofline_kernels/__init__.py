"""The measured things: buffers, kernels and their work in bytes and FLOPs. Knows nothing of the plugin."""
