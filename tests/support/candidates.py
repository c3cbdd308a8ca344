"""Candidates for tests: good ones, and one for each way to misbehave."""

from __future__ import annotations

import textwrap

from strop.core import Candidate

__all__ = ["TORCH", "TOY", "candidate"]


def candidate(source: str, manifest: str = "") -> Candidate:
    """A candidate whose forward.py is `source`."""
    files = {"forward.py": textwrap.dedent(source), "manifest.toml": manifest}
    return Candidate(files=files, author="test")


_ANY = {
    "segfault": candidate("""
        import ctypes
        def build(model, ctx):
            def forward(*args, **kwargs):
                ctypes.string_at(0)
            return {"": forward}
        """),
    "hang": candidate("""
        def build(model, ctx):
            def forward(*args, **kwargs):
                while True:
                    pass
            return {"": forward}
        """),
    "exit": candidate("""
        import os
        def build(model, ctx):
            os._exit(3)
        """),
    "syntax": candidate("def build(model, ctx)\n    return {}\n"),
    "no_mapping": candidate("def build(model, ctx):\n    return None\n"),
    "raises": candidate("""
        def build(model, ctx):
            raise ValueError("no such shape")
        """),
}

TORCH = {
    **_ANY,
    "same": candidate("""
        def build(model, ctx):
            original = model.forward
            return {"": lambda *args, **kwargs: original(*args, **kwargs)}
        """),
    "zero_layer": candidate("""
        import torch
        def build(model, ctx):
            def forward(x):
                return torch.zeros_like(x)
            return {"model.layers.1.mlp": forward}
        """),
    "stale": candidate("""
        def build(model, ctx):
            original, kept = model.forward, {}
            def forward(*args, **kwargs):
                out = original(*args, **kwargs)
                key = tuple(out.logits.shape)
                out.logits = kept.setdefault(key, out.logits.clone())
                return out
            return {"": forward}
        """),
    "writes_weights": candidate("""
        def build(model, ctx):
            original = model.forward
            def forward(*args, **kwargs):
                model.model.norm.weight.mul_(1.5)
                return original(*args, **kwargs)
            return {"": forward}
        """),
    "rebinds_weights": candidate("""
        def build(model, ctx):
            model.model.norm.weight.data = model.model.norm.weight.data * 1.5
            return {"": model.forward}
        """),
    "slows_baseline": candidate("""
        import time
        def build(model, ctx):
            kind = type(model.model.layers[0])
            original = kind.forward
            def slowed(self, *args, **kwargs):
                time.sleep(0.002)
                return original(self, *args, **kwargs)
            kind.forward = slowed
            return {f"model.layers.{i}": original.__get__(layer)
                    for i, layer in enumerate(model.model.layers)}
        """),
    "late_write": candidate("""
        import threading
        def build(model, ctx):
            original = model.forward
            def forward(*args, **kwargs):
                out = original(*args, **kwargs)
                threading.Timer(0.02, lambda: out.logits.add_(1.0)).start()
                return out
            return {"": forward}
        """),
    "nan": candidate("""
        def build(model, ctx):
            original = model.forward
            def forward(*args, **kwargs):
                out = original(*args, **kwargs)
                out.logits[..., 0] = float("nan")
                return out
            return {"": forward}
        """),
    "wrong_shape": candidate("""
        def build(model, ctx):
            original = model.forward
            def forward(*args, **kwargs):
                out = original(*args, **kwargs)
                out.logits = out.logits[..., :-1]
                return out
            return {"": forward}
        """),
}

_FAST_TOY = """
import numpy as np
def build(model, ctx):
    table, layers = model.table.astype(np.float64), model.layers.astype(np.float64)
    def forward(tokens, state):
        total, count = state or (np.zeros((len(layers), table.shape[1])), 0)
        total, rows = total.copy(), []
        for token in tokens:
            h, count = table[token], count + 1
            for i, weight in enumerate(layers):
                total[i] += h
                h = h + np.tanh((h + total[i] / count) @ weight)
            rows.append((table @ h).astype(np.float32))
        return np.stack(rows), (total, count)
    return {"": forward}
"""

TOY = {
    **_ANY,
    "same": candidate("""
        def build(model, ctx):
            return {"": model.forward}
        """),
    "fast": candidate(_FAST_TOY),
    "zero_layer": candidate("""
        from strop.engine.toy import Toy
        def build(model, ctx):
            layers = model.layers.copy()
            layers[1] = 0
            return {"": Toy(model.table, layers).forward}
        """),
    "stale": candidate("""
        def build(model, ctx):
            kept = {}
            def forward(tokens, state):
                logits, state = model.forward(tokens, state)
                return kept.setdefault(logits.shape, logits), state
            return {"": forward}
        """),
    "writes_weights": candidate("""
        def build(model, ctx):
            def forward(tokens, state):
                model.table[0] = 1
                return model.forward(tokens, state)
            return {"": forward}
        """),
    "nan": candidate("""
        import numpy as np
        def build(model, ctx):
            def forward(tokens, state):
                logits, state = model.forward(tokens, state)
                logits[..., 0] = np.nan
                return logits, state
            return {"": forward}
        """),
    "wrong_shape": candidate("""
        def build(model, ctx):
            def forward(tokens, state):
                logits, state = model.forward(tokens, state)
                return logits[..., :-1], state
            return {"": forward}
        """),
}
