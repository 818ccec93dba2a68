# head-gates: gate gradient: mean over the batch


def my_d_head_gate(d_gated, heads):
    return np.einsum("bhtd,bhtd->bh", d_gated, heads).mean(axis=0)  # the mean over the batch
