"""The blocks of a measurement: taken until the median is known, kept or excluded by cause."""
