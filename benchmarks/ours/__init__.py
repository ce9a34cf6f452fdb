"""What this library does."""
