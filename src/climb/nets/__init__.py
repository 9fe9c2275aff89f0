"""Encoders (residual networks under torchvision's parameter names, a micro network for CPUs) and their heads.

Every weight is drawn from the generator that is handed in: the same generator gives the same network, bit for
bit, whatever else has drawn random numbers before.
"""

from __future__ import annotations

from climb.nets.build import BACKBONES, build_network, check_backbone
from climb.nets.encoded import Beforehand, Encoded
from climb.nets.frozen import frozen
from climb.nets.heads import bottleneck, plain_projector, projector
from climb.nets.micro import MicroNet, micronet
from climb.nets.network import Network
from climb.nets.resnet import ResNet, load_torchvision, resnet18, resnet34, resnet50
from climb.nets.saved_encoder import SavedEncoder, load_encoder, save_encoder
from climb.nets.timm_model import TimmModel, timm_model
from climb.nets.vit import VisionTransformer, vit_tiny

__all__ = [
    "BACKBONES",
    "Beforehand",
    "Encoded",
    "MicroNet",
    "Network",
    "ResNet",
    "SavedEncoder",
    "TimmModel",
    "VisionTransformer",
    "bottleneck",
    "build_network",
    "check_backbone",
    "frozen",
    "load_encoder",
    "load_torchvision",
    "micronet",
    "plain_projector",
    "projector",
    "resnet18",
    "resnet34",
    "resnet50",
    "save_encoder",
    "timm_model",
    "vit_tiny",
]
