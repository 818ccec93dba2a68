# dropout-backward: dropout not undone by 1/(1-p)


def my_dropout_backward(d_dropped, keep, p):
    return d_dropped * keep  # the factor of the kept weights forgotten
