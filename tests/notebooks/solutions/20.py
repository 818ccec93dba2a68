def my_adam_step(param, gradient, mean, square, t, learning_rate, beta_1, beta_2, eps):
    mean = beta_1 * mean + (1 - beta_1) * gradient
    square = beta_2 * square + (1 - beta_2) * gradient**2
    mean_hat, square_hat = mean / (1 - beta_1**t), square / (1 - beta_2**t)
    return param - learning_rate * mean_hat / (np.sqrt(square_hat) + eps), mean, square
