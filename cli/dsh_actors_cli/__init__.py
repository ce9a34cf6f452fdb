"""The command line of dsh-actors."""
