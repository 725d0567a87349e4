"""How well rules tell slower code from noise: data of processes, the rules, and the counting of what they say."""
