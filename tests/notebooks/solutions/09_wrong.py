# split-heads: split without transpose
# merge-heads: merge without transpose


def my_split_heads(x, num_heads):
    B, T, width = x.shape
    return x.reshape(B, num_heads, T, width // num_heads)  # no transpose


def my_merge_heads(heads):
    B, H, T, d = heads.shape
    return heads.reshape(B, T, H * d)  # no transpose
