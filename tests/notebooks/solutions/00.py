def my_strongest_keys(weights):
    return weights.argmax(axis=-1)
