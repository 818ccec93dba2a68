"""What a trace notes of latent attention: name, axes and equation of each step."""

from mha_numpy.core.multihead_recording import record_rotation
from mha_numpy.core.pair import record
from mha_numpy.core.rope import RopeCache
from mha_numpy.dtypes import Array
from mha_numpy.steps import is_watched, step

# the names of the RMS norms' steps
Q_NAMES = {
    "x": "q_down", "gain": "q_gain", "inverse_rms": "q_inverse_rms", "x_hat": "q_hat",
    "out": "q_latent", "T": "T_q", "D": "d_cq",
}  # fmt: skip
KV_NAMES = {
    "x": "kv_latent", "gain": "kv_gain", "inverse_rms": "kv_inverse_rms", "x_hat": "kv_hat",
    "out": "latent", "T": "T_q", "D": "d_c",
}  # fmt: skip
WITHOUT_QUERY_LATENT = {"q_latent": "x", "d_q_latent": "d_x_q", "d_cq": "D"}
GATED = {"heads": "ungated", "gated": "heads"}  # what leaves attention is always called heads
LATENT_GATED = {"heads": "latent_ungated", "gated": "latent_heads"}


def _heads(tokens: str, width: str, product: str) -> str:
    return f"({product}).reshape(B, {tokens}, H, {width}).transpose(0, 2, 1, 3)"


def _merged(heads: str, width: str) -> str:
    return f"{heads}.transpose(0, 2, 1, 3).reshape(B, T_q, H * {width})"


def _d_w(x: str, inputs: str, d_out: str, outputs: str) -> str:
    """Write the gradient of a matrix, a sum over all tokens."""
    return f"{x}.reshape(B * T_q, {inputs}).T @ {d_out}.reshape(B * T_q, {outputs})"


RECORDS = {  # by the place in the equations
    "query latent": (
        ("x", "B T_q D", ""),
        ("w_q_down", "D d_cq"),
        ("q_down", "B T_q d_cq", "x @ w_q_down"),
    ),
    "queries": (
        ("x", "B T_q D", ""),
        ("w_q", "d_cq H*d_k"),
        ("q_projected", "B T_q H*d_k", "q_latent @ w_q"),
        ("q_unrotated", "B H T_q d_k", _heads("T_q", "d_k", "q_projected")),
        ("q_nope", "B H T_q d_nope", "q_unrotated[..., np.arange(d_nope)]"),
        ("q_flat", "B H T_q d_rope", "q_unrotated[..., np.arange(d_nope, d_k)]"),
    ),
    "keys": (
        ("w_kv_down", "D d_kept"),
        ("kv_down", "B T_q d_kept", "x @ w_kv_down"),
        ("kv_latent", "B T_q d_c", "kv_down[..., np.arange(d_c)]"),
        ("k_flat", "B 1 T_q d_rope",
         "kv_down.reshape(B, 1, T_q, d_kept)[..., np.arange(d_c, d_kept)]"),
    ),
    "kept": (
        ("kept", "B 1 T_q d_kept",
         "np.concatenate([latent.reshape(B, 1, T_q, d_c), k_rope], axis=-1)"),
    ),
    "expanded": (
        ("latents", "B T_k d_c", "kept.reshape(B, T_k, d_kept)[..., np.arange(d_c)]"),
        ("w_k_up", "d_c H*d_nope"),
        ("w_v_up", "d_c H*d_v"),
        ("k_projected", "B T_k H*d_nope", "latents @ w_k_up"),
        ("v_projected", "B T_k H*d_v", "latents @ w_v_up"),
        ("k_nope", "B H T_k d_nope", _heads("T_k", "d_nope", "k_projected")),
        ("k_shared", "B H T_k d_rope", "kept[..., np.arange(d_c, d_kept)].repeat(H, axis=1)"),
        ("q", "B H T_q d_k", "np.concatenate([q_nope, q_rope], axis=-1)"),
        ("k", "B H T_k d_k", "np.concatenate([k_nope, k_shared], axis=-1)"),
        ("v", "B H T_k d_v", _heads("T_k", "d_v", "v_projected")),
    ),
    "absorbed": (
        ("w_k", "H d_nope d_c"),
        ("w_v", "H d_c d_v"),
        ("q_absorbed", "B H T_q d_c", "q_nope @ w_k"),
        ("q", "B H T_q d_kept", "np.concatenate([q_absorbed, q_rope], axis=-1)"),
        ("k", "B 1 T_k d_kept", "kept"),
        ("v", "B 1 T_k d_c", "kept[..., np.arange(d_c)]"),
    ),
    "absorbed heads": (("heads", "B H T_q d_v", "latent_heads @ w_v"),),
    "out": (
        ("merged", "B T_q H*d_v", _merged("heads", "d_v")),
        ("w_o", "H*d_v D_out"),
        ("out", "B T_q D_out", "merged @ w_o"),
    ),
    "out, backward": (
        ("d_out", "B T_q D_out", ""),
        ("d_merged", "B T_q H*d_v", "d_out @ w_o.T"),
        ("d_w_o", "H*d_v D_out", _d_w("merged", "H * d_v", "d_out", "D_out")),
        ("d_heads", "B H T_q d_v", _heads("T_q", "d_v", "d_merged")),
    ),
    "expanded, backward": (
        ("d_q_nope", "B H T_q d_nope", "d_q[..., np.arange(d_nope)]"),
        ("d_q_rope", "B H T_q d_rope", "d_q[..., np.arange(d_nope, d_k)]"),
        ("d_k_projected", "B T_k H*d_nope", _merged("d_k[..., np.arange(d_nope)]", "d_nope")),
        ("d_v_projected", "B T_k H*d_v", _merged("d_v", "d_v")),
        ("d_w_k_up", "d_c H*d_nope", _d_w("latents", "d_c", "d_k_projected", "H * d_nope")),
        ("d_w_v_up", "d_c H*d_v", _d_w("latents", "d_c", "d_v_projected", "H * d_v")),
        ("d_latents", "B T_k d_c", "d_k_projected @ w_k_up.T + d_v_projected @ w_v_up.T"),
        ("d_kept", "B 1 T_k d_kept",
         "np.concatenate([d_latents.reshape(B, 1, T_k, d_c), "
         "d_k[..., np.arange(d_nope, d_k)].sum(axis=1, keepdims=True)], axis=-1)"),
    ),
    "kept, backward": (
        ("d_latent", "B T_q d_c", "d_kept.reshape(B, T_q, d_kept)[..., np.arange(d_c)]"),
        ("d_k_rope", "B 1 T_q d_rope", "d_kept[..., np.arange(d_c, d_kept)]"),
    ),
    "keys, backward": (
        ("d_kv_down", "B T_q d_kept",
         "np.concatenate([d_kv_latent, d_k_flat.reshape(B, T_q, d_rope)], axis=-1)"),
        ("d_w_kv_down", "D d_kept", _d_w("x", "D", "d_kv_down", "d_kept")),
        ("d_x_kv", "B T_q D", "d_kv_down @ w_kv_down.T"),
    ),
    "queries, backward": (
        ("d_q_unrotated", "B H T_q d_k", "np.concatenate([d_q_nope, d_q_flat], axis=-1)"),
        ("d_q_projected", "B T_q H*d_k", _merged("d_q_unrotated", "d_k")),
        ("d_w_q", "d_cq H*d_k", _d_w("q_latent", "d_cq", "d_q_projected", "H * d_k")),
        ("d_q_latent", "B T_q d_cq", "d_q_projected @ w_q.T"),
    ),
    "query latent, backward": (
        ("d_w_q_down", "D d_cq", _d_w("x", "D", "d_q_down", "d_cq")),
        ("d_x_q", "B T_q D", "d_q_down @ w_q_down.T"),
    ),
    "x, backward": (("d_x", "B T_q D", "d_x_q + d_x_kv"),),
}  # fmt: skip


OF_ROTATED = {"q": "B H T_q d_rope", "k": "B 1 T_q d_rope"}


def note(place: str, **values: Array) -> None:
    """Record the steps of one place in the equations."""
    if is_watched():
        record(values, RECORDS[place])


def note_append(held: list[Array], kept: Array) -> None:
    """Record what a KV cache held, and what it holds after new tokens."""
    for past in held[:1]:
        step("kept_past", past, "B 1 T_past d_kept")
    joined = "np.concatenate([kept_past, kept_new], axis=2)" if held else "kept_new"
    step("kept", kept, "B 1 T_k d_kept", joined)


def note_rotation(letter: str, turned: Array, cache: RopeCache, *, backward: bool = False) -> None:
    """Record the rotation of queries or keys, or its backward."""
    if is_watched():
        names, axes = (f"{letter}_flat", f"{letter}_rope"), OF_ROTATED[letter]
        record_rotation(letter, names, axes, turned, cache, backward=backward)
