"""The small edits that slips are made of: what stands in a right source, and what people write.

Every line of a group is a rule, in Python's own syntax: what stands there -> what is written
instead; what is written instead; ... A to F are any parts, and ARGS any arguments. Some names stand
for a part in one place: VALUE for what is computed, returned or handed over, LOOP for what a loop
runs through, TEST for a condition. ARRAY is any array that the function is given, and SIZE any
number that it knows: a parameter, the length of an axis.

The groups go from what is told first to what is told last, where several edits give the same
numbers.
"""

RULES = """
a part is left out
    A + B -> A; B
    A - B -> A; -B; B
    A * B -> A; B
    A / B -> A; 1 / B
    A @ B -> A; B
    A ** B -> A
    A // B -> A
    A & B -> A; B
    -A -> A
    A[B] -> A
    A(*ARGS) -> *ARGS
    A.B(*ARGS) -> A

the order is another
    A - B -> B - A
    A / B -> B / A
    A @ B -> B @ A
    A ** B -> B ** A
    np.where(A, B, C) -> np.where(A, C, B)
    np.concatenate([A, B], *ARGS) -> np.concatenate([B, A], *ARGS)

a parenthesis stands elsewhere
    A / (B + C) -> A / B + C
    A / (B - C) -> A / B - C
    A / (B * C) -> A / B * C
    A * (B + C) -> A * B + C
    A * (B - C) -> A * B - C
    A * (B - C - D) -> A * (B - C) - D; A * B - C - D
    (A + B) / C -> A + B / C
    (A - B) * C -> A - B * C
    A + B * C -> (A + B) * C
    A * B + C -> A * (B + C)
    A * B - C -> A * (B - C)
    A / B - C -> (A - C) / B
    A - B - C -> A - (B - C)
    1 - A ** B -> (1 - A) ** B
    A * B ** C -> (A * B) ** C
    A / np.sqrt(B + C) -> A / (np.sqrt(B) + C); A / np.sqrt(B) + C
    A / (np.sqrt(B) + C) -> A / np.sqrt(B + C); A / np.sqrt(B) + C
    1 / np.sqrt(A + B) -> 1 / (np.sqrt(A) + B)
    np.exp(A - B) -> np.exp(A) - B; np.exp(A) - np.exp(B)
    (A * B).sum(axis=C, keepdims=True) -> A.sum(axis=C, keepdims=True) * B.sum(axis=C, keepdims=True); A * B.sum(axis=C, keepdims=True); A.sum(axis=C, keepdims=True) * B
    (A * B).mean(axis=C, keepdims=True) -> A.mean(axis=C, keepdims=True) * B.mean(axis=C, keepdims=True); A * B.mean(axis=C, keepdims=True)
    (A * B).sum(axis=C) -> A.sum(axis=C) * B.sum(axis=C)
    A.sum(axis=C) -> np.abs(A).sum(axis=C); np.abs(A.sum(axis=C)); np.sqrt((A ** 2).sum(axis=C))
    np.sqrt((A ** 2).sum(axis=C)) -> np.sqrt(np.abs(A)).sum(axis=C); np.sqrt(A ** 2).sum(axis=C); np.abs(A.sum(axis=C)); np.sqrt(A.sum(axis=C) ** 2)
    A @ B -> A.sum(axis=-1, keepdims=True) @ B.sum(axis=-2, keepdims=True)
    (A ** 2).mean(axis=C, keepdims=True) -> A.mean(axis=C, keepdims=True) ** 2

another operation
    A + B -> A - B; A * B; B - A
    A - B -> A + B; A * B; A / B
    A * B -> A / B; A + B; A - B; A @ B
    A / B -> A * B; A - B; A // B
    A * B / C -> np.where(B, A / C, A); A + B / C; A - B / C; A * B - C
    np.add.at -> np.maximum.at; np.minimum.at; np.subtract.at; np.multiply.at
    A // B -> A % B; A / B; A // B + 1; A * B
    A @ B -> A * B
    A ** B -> A * B; B ** -A
    A & B -> A ^ B; np.logical_or(A, B)

a sign
    VALUE -> -VALUE

a comparison
    A < B -> A <= B; A > B; A >= B; A != B; A < B + 1; A < B - 1
    A <= B -> A < B; A >= B; A > B; A == B; A <= B + 1; A <= B - 1
    A > B -> A >= B; A < B; A <= B; A > B + 1; A > B - 1
    A >= B -> A > B; A <= B; A < B; A == B; A >= B + 1; A >= B - 1
    A == B -> A != B; A < B; A > B; A == B + 1; A == B - 1
    A != B -> A == B; A < B; A > B
    TEST -> True; False

another reduction
    A.sum -> A.mean; A.max; A.min; A.prod; A.std
    A.mean -> A.sum; A.max; A.min; A.std; A.var
    A.max -> A.min; A.mean; A.sum
    A.argmax -> A.argmin
    A.argmax(axis=B) -> np.argsort(-A, axis=B).take(1, axis=B); np.abs(A).argmax(axis=B)
    A.sum(axis=B, keepdims=C) -> np.linalg.norm(A, axis=B, keepdims=C); np.abs(A).sum(axis=B, keepdims=C)
    A.sum(axis=B) -> np.linalg.norm(A, axis=B); np.take(A, 0, axis=B); np.take(A, -1, axis=B)
    A.mean(axis=B, keepdims=C) -> np.median(A, axis=B, keepdims=C); A.sum(axis=B, keepdims=C) / (A.shape[B] - 1)
    A.mean(axis=B) -> np.take(A, 0, axis=B); np.take(A, -1, axis=B)
    np.abs(A).mean(*ARGS) -> np.abs(A.mean(*ARGS))

another function
    np.exp -> np.exp2; np.expm1; np.square; np.tanh
    np.log -> np.log2; np.log10; np.log1p; np.sqrt
    np.sqrt -> np.square; np.log; np.cbrt; np.exp
    math.sqrt -> math.exp; math.log
    np.tanh -> np.sin; np.arctan; np.exp; np.sign
    np.tanh(A) -> 1 / (1 + np.exp(-A)); np.clip(A, -1, 1)
    np.cos -> np.sin
    np.sin -> np.cos
    np.maximum -> np.minimum; np.add
    np.abs -> np.square; np.sign
    np.zeros -> np.ones
    np.arange(A) -> np.arange(A) + 1; np.arange(A)[::-1]; np.arange(1, A + 1)
    np.repeat(A, B, axis=C) -> np.concatenate([A] * B, axis=C); np.repeat(A[:, ::-1], B, axis=C)
    A(B, *ARGS) -> A(-B, *ARGS)

one way of counting for another
    A.shape[B] -> A.shape[B] - 1; A.shape[B] + 1; A.shape[B] // 2; A.size
    A[:, None] -> A[None, :]
    A[:B] -> A[:B - 1]; A[B:]; A[1:]; A[:-B]
    A[B:] -> A[B + 1:]; A[:B]; A[:-B]
    A[:, :B] -> A[:, B:]; A[:, 1:]; A[:, :B - 1]
    A[:, B:] -> A[:, :B]; A[:, :-B]; A[:, B + 1:]; A[:, -1:]
    range(A) -> range(1, A); range(A - 1)
    range(A, B, C) -> range(A + C, B, C); range(A, B - C, C); range(A, B, C + 1)
    slice(A, B) -> slice(A, B - 1); slice(A + 1, B); slice(A, None); slice(0, B); slice(B)
    LOOP -> LOOP[:1]; LOOP[1:]; LOOP[:-1]; LOOP[-1:]; LOOP[::-1]; LOOP[::2]
    zip(*ARGS, strict=True) -> list(zip(*ARGS))[:1]; list(zip(*ARGS))[::-1]; list(zip(*ARGS))[:-1]

another way of laying out numbers
    A.swapaxes(B, C) -> A.reshape(A.swapaxes(B, C).shape); A[..., ::-1, :].swapaxes(B, C)
    A.transpose(B, C, D, E) -> A.reshape(A.transpose(B, C, D, E).shape); A.swapaxes(1, 2)[:, ::-1]; A.swapaxes(1, 3)
    A.reshape(*ARGS) -> A.reshape(*ARGS, order="F"); A.swapaxes(-1, -2).reshape(*ARGS); A[::-1].reshape(*ARGS)
    A.reshape(B, C, D, E) -> A.reshape(B, D, C, E).swapaxes(1, 2); A.reshape(B, C, E, D).swapaxes(2, 3)
    A.reshape(B, C, D, E, F) -> A.reshape(B, D, C, E, F).swapaxes(1, 2)
    np.split(A, B, axis=C) -> np.split(A.reshape(*A.shape[:-1], -1, B).swapaxes(-1, -2).reshape(A.shape), B, axis=C)
    A @ B -> A.swapaxes(-1, -2) @ B; A @ B.swapaxes(-1, -2); A.T @ B; A @ B.T
    VALUE -> VALUE.swapaxes(-1, -2); VALUE.swapaxes(0, 1); VALUE.swapaxes(-2, -3); VALUE.T.reshape(VALUE.shape)
    VALUE -> VALUE.swapaxes(0, 1).reshape(VALUE.shape); VALUE.swapaxes(1, 2).reshape(VALUE.shape); VALUE.swapaxes(-1, -2).reshape(VALUE.shape)
    share(A, B) -> np.concatenate([A] * (B // A.shape[1]), axis=1)
    sum_over_group(A, B) -> A.reshape(A.shape[0], -1, B, *A.shape[2:]).sum(axis=1)

another order of numbers
    VALUE -> VALUE[::-1]; VALUE[:, ::-1]; VALUE[..., ::-1]; VALUE[..., ::-1, :]; np.sort(VALUE, axis=-1)
    VALUE -> np.roll(VALUE, 1, axis=-1); np.roll(VALUE, -1, axis=-1); np.roll(VALUE, 1, axis=-2); np.roll(VALUE, -1, axis=-2)
    VALUE -> np.roll(VALUE, 1, axis=1); np.roll(VALUE, -1, axis=1)

the first or the last is left out
    VALUE -> VALUE * (np.arange(VALUE.shape[-1]) > 0); VALUE * (np.arange(VALUE.shape[-1]) < VALUE.shape[-1] - 1)
    VALUE -> VALUE * (np.arange(VALUE.shape[-2]) > 0)[:, None]; VALUE * (np.arange(VALUE.shape[-2]) < VALUE.shape[-2] - 1)[:, None]
    VALUE -> VALUE * (np.arange(VALUE.shape[1]) > 0)[:, None, None]; VALUE * (np.arange(VALUE.shape[1]) < VALUE.shape[1] - 1)[:, None, None]
    A @ B -> A[..., 1:] @ B[..., 1:, :]; A[..., :-1] @ B[..., :-1, :]
    A.sum(*ARGS) -> A[..., :-1].sum(*ARGS); A[..., 1:].sum(*ARGS); A[:, :-1].sum(*ARGS); A[:, 1:].sum(*ARGS); A[:-1].sum(*ARGS); A[1:].sum(*ARGS)
    A.sum(*ARGS) -> A[..., :-1, :].sum(*ARGS); A[..., 1:, :].sum(*ARGS)
    A.mean(*ARGS) -> A[..., :-1].mean(*ARGS); A[..., 1:].mean(*ARGS); A[:-1].mean(*ARGS); A[1:].mean(*ARGS)
    A.max(*ARGS) -> A[..., :-1].max(*ARGS); A[..., 1:].max(*ARGS)
    A.argmax(*ARGS) -> A[..., :-1].argmax(*ARGS); A[..., 1:].argmax(*ARGS) + 1; A[..., 1:].argmax(*ARGS)

only one of all is added
    A @ B -> A[..., :1] @ B[..., :1, :]; A[..., -1:] @ B[..., -1:, :]
    VALUE -> VALUE * (np.arange(VALUE.shape[-1]) == 0); VALUE * (np.arange(VALUE.shape[-1]) == VALUE.shape[-1] - 1)
    VALUE -> VALUE * (np.arange(VALUE.shape[-2]) == 0)[:, None]; VALUE * (np.arange(VALUE.shape[-2]) == VALUE.shape[-2] - 1)[:, None]
    VALUE -> VALUE * (np.arange(VALUE.shape[1]) == VALUE.shape[1] - 1)[:, None, None]

one instead of all
    VALUE -> VALUE[:1]; VALUE[-1:]; VALUE[:, :1]; VALUE[:, -1:]; VALUE.ravel()[0]; VALUE.ravel()[-1]
    VALUE -> np.broadcast_to(VALUE[:1], VALUE.shape); np.broadcast_to(VALUE[-1:], VALUE.shape)
    VALUE -> np.broadcast_to(VALUE[:, :1], VALUE.shape); np.broadcast_to(VALUE[:, -1:], VALUE.shape)
    VALUE -> np.broadcast_to(VALUE[..., :1], VALUE.shape); np.broadcast_to(VALUE[..., -1:], VALUE.shape)
    VALUE -> np.broadcast_to(VALUE[..., :1, :], VALUE.shape); np.broadcast_to(VALUE[..., -1:, :], VALUE.shape)

all instead of each
    VALUE -> np.broadcast_to(VALUE.sum(axis=0), VALUE.shape); np.broadcast_to(VALUE.sum(axis=1, keepdims=True), VALUE.shape)
    VALUE -> VALUE.mean(axis=-1, keepdims=True); VALUE.mean(axis=-2, keepdims=True); VALUE.mean(axis=0, keepdims=True)
    VALUE -> VALUE.sum(axis=-1, keepdims=True); VALUE.sum(axis=-2, keepdims=True); VALUE.sum(axis=0, keepdims=True)
    VALUE -> VALUE.max(axis=-1, keepdims=True); VALUE.mean(); VALUE.sum(); VALUE.max()
    VALUE -> VALUE.mean(axis=1, keepdims=True); VALUE.sum(axis=1, keepdims=True)
    VALUE -> np.logical_and.accumulate(VALUE, axis=-1); np.logical_and.accumulate(VALUE, axis=-2)
    VALUE -> np.cumsum(VALUE).reshape(VALUE.shape); np.cumsum(VALUE, axis=-1); np.cumsum(VALUE, axis=-2); np.cumsum(VALUE, axis=0); np.cumsum(VALUE, axis=1)

a part that does not belong
    VALUE -> VALUE * 2; VALUE / 2; VALUE + 1; VALUE - 1; 1 - VALUE; VALUE ** 2; 1 / VALUE
    VALUE -> VALUE * SIZE; VALUE / SIZE; VALUE * np.sqrt(SIZE); VALUE / np.sqrt(SIZE)
    VALUE -> np.abs(VALUE); np.exp(VALUE); np.sqrt(VALUE); np.maximum(VALUE, 0); np.tanh(VALUE); np.round(VALUE)
    VALUE -> VALUE + ARRAY; VALUE - ARRAY; VALUE * ARRAY; VALUE - VALUE[0]
    VALUE -> 0 * VALUE; np.ones_like(VALUE); np.sign(VALUE)
    VALUE -> VALUE - VALUE.mean(axis=-1, keepdims=True); VALUE - VALUE.max(axis=-1, keepdims=True)
    VALUE -> VALUE - VALUE.sum(axis=-1, keepdims=True); VALUE / VALUE.std(axis=-1, keepdims=True)
    VALUE -> np.exp(VALUE) / np.exp(VALUE).sum(axis=-1, keepdims=True); VALUE + 0.1; VALUE + 1e-3
    VALUE -> VALUE / VALUE.sum(axis=-1, keepdims=True); VALUE / VALUE.sum(axis=-2, keepdims=True); VALUE / VALUE.sum()
    VALUE -> VALUE / np.sqrt((VALUE ** 2).sum(axis=-1, keepdims=True))
"""
