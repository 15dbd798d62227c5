"""ViT-Tiny (Dosovitskiy et al., ICLR 2021; the size is DeiT's) with patches that suit the image."""

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH, DEPTH, HEADS = 192, 12, 3


class ViTTiny(nn.Module):
    """Twelve pre-norm transformer blocks of width 192 with 3 heads; the feature is the class token's; d = 192.

    Patches of 4 pixels for images up to 48, of 8 up to 112, of 16 above: 7x7 to 14x14 tokens from 28 to 224 pixels
    (28 px: 49 tokens, 32 and 64 px: 64, 224 px: 196). A size that is no multiple is padded on the right and below with
    the middle grey that normalised images have at 0. No dropout.
    """

    dim = WIDTH

    def __init__(self, in_channels: int, image_size: int) -> None:
        super().__init__()
        patch = 4 if image_size <= 48 else 8 if image_size <= 112 else 16
        self.padding = -image_size % patch
        tokens = ((image_size + self.padding) // patch) ** 2
        self.patches = nn.Conv2d(in_channels, WIDTH, patch, stride=patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.positions = nn.Parameter(torch.zeros(1, 1 + tokens, WIDTH))
        self.blocks = nn.Sequential(*(Block() for _ in range(DEPTH)))
        self.norm = nn.LayerNorm(WIDTH, eps=1e-6)
        for tensor in (self.class_token, self.positions):
            nn.init.trunc_normal_(tensor, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Conv2d):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, images: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, 192)."""
        if self.padding:
            images = functional.pad(images, (0, self.padding, 0, self.padding))
        features: Tensor = self.norm(self.blocks(self.embedded(images))[:, 0])
        return features

    def embedded(self, images: Tensor) -> Tensor:
        """The tokens that the blocks begin with: (N, C, H, W) -> (N, 1 + T, 192)."""
        tokens = functional.linear(
            cut(images, self.patches.kernel_size[0]), self.patches.weight.flatten(1), self.patches.bias
        )
        return torch.cat([self.class_token.expand(tokens.shape[0], -1, -1), tokens], dim=1) + self.positions


def cut(images: Tensor, patch: int) -> Tensor:
    """Patches, row by row: (N, C, H, W) -> (N, T, C patch^2); by which a product is a convolution."""
    tiles = torch.unflatten(torch.unflatten(images, 2, (-1, patch)), 4, (-1, patch))
    return tiles.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


class SelfAttention(nn.Module):
    """What every token makes of all of them."""

    def forward(self, qkv: Tensor) -> Tensor:
        """Queries, keys and values (N, T, 3, heads, d) -> (N, T, heads, d)."""
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        return functional.scaled_dot_product_attention(query, key, value).transpose(1, 2)


class Perceptron(nn.Sequential):
    """Two layers with a GELU between them."""


class Block(nn.Module):
    """Self-attention and a two-layer perceptron of four times the width, each behind a LayerNorm and added."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH, eps=1e-6), nn.LayerNorm(WIDTH, eps=1e-6)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.attention = SelfAttention()
        self.project = nn.Linear(WIDTH, WIDTH)
        self.mlp = Perceptron(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, tokens: Tensor) -> Tensor:
        """(N, T, 192) -> (N, T, 192)."""
        tokens = tokens + self.attend(self.norm1(tokens))
        out: Tensor = tokens + self.mlp(self.norm2(tokens))
        return out

    def attend(self, tokens: Tensor) -> Tensor:
        """Attention of every token to every other, with 3 heads of 64."""
        qkv = torch.unflatten(self.qkv(tokens), 2, (3, HEADS, WIDTH // HEADS))
        out: Tensor = self.project(self.attention(qkv).flatten(2))
        return out
