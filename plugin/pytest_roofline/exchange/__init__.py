"""Import of other tools' files, and export to them: the formats, and the commands `import` and `export`."""
