"""What a measurement is compared with: run files and baseline files, their comparison, proposals and upkeep."""
