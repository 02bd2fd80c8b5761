"""How fast image files become rows: made JPEGs of CelebA's size, made LEAF JSON.

    python bench/images.py [--quick] [--json FILE]

* ``jpeg_images_per_second``: 218 x 178 JPEGs to 32 x 32 x 3 bytes, as a schema with
  ``resize = true`` reads them; ``jpeg_plain_images_per_second``: a plain Pillow loop that
  decodes, crops and scales in full. They take turns; medians.
* ``jpeg_bytes_per_image``: what peak memory grew by, per image, beyond a first reading.
* ``leaf_images_per_second``: FEMNIST-like JSON (28 x 28 pixels as numbers) to bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import PIL
from PIL import Image

from understudy.data.images import read_images
from understudy.data.leaf import read_leaf
from understudy.data.schema import Schema

FACES = Schema("image", "faces", 10**6, shape=(32, 32, 3), resize=True)
DIGITS = Schema("image", "digits", 10**6, shape=(28, 28), classes=tuple(map(str, range(10))))


def main() -> None:
    """Make files, read them, print and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer images and repetitions")
    parser.add_argument("--json", type=Path, help="write the figures here")
    args = parser.parse_args()
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        results = _jpeg(Path(folder), 500 if args.quick else 4000, 3 if args.quick else 7)
        results |= _leaf(Path(folder), 500 if args.quick else 4000)
    results["minutes"] = round((time.perf_counter() - begun) / 60, 2)
    text = json.dumps({**results, "settings": _settings(args.quick)}, indent=2)
    print(text)
    if args.json:
        args.json.write_text(text + "\n")


def _settings(quick: bool) -> dict[str, Any]:
    return {
        "quick": quick,
        "cores": os.cpu_count(),
        "seed": 0,
        "python": platform.python_version(),
        "pillow": PIL.__version__,
        "processor": platform.machine(),
    }


def _jpeg(folder: Path, n: int, times: int) -> dict[str, float]:
    paths = _faces(folder, n)
    read_images(paths[:100], FACES)
    before = _peak()
    read_images(paths, FACES)
    grown = (_peak() - before) / n
    rates = [(_rate(read_images, paths), _rate(_plain, paths)) for _ in range(times)]
    ours, plain = (round(statistics.median(r)) for r in zip(*rates, strict=True))
    return {
        "jpeg_images_per_second": ours,
        "jpeg_plain_images_per_second": plain,
        "jpeg_ratio": round(statistics.median(a / b for a, b in rates), 2),
        "jpeg_bytes_per_image": round(grown),
    }


def _faces(folder: Path, n: int) -> list[Path]:
    """Smooth blobs with some grain: about 15 kB each."""
    rng = np.random.default_rng(0)
    paths = [folder / f"{i:06d}.jpg" for i in range(n)]
    for path in paths:
        blobs = Image.fromarray(rng.integers(0, 256, (22, 18, 3), np.uint8))
        smooth = np.asarray(blobs.resize((178, 218), Image.Resampling.BICUBIC), float)
        grainy = np.clip(smooth + rng.normal(0, 6, smooth.shape), 0, 255).astype(np.uint8)
        Image.fromarray(grainy).save(path, quality=90)
    return paths


def _plain(paths: list[Path], schema: Schema) -> np.ndarray:
    size = schema.shape[:2]
    faces = (Image.open(path).crop((0, 20, 178, 198)).resize(size) for path in paths)
    return np.stack([np.asarray(face) for face in faces])


def _leaf(folder: Path, n: int) -> dict[str, float]:
    rng = np.random.default_rng(0)
    users = [f"writer{i}" for i in range(n // 100)]
    data = {u: {"x": (rng.integers(0, 256, (100, 784)) / 255).tolist()} for u in users}
    held = {u: {**d, "y": rng.integers(0, 10, 100).tolist()} for u, d in data.items()}
    path = folder / "all_data.json"
    whole = {"users": users, "num_samples": [100] * len(users), "user_data": held}
    path.write_text(json.dumps(whole))
    begun = time.perf_counter()
    read_leaf(path, DIGITS)
    return {"leaf_images_per_second": round(n / (time.perf_counter() - begun))}


def _rate(read: Callable[[list[Path], Schema], np.ndarray], paths: list[Path]) -> float:
    begun = time.perf_counter()
    read(paths, FACES)
    return len(paths) / (time.perf_counter() - begun)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
