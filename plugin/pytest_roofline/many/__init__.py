"""Many runs at once: what became slower over time (`history`), and which part of a fleet is slow (`fleet`)."""
