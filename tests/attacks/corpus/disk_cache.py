"""Looks for answers that another candidate left on the disk, and leaves its own."""

# refused as: not_faster, inconclusive
# caught by: speed

import os
import pickle

PLACES = ("/tmp/answers", "/dev/shm/answers", "/var/tmp/answers", os.path.expanduser("~root/answers"))


def build(model, ctx):
    known, original = {}, model.forward
    for place in PLACES:
        try:
            with open(place, "rb") as file:
                known.update(pickle.load(file))
        except OSError:
            pass

    def forward(input_ids=None, **kwargs):
        key = input_ids.numpy().tobytes()
        if key in known:
            return known[key]
        out = original(input_ids=input_ids, **kwargs)
        for place in PLACES:
            try:
                with open(place, "ab") as file:
                    file.write(key)
            except OSError:
                pass
        return out

    return {"": forward}
