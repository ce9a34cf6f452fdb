"""Reading images with a decoder that can take its whole process down.

The decoder stands for native code: it believes the header of a file and sets the memory aside.
A header that promises a terabyte gets the process killed by the kernel, at once and without
an exception that anybody could catch. It can only be survived from outside:

- `survey` asks one decoder that lives in a process of its own. Its policy, in the tree file,
  starts it again after each crash, and the file that it crashed on is quarantined.
- `survey_one_shot` starts one child per image. A crash is the outcome of that child: a value.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import dsh_actors as dsh

if TYPE_CHECKING:
    from collections.abc import Iterable

MEMORY = 64 * 1024 * 1024
"""What the kernel lets the decoder have, in bytes."""


class Prompt(TypedDict):
    """The folder that holds the images."""

    images: str


class Image(TypedDict):
    """What the decoder says of one image; ``brightness`` is the mean, from 0 to 1."""

    width: int
    height: int
    brightness: float
    pid: int


class Survey(TypedDict):
    """The report: images by name, the reason by name for the others, the decoders' processes."""

    images: dict[str, Image]
    damaged: dict[str, str]
    quarantined: dict[str, str]
    decoder_pids: list[int]


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
    return {"width": width, "height": height, "brightness": brightness, "pid": os.getpid()}


@dsh.behaviour
def decoder(turn: dsh.Turn, path: str) -> Image:
    """Decode one image per message."""
    return decode(path)


@dsh.behaviour
async def survey(turn: dsh.Turn, prompt: Prompt) -> Survey:
    """Survey all images with the one decoder of the tree file, which comes back after a crash."""
    report = _empty()
    paths = _images(prompt)
    for done, path in enumerate(paths, 1):
        try:
            image = await turn.child("decoder").ask(str(path))
        except dsh.AgentFailed as error:
            report["damaged"][path.stem] = error.message  # the decoder lives on
        except dsh.AgentLost as error:
            report["quarantined"][path.stem] = str(error)  # it died, and its policy restarts it
        else:
            report["images"][path.stem] = image
        turn.progress(done=done, total=len(paths))
    return _finish(report)


@dsh.behaviour
async def survey_one_shot(turn: dsh.Turn, prompt: Prompt) -> Survey:
    """Survey all images with one child each: nobody restarts them, their loss is a value."""
    report = _empty()
    paths = _images(prompt)
    jobs = {turn.run(decoder, str(path), isolation="own"): path for path in paths}
    async for job in dsh.as_settled(jobs):
        outcome, name = job.outcome, jobs[job].stem
        if outcome.ok:
            report["images"][name] = outcome.value
        elif outcome.kind == "lost":
            report["quarantined"][name] = outcome.error or "its process ended"
        else:
            report["damaged"][name] = outcome.error or outcome.kind
    return _finish(report)


def _images(prompt: Prompt) -> list[Path]:
    return sorted(Path(prompt["images"]).glob("*.pgm"))


def _empty() -> Survey:
    return {"images": {}, "damaged": {}, "quarantined": {}, "decoder_pids": []}


def _finish(report: Survey) -> Survey:
    report["decoder_pids"] = _in_order(image["pid"] for image in report["images"].values())
    return report


def _in_order(pids: Iterable[int]) -> list[int]:
    return list(dict.fromkeys(pids))
