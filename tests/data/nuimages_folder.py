"""A nuImages folder in the real layout: ten tables a version, JPEG files, key frames and sweeps."""

import hashlib
import json

import numpy as np

from .samples import encode

SIZE = (320, 180)
CAMERAS = ("CAM_FRONT", "CAM_BACK_LEFT")
VEHICLES = ("n003", "n008", "n015")
CATEGORIES = {
    "vehicle.car": (200, 40, 40),
    "vehicle.truck": (40, 200, 40),
    "vehicle.bus.bendy": (40, 40, 200),
    "vehicle.bus.rigid": (40, 40, 220),
    "human.pedestrian.adult": (200, 200, 40),
    "human.pedestrian.wheelchair": (20, 20, 20),
    "vehicle.trailer": (240, 240, 240),
}
OBJECTS = {
    "vehicle.car": [10, 10, 90, 60],
    "vehicle.truck": [100, 10, 180, 80],
    "vehicle.bus.bendy": [190, 10, 300, 70],
    "human.pedestrian.adult": [20, 90, 60, 170],
}
"""What stands where in every image."""
EMPTY = ("attribute", "calibrated_sensor", "ego_pose", "sensor", "surface_ann")


def token(*parts):
    return hashlib.md5(repr(parts).encode()).hexdigest()


class Folder:
    """Tables of every version as lists that a test may change before `write`; images lie there at once."""

    def __init__(self, root, versions=(("v1.0-train", 9), ("v1.0-val", 4))):
        self.root = root
        self.tables = {version: self._version(version, images) for version, images in versions}

    def _version(self, version, images):
        tables = {name: [] for name in EMPTY}
        tables["category"] = [{"token": token(c), "name": c, "description": ""} for c in CATEGORIES]
        tables["log"] = [
            {"token": token(version, "log", i), "logfile": f"{v}-2018", "vehicle": v, "date_captured": "2018-07-18",
             "location": "singapore-onenorth"}
            for i, v in enumerate(VEHICLES)
        ]  # fmt: skip
        tables |= {"sample": [], "sample_data": [], "object_ann": []}
        for i in range(images):
            self.image(tables, version, i)
        return tables

    def image(self, tables, version, i):
        log = tables["log"][i % len(VEHICLES)]
        camera = CAMERAS[i % 2]
        name = f"{log['vehicle']}-2018-07-18-11-07-57+0800__{camera}__{version}{i:04d}.jpg"
        key, sample = token(version, "data", i), token(version, "sample", i)
        tables["sample"].append({"token": sample, "timestamp": i, "log_token": log["token"], "key_camera_token": key})
        for where, mine, is_key in (("samples", key, True), ("sweeps", token(version, "sweep", i), False)):
            tables["sample_data"].append(
                {"token": mine, "sample_token": sample, "ego_pose_token": "", "calibrated_sensor_token": "",
                 "filename": f"{where}/{camera}/{name}", "fileformat": "jpg", "width": SIZE[0], "height": SIZE[1],
                 "timestamp": i, "is_key_frame": is_key, "next": "", "prev": ""}
            )  # fmt: skip
        for category, bbox in OBJECTS.items():
            self.box(tables, (version, i, category), category, key, bbox)
        picture = np.full((SIZE[1], SIZE[0], 3), 110 + i, dtype=np.uint8)
        for category, (left, top, right, bottom) in OBJECTS.items():
            picture[top:bottom, left:right] = CATEGORIES[category]
            picture[top : top + 10, left:right] = 8 * i
        path = self.root / "samples" / camera / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(picture, "JPEG", quality=95))

    @staticmethod
    def box(tables, name, category, picture, bbox):
        mask = {"size": [SIZE[1], SIZE[0]], "counts": "UFFcMTFNMk8xTzAwMDAw" * 20}
        tables["object_ann"].append(
            {"token": token(name), "category_token": token(category), "bbox": bbox, "mask": mask,
             "attribute_tokens": [], "sample_data_token": picture}
        )  # fmt: skip

    def row(self, version, table, i):
        return self.tables[version][table][i]

    def file(self, version, i):
        return self.root / self.row(version, "sample_data", 2 * i)["filename"]

    def write(self):
        for version, tables in self.tables.items():
            folder = self.root / version
            folder.mkdir(parents=True, exist_ok=True)
            for name, rows in tables.items():
                (folder / f"{name}.json").write_text(json.dumps(rows, indent=0))
        return f"nuimages:{self.root}"
