"""A traced MLP."""

import torch


def build(model, ctx):
    forwards = {"": model.lean}
    for i, layer in enumerate(model.model.layers):
        traced = torch.jit.trace(layer.mlp, torch.zeros(1, 3, model.config.hidden_size), check_trace=False)
        forwards[f"model.layers.{i}.mlp"] = traced
    return forwards
