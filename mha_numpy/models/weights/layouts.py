"""The layouts of other libraries: plain tables."""

from mha_numpy.models.weights.layout import Layout, Row, under


def linear(theirs: str, ours: str, letters: str, stored: str = "transposed") -> tuple[Row, Row]:
    """Return the rows of a linear map: its weight and its bias."""
    return (
        Row(f"{theirs}.weight", " ".join(f"{ours}w_{name}" for name in letters.split()), stored),
        Row(f"{theirs}.bias", " ".join(f"{ours}b_{name}" for name in letters.split())),
    )


def norm(theirs: str, ours: str) -> tuple[Row, Row]:
    """Return the rows of a norm: its gain and its bias."""
    return Row(f"{theirs}.weight", f"{ours}gain"), Row(f"{theirs}.bias", f"{ours}bias")


def by_head(dot: str, out: str) -> tuple[Row, ...]:
    """Return the rows of an attention layer that keeps its heads apart."""
    return (
        Row(f"query{dot}kernel", "w_q", "D H d_k"),
        Row(f"query{dot}bias", "b_q", "H d_k"),
        Row(f"key{dot}kernel", "w_k", "kdim H_kv d_k"),
        Row(f"key{dot}bias", "b_k", "H_kv d_k"),
        Row(f"value{dot}kernel", "w_v", "vdim H_kv d_v"),
        Row(f"value{dot}bias", "b_v", "H_kv d_v"),
        Row(f"{out}{dot}kernel", "w_o", "H d_v D"),
        Row(f"{out}{dot}bias", "b_o"),
    )


TORCH_ATTENTION = (
    Row("in_proj_weight", "w_q w_k w_v", "transposed"),
    Row("in_proj_bias", "b_q b_k b_v"),
    *linear("out_proj", "", "o"),
)

TORCH_ATTENTION_SEPARATE = (
    Row("q_proj_weight", "w_q", "transposed"),
    Row("k_proj_weight", "w_k", "transposed"),
    Row("v_proj_weight", "w_v", "transposed"),
    Row("in_proj_bias", "b_q b_k b_v"),
    *linear("out_proj", "", "o"),
)

TORCH_EXTRA_KEYS = (  # add_bias_kv=True
    Row("bias_k", "extra_k", "1 1 H_kv*d_k"),
    Row("bias_v", "extra_v", "1 1 H_kv*d_v"),
)

TORCH_LAYER = (  # of a Linear, a norm or an Embedding: those rows whose params there are
    Row("weight", "w", "transposed"),
    Row("weight", "gain"),
    Row("weight", "table"),
    Row("bias", "b"),
    Row("bias", "bias"),
)

TORCH_ENCODER_LAYER = (
    *under("self_attn.", "attention.layer.", TORCH_ATTENTION),
    *linear("linear1", "feed_forward.layer.", "in"),
    *linear("linear2", "feed_forward.layer.", "out"),
    *norm("norm1", "attention.norm."),
    *norm("norm2", "feed_forward.norm."),
)

TORCH_DECODER_LAYER = (
    *under("self_attn.", "attention.layer.", TORCH_ATTENTION),
    *under("multihead_attn.", "cross_attention.layer.", TORCH_ATTENTION),
    *linear("linear1", "feed_forward.layer.", "in"),
    *linear("linear2", "feed_forward.layer.", "out"),
    *norm("norm1", "attention.norm."),
    *norm("norm2", "cross_attention.norm."),
    *norm("norm3", "feed_forward.norm."),
)

BERT_LAYER = (
    *linear("attention.self.query", "attention.layer.", "q"),
    *linear("attention.self.key", "attention.layer.", "k"),
    *linear("attention.self.value", "attention.layer.", "v"),
    *linear("attention.output.dense", "attention.layer.", "o"),
    *norm("attention.output.LayerNorm", "attention.norm."),
    *linear("intermediate.dense", "feed_forward.layer.", "in"),
    *linear("output.dense", "feed_forward.layer.", "out"),
    *norm("output.LayerNorm", "feed_forward.norm."),
)

GPT2_ATTENTION = (  # a Conv1D is x @ w + b, as here
    *linear("c_attn", "", "q k v", "same"),
    *linear("c_proj", "", "o", "same"),
)

GPT2_LAYER = (
    *norm("ln_1", "attention.norm."),
    *under("attn.", "attention.layer.", GPT2_ATTENTION),
    *norm("ln_2", "feed_forward.norm."),
    *linear("mlp.c_fc", "feed_forward.layer.", "in", "same"),
    *linear("mlp.c_proj", "feed_forward.layer.", "out", "same"),
)

LLAMA_ATTENTION = (
    *linear("self_attn.q_proj", "attention.layer.", "q"),
    *linear("self_attn.k_proj", "attention.layer.", "k"),
    *linear("self_attn.v_proj", "attention.layer.", "v"),
    *linear("self_attn.o_proj", "attention.layer.", "o"),
)
LLAMA_FEED_FORWARD = (
    *linear("mlp.up_proj", "feed_forward.layer.", "in"),
    *linear("mlp.gate_proj", "feed_forward.layer.", "gate"),
    *linear("mlp.down_proj", "feed_forward.layer.", "out"),
)
PRE_NORMS = (
    Row("input_layernorm.weight", "attention.norm.gain"),
    Row("post_attention_layernorm.weight", "feed_forward.norm.gain"),
)
QK_NORMS = (
    Row("self_attn.q_norm.weight", "attention.layer.gain_q"),
    Row("self_attn.k_norm.weight", "attention.layer.gain_k"),
)
GEMMA_NORMS = (
    Row("input_layernorm.weight", "attention.norm.gain"),
    Row("post_attention_layernorm.weight", "attention.post_norm.gain"),
    Row("pre_feedforward_layernorm.weight", "feed_forward.norm.gain"),
    Row("post_feedforward_layernorm.weight", "feed_forward.post_norm.gain"),
    *QK_NORMS,
)
OLMO2_NORMS = (
    Row("post_attention_layernorm.weight", "attention.post_norm.gain"),
    Row("post_feedforward_layernorm.weight", "feed_forward.post_norm.gain"),
    *QK_NORMS,
)
DEEPSEEK_ATTENTION = (
    Row("self_attn.q_a_proj.weight", "attention.layer.w_q_down", "transposed"),
    Row("self_attn.q_a_layernorm.weight", "attention.layer.q_gain"),
    Row("self_attn.q_b_proj.weight", "attention.layer.w_q", "transposed"),
    Row("self_attn.kv_a_proj_with_mqa.weight", "attention.layer.w_kv_down", "transposed"),
    Row("self_attn.kv_a_layernorm.weight", "attention.layer.kv_gain"),
    Row("self_attn.kv_b_proj.weight", "attention.layer.w_k_up attention.layer.w_v_up", "by head"),
    Row("self_attn.o_proj.weight", "attention.layer.w_o", "transposed"),
)
GPT_OSS_EXPERTS = (
    *linear("mlp.router", "feed_forward.layer.", "router"),
    Row("mlp.experts.gate_up_proj", "feed_forward.layer.w_gate feed_forward.layer.w_in",
        "in turns"),
    Row("mlp.experts.gate_up_proj_bias", "feed_forward.layer.b_gate feed_forward.layer.b_in",
        "in turns"),
    Row("mlp.experts.down_proj", "feed_forward.layer.w_out"),
    Row("mlp.experts.down_proj_bias", "feed_forward.layer.b_out"),
    Row("self_attn.sinks", "attention.layer.sink"),
)  # fmt: skip


GATED_ATTENTION = (
    Row("self_attn.q_proj.weight", "attention.layer.w_q attention.layer.w_gate", "by head"),
    *linear("self_attn.k_proj", "attention.layer.", "k"),
    *linear("self_attn.v_proj", "attention.layer.", "v"),
    *linear("self_attn.o_proj", "attention.layer.", "o"),
    *QK_NORMS,
)
DELTA = (
    *linear("linear_attn.conv1d", "attention.layer.", "conv", "channels"),
    Row("linear_attn.A_log", "attention.layer.a_log"),
    Row("linear_attn.dt_bias", "attention.layer.dt_bias"),
    Row("linear_attn.norm.weight", "attention.layer.gain"),
    *linear("linear_attn.out_proj", "attention.layer.", "o"),
)
DELTA_MAPS = (
    *linear("linear_attn.in_proj_qkv", "attention.layer.", "q k v"),
    *linear("linear_attn.in_proj_z", "attention.layer.", "gate"),
    *linear("linear_attn.in_proj_b", "attention.layer.", "beta"),
    *linear("linear_attn.in_proj_a", "attention.layer.", "decay"),
)
PACKED_DELTA_MAPS = (
    *linear("linear_attn.in_proj_qkvz", "attention.layer.", "q k v gate", "by key head"),
    *linear("linear_attn.in_proj_ba", "attention.layer.", "beta decay", "by key head"),
)


def beside(name: str, *rows: Row) -> tuple[Row, ...]:
    """Return rows of those layers that have this param, too."""
    return tuple(row._replace(beside=name) for row in rows)


def less_1(*rows: Row) -> tuple[Row, ...]:
    """Return rows of gains that are stored as what they have above 1."""
    return tuple(row._replace(stored="less 1") if "gain" in row.ours else row for row in rows)


def llama(*rows: Row, gain: str = "same") -> Layout:
    """Return the layout of a model that is stored as Llama is, with these rows in each layer."""
    return Layout(
        (
            Row("model.embed_tokens.weight", "embedding.table"),
            *under("model.layers.{i}.", "blocks.{i}.", rows),
            Row("model.norm.weight", "norm.gain", gain),
            Row("lm_head.weight", "unembedding.w", "transposed"),
        ),
        prefix="model.",
        ignored=("*.rotary_emb.inv_freq",),
    )


def qwen(*delta_maps: Row) -> Layout:
    """Return the layout of a model with attention in some layers, and a GatedDeltaNet in others."""
    attention = beside("attention.layer.gain_q", *GATED_ATTENTION)
    delta = beside("attention.layer.a_log", *DELTA, *delta_maps)
    return llama(
        *less_1(*attention, *PRE_NORMS), *delta, *LLAMA_FEED_FORWARD, gain="less 1"
    )  # fmt: skip


LAYOUTS = {
    "torch": Layout((*TORCH_ATTENTION, *TORCH_EXTRA_KEYS)),
    "torch-separate": Layout((*TORCH_ATTENTION_SEPARATE, *TORCH_EXTRA_KEYS)),
    "torch-layer": Layout(TORCH_LAYER),
    "torch-encoder-layer": Layout(TORCH_ENCODER_LAYER),
    "torch-decoder-layer": Layout(TORCH_DECODER_LAYER),
    "keras": Layout(by_head("/", "attention_output")),
    "flax": Layout(by_head(".", "out")),
    "gpt2-attention": Layout(GPT2_ATTENTION),
    "bert": Layout(
        (
            Row("embeddings.word_embeddings.weight", "embedding.table"),
            Row("embeddings.position_embeddings.weight", "positions.table"),
            Row("embeddings.token_type_embeddings.weight", "segments.table"),
            *norm("embeddings.LayerNorm", "norm."),
            *under("encoder.layer.{i}.", "blocks.{i}.", BERT_LAYER),
        ),
        prefix="bert.",
        ignored=("pooler.*", "cls.*", "embeddings.position_ids"),
        renamed=((".gamma", ".weight"), (".beta", ".bias")),
    ),
    "gpt2": Layout(
        (
            Row("transformer.wte.weight", "embedding.table"),
            Row("transformer.wpe.weight", "positions.table"),
            *under("transformer.h.{i}.", "blocks.{i}.", GPT2_LAYER),
            *norm("transformer.ln_f", "norm."),
            Row("lm_head.weight", "unembedding.w", "transposed"),
        ),
        prefix="transformer.",
        ignored=("*.attn.bias", "*.attn.masked_bias"),
    ),
    "llama": llama(*LLAMA_ATTENTION, *LLAMA_FEED_FORWARD, *PRE_NORMS, *QK_NORMS),
    "gemma": llama(*LLAMA_ATTENTION, *LLAMA_FEED_FORWARD, *less_1(*GEMMA_NORMS), gain="less 1"),
    "olmo2": llama(*LLAMA_ATTENTION, *LLAMA_FEED_FORWARD, *OLMO2_NORMS),
    "gpt-oss": llama(*LLAMA_ATTENTION, *GPT_OSS_EXPERTS, *PRE_NORMS),
    "qwen3-next": qwen(*PACKED_DELTA_MAPS),
    "qwen3.5": qwen(*DELTA_MAPS),
    "deepseek-v3": llama(*DEEPSEEK_ATTENTION, *LLAMA_FEED_FORWARD, *PRE_NORMS),
}
