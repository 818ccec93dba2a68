"""The museum: bugs that shipped, each in its own code with the story of where it shipped."""

from mha_numpy.teach.exercises.museum import gradients, heads, loops, losses, masks, nan, tokens

MUSEUM = [  # in the order in which they are best repaired
    heads.split_heads,
    heads.multi_head,
    heads.attention,
    heads.grouped_attention,
    masks.make_mask,
    masks.masked_attention,
    masks.softmax,
    nan.softmax,
    nan.masked_attention,
    gradients.softmax_backward,
    gradients.attention_backward,
    gradients.multi_head_backward,
    tokens.embedding_backward,
    tokens.cross_entropy,
    losses.train_steps,
    loops.train_steps,
    loops.train_with_adam,
    losses.train_with_adam,
]
