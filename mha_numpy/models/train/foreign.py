"""Attributes that optimizers of other libraries have, and what to write here instead."""

SAVE = "save_checkpoint(path, optimizer, rng, history) of mha_numpy.models.train, with the params"
LOAD = "load_checkpoint(path, optimizer, rng) of mha_numpy.models.train, with the params"
STEP = "optimizer.step(), after backward has filled the gradients"
MEMORY = "optimizer.memory, a dict by the names of the params"
ATTRIBUTES = {
    # PyTorch
    "zero_grad": "model.zero_grads(): gradients belong to the layers",
    "state_dict": SAVE,
    "load_state_dict": LOAD,
    "param_groups": "optimizer.groups, and optimizer.options for all other params",
    "add_param_group": "groups=[ParamGroup(names, ...)], when the optimizer is made",
    "defaults": "optimizer.options, a dict",
    "state": MEMORY,
    "lr": "optimizer.learning_rate",
    # Keras
    "apply": STEP,
    "apply_gradients": STEP,
    "minimize": "fit(model, ...) of mha_numpy.models.train",
    "iterations": "optimizer.t, the number of steps taken",
    "variables": MEMORY,
    # Optax
    "init": "nothing: an optimizer is ready once it is made",
    "update": STEP,
}
