"""Many three-layer CNNs trained side by side on a GPU by a handful of Triton kernels.

`kernels` has them, `layout` says where parameters lie, `schedule` which sample is taken when, `stack` puts a step
together. `mpt.federation.trainers` is what calls it.
"""
