"""What `flash_tuning.py` is made of: candidates, what the compiler says of them, times, and the choice among them."""
