"""What others do, and what the machine can do at best."""
