# rope: pairs interleaved
# rope-backward: gradient turned forward


def my_rope(x, positions, base):
    d = x.shape[-1]
    angles = positions[:, None] * base ** (-2 * np.arange(d // 2) / d)
    cos, sin = np.cos(angles), np.sin(angles)
    first, second = x[..., ::2], x[..., 1::2]  # the other layout
    turned = first * cos - second * sin, second * cos + first * sin
    return np.stack(turned, axis=-1).reshape(x.shape)


def my_rope_backward(d_out, positions, base):
    d = d_out.shape[-1]
    angles = positions[:, None] * base ** (-2 * np.arange(d // 2) / d)
    cos, sin = np.cos(angles), np.sin(angles)
    first, second = np.split(d_out, 2, axis=-1)
    turned = first * cos - second * sin, second * cos + first * sin  # turns on instead of back
    return np.concatenate(turned, axis=-1)
