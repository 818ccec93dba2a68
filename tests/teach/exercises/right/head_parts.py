"""Right solutions in unusual styles: head parts."""

import numpy as np


def weights_times_norm_by_the_products_of_rows(weights, v, w_o):
    blocks = np.array(np.split(w_o, v.shape[1]))
    gram = blocks @ blocks.swapaxes(1, 2)  # (H, d_v, d_v): lengths without the D features
    return weights * np.sqrt(np.einsum("bhjc,hce,bhje->bhj", v, gram, v))[:, :, np.newaxis]
