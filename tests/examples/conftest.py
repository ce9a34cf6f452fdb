"""The modules of the code census are imported as its agents import them: from their folder."""

from __future__ import annotations

import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"

sys.path.append(str(EXAMPLES / "code_census"))
