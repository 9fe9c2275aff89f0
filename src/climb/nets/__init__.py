"""Encoders and their heads: residual networks with torchvision's parameter names, EfficientNet-Lite0 with
timm's, a ViT, a micro network for CPUs.

Every weight is drawn from the given generator. The same generator state gives the same network, bit for bit.
"""

from __future__ import annotations

from climb.nets.build import BACKBONES, backbone, build_network, check_backbone
from climb.nets.efficientnet_lite import EfficientNetLite, efficientnet_lite0
from climb.nets.heads import bottleneck, plain_projector, projector
from climb.nets.hf_model import HubModel, hub_model
from climb.nets.micro import MicroNet, micronet
from climb.nets.network import IMAGENET_MEAN, IMAGENET_STD, Channels, Encoded, Network, Pretrained, frozen
from climb.nets.resnet import ResNet, load_torchvision, resnet18, resnet34, resnet50
from climb.nets.saved_encoder import SavedEncoder, load_encoder, save_encoder
from climb.nets.timm_model import TimmModel, timm_model
from climb.nets.vit import VisionTransformer, vit_tiny
from climb.nets.weights import StartWeights, start_weights, weights_of

__all__ = [
    "BACKBONES",
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "Channels",
    "EfficientNetLite",
    "Encoded",
    "HubModel",
    "MicroNet",
    "Network",
    "Pretrained",
    "ResNet",
    "SavedEncoder",
    "StartWeights",
    "TimmModel",
    "VisionTransformer",
    "backbone",
    "bottleneck",
    "build_network",
    "check_backbone",
    "efficientnet_lite0",
    "frozen",
    "hub_model",
    "load_encoder",
    "load_torchvision",
    "micronet",
    "plain_projector",
    "projector",
    "resnet18",
    "resnet34",
    "resnet50",
    "save_encoder",
    "start_weights",
    "timm_model",
    "vit_tiny",
    "weights_of",
]
