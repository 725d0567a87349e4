"""The command `roofline`: one module a group of commands."""
