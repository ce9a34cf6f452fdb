"""``python -m dsh_actors_cli`` is the command ``dsh-actors``."""

from __future__ import annotations

from dsh_actors_cli.main import main

if __name__ == "__main__":
    main()
