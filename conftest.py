"""pytest's own tester, for the tests of the plugin. The plugin itself comes in by its entry point, never from here."""

pytest_plugins = ["pytester"]
