"""Programs that show the compiler at work."""
