"""Training and inference steps of the transformer: precisions, passes, ways to execute them, the memory they need."""
