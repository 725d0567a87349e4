"""What `on_hardware.py` is made of: facts, probes, the faithful fake, stages, predictions and pages."""
