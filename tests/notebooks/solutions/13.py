def my_dropout_backward(d_dropped, keep, p):
    return d_dropped * keep / (1 - p)
