"""What the memory of a call goes into: every operator's storages, followed from allocation to release.

torch's own `torch.distributed._tools.mem_tracker` follows storages in the same way and gives sums by module; it is no
public name, and keeps neither single allocations nor the order in which they came, which the peak's largest need.
"""
