# strongest-keys: queries taken for keys


def my_strongest_keys(weights):
    return weights.argmax(axis=1)  # down each column
