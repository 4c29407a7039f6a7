"""Attention, decoding and MoE kernels: each as a plain reference, then the fast one in Triton."""
