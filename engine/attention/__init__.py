"""Attention over paged KV, for ragged rows packed into one sequence axis.

``site``: what each attention call of a model needs, learnt by tracing it.
``inputs``: one step's rows as tensors. ``reference``: plain torch, any device;
``varlen``: torch's variable-length kernel on CUDA. ``dispatch``: the function
that transformers calls. Nothing here knows requests or sampling.
"""
