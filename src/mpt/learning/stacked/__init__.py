"""Many models of one architecture, each with its own weights, as one network: a vehicle each, side by side on a GPU.

`networks` makes one network of V of `layers`, or of `tall_maps` where there are depthwise convolutions; `attention` and
modules named `*_kernels` have what torch lacks for it, `steps` trains it. `mpt.federation.stacked_trainer` calls it.
"""
