"""Reading images with a decoder that can take its whole process down.

The decoder stands for native code: it believes the header of a file and sets the memory aside.
A header that promises a terabyte gets the process killed by the kernel, at once and without
an exception that anybody could catch. It can only be survived from outside:

- `survey` asks one decoder that lives in a process of its own. Its policy, in the tree file,
  starts it again after each crash, and the file that it crashed on is quarantined.
- `survey_one_shot` starts one child per image. A crash is the outcome of that child: a value.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import TypedDict

import dsh_actors as dsh

MEMORY = 64 * 1024 * 1024
"""What the kernel lets the decoder have, in bytes."""

RESTART_TIMEOUT = 30.0
"""How long a decoder may take to come back and answer, in seconds."""


class Prompt(TypedDict):
    """The folder that holds the images."""

    images: str


class Image(TypedDict):
    """What the decoder says of one image; ``brightness`` is the mean, from 0 to 1."""

    image: str
    width: int
    height: int
    brightness: float
    decoder_pid: int


class Problem(TypedDict):
    """An image without an answer, and why."""

    image: str
    reason: str


class Survey(TypedDict):
    """The report, each part sorted by image."""

    images: list[Image]
    damaged: list[Problem]
    quarantined: list[Problem]


def decode(path: str) -> Image:
    """Decode a plain PGM image, too trustingly.

    Raises:
        ValueError: the file is damaged in a way that the decoder notices.
    """
    words = [
        word
        for line in Path(path).read_text("ascii").splitlines()
        for word in line.partition("#")[0].split()
    ]
    if words[:1] != ["P2"] or len(words) < 4:
        raise ValueError("not a plain PGM image")
    width, height, white = (int(word) for word in words[1:4])
    if width * height > MEMORY:
        # Where native code would call malloc, and the kernel would answer with this.
        os.kill(os.getpid(), signal.SIGKILL)
    pixels = [int(word) for word in words[4:]]
    if len(pixels) != width * height:
        raise ValueError(f"{width * height} pixels expected, {len(pixels)} found")
    brightness = round(sum(pixels) / (len(pixels) * white), 3)
    return {
        "image": Path(path).stem,
        "width": width,
        "height": height,
        "brightness": brightness,
        "decoder_pid": os.getpid(),
    }


@dsh.behaviour
def decoder(turn: dsh.Turn, path: str) -> Image:
    """Decode one image per message."""
    return decode(path)


@dsh.behaviour
async def survey(turn: dsh.Turn, prompt: Prompt) -> Survey:
    """Survey all images with the one decoder of the tree file, which comes back after a crash."""
    report: Survey = {"images": [], "damaged": [], "quarantined": []}
    paths = _images(prompt)
    for done, path in enumerate(paths, 1):
        try:
            report["images"].append(await _ask_decoder(turn, path))
        except dsh.AgentFailed as error:  # the decoder lives on
            report["damaged"].append({"image": path.stem, "reason": error.message})
        except dsh.AgentLost as error:  # it died of this image, and its policy restarts it
            report["quarantined"].append({"image": path.stem, "reason": str(error)})
        turn.progress(done=done, total=len(paths))
    return report


@dsh.behaviour
async def survey_one_shot(turn: dsh.Turn, prompt: Prompt) -> Survey:
    """Survey all images with one child each: nobody restarts them, their loss is a value."""
    report: Survey = {"images": [], "damaged": [], "quarantined": []}
    jobs = [(path, turn.run(decoder, str(path), isolation="own")) for path in _images(prompt)]
    for path, job in jobs:
        outcome = await job
        if outcome.ok:
            report["images"].append(outcome.value)
            continue
        problem: Problem = {"image": path.stem, "reason": outcome.error or outcome.kind}
        report["quarantined" if outcome.kind == "lost" else "damaged"].append(problem)
    return report


async def _ask_decoder(turn: dsh.Turn, path: Path) -> Image:
    """Ask the decoder, and wait for its next life if it is between two."""
    async with asyncio.timeout(RESTART_TIMEOUT):
        while True:
            try:
                image: Image = await turn.child("decoder").ask(str(path))
                return image
            except dsh.AgentGone:  # refused, so the question was not asked: ask again
                await turn.sleep(0.02)


def _images(prompt: Prompt) -> list[Path]:
    return sorted(Path(prompt["images"]).glob("*.pgm"))
