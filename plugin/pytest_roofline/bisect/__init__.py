"""The first version, commit or difference that made something slower: `roofline bisect`."""
