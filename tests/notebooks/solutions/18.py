def my_embedding_backward(d_out, ids, V):
    d_table = np.zeros((V, d_out.shape[-1]))
    np.add.at(d_table, ids, d_out)
    return d_table
