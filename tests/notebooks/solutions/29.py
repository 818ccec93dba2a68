def my_d_head_gate(d_gated, heads):
    return np.einsum("bhtd,bhtd->h", d_gated, heads)
