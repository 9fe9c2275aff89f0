"""Encoders (residual networks under torchvision's parameter names, a micro network for CPUs) and their heads.

Every weight is drawn from the generator that is handed in: the same generator gives the same network, bit for
bit, whatever else has drawn random numbers before.
"""

from __future__ import annotations

from climb.nets.build import BACKBONES, build_network
from climb.nets.encoded import Encoded
from climb.nets.heads import bottleneck, projector
from climb.nets.micro import MicroNet, micronet
from climb.nets.network import Network
from climb.nets.resnet import ResNet, load_torchvision, resnet18, resnet34, resnet50

__all__ = [
    "BACKBONES",
    "Encoded",
    "MicroNet",
    "Network",
    "ResNet",
    "bottleneck",
    "build_network",
    "load_torchvision",
    "micronet",
    "projector",
    "resnet18",
    "resnet34",
    "resnet50",
]
