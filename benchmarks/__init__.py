"""Scripts that measure this library beside its peers and the raw limits."""
