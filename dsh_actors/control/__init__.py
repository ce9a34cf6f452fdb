"""The control plane: a running system listens on a private unix socket."""
