"""Encoders and their heads: residual networks with torchvision's parameter names, EfficientNet-Lite0 with
timm's, a ViT, a micro network for CPUs.

Every weight is drawn from the given generator. The same generator state gives the same network, bit for bit.
"""

from __future__ import annotations

from climb.nets.build import BACKBONES, backbone, build_network, check_backbone
from climb.nets.efficientnet_lite import EfficientNetLite, efficientnet_lite0
from climb.nets.heads import bottleneck, plain_projector, projector
from climb.nets.micro import MicroNet, micronet
from climb.nets.network import Encoded, Network, frozen, move_weights
from climb.nets.resnet import ResNet, load_torchvision, resnet18, resnet34, resnet50
from climb.nets.saved_encoder import SavedEncoder, load_encoder, save_encoder
from climb.nets.timm_model import TimmModel, timm_model
from climb.nets.vit import VisionTransformer, vit_tiny

__all__ = [
    "BACKBONES",
    "EfficientNetLite",
    "Encoded",
    "MicroNet",
    "Network",
    "ResNet",
    "SavedEncoder",
    "TimmModel",
    "VisionTransformer",
    "backbone",
    "bottleneck",
    "build_network",
    "check_backbone",
    "efficientnet_lite0",
    "frozen",
    "load_encoder",
    "load_torchvision",
    "micronet",
    "move_weights",
    "plain_projector",
    "projector",
    "resnet18",
    "resnet34",
    "resnet50",
    "save_encoder",
    "timm_model",
    "vit_tiny",
]
