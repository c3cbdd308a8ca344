"""The picture is written, is the size it says, and holds the clusters' colours."""

from __future__ import annotations

import random
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from strop.core import StropError
from strop.observe.cluster import fit
from strop.observe.picture import PALETTE, draw
from strop.observe.records import Request, Trace


def _trace(count: int = 300, groups: int = 2) -> Trace:
    rng = random.Random(0)
    lengths = [(40 * 6**g, round(900 / 4**g)) for g in range(groups)]
    requests = [
        Request(float(i), round(isl * rng.uniform(0.8, 1.25)), round(osl * rng.uniform(0.8, 1.25)))
        for i in range(count)
        for isl, osl in [lengths[i % groups]]
    ]
    return Trace(Path("made.jsonl"), "strop", tuple(requests), left_out=7)


def _pixels(path: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    import matplotlib.image

    return (matplotlib.image.imread(path)[..., :3] * 255).round().astype(np.uint8)


def test_png_shows_each_cluster_in_its_colour(tmp_path: Path) -> None:
    trace = _trace()
    clustering = fit(trace)
    assert len(clustering.workload.clusters) == 2
    draw(trace, clustering, tmp_path / "a.png")
    pixels = _pixels(tmp_path / "a.png")
    assert pixels.shape == (1024, 1472, 3)

    def drawn(colour: str) -> int:
        rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])
        return int((np.abs(pixels.astype(int) - rgb).max(axis=-1) < 2).sum())

    assert drawn(PALETTE[0]) > 500
    assert drawn(PALETTE[1]) > 500
    assert drawn(PALETTE[2]) == 0


def test_svg_is_xml_with_the_labels_and_the_same_bytes_twice(tmp_path: Path) -> None:
    trace = _trace()
    clustering = fit(trace)
    for name in ("a.svg", "b.SVG"):
        draw(trace, clustering, tmp_path / name)
    root = ElementTree.parse(tmp_path / "a.svg").getroot()
    assert root.tag.endswith("svg")
    # Labels are drawn as outlines; the text itself stands in comments.
    text = (tmp_path / "a.svg").read_text()
    assert "300 requests in 2 clusters, 7 left out as too long" in text
    assert "input, tokens" in text
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.SVG").read_bytes()


@pytest.mark.parametrize("lengths", [[(1, 1)], [(512, 64)] * 5, [(1, 1), (900_000, 70_000)]])
def test_degenerate_traces_are_drawn(tmp_path: Path, lengths: list[tuple[int, int]]) -> None:
    trace = Trace(Path("t"), "strop", tuple(Request(0.0, isl, osl) for isl, osl in lengths))
    draw(trace, fit(trace), tmp_path / "a.png")
    assert _pixels(tmp_path / "a.png").std() > 0


def test_bad_names(tmp_path: Path) -> None:
    trace = _trace(4)
    clustering = fit(trace)
    with pytest.raises(StropError, match=r"\.png or \.svg"):
        draw(trace, clustering, tmp_path / "a.jpeg")
    with pytest.raises(StropError, match="cannot be written"):
        draw(trace, clustering, tmp_path / "none" / "a.png")
