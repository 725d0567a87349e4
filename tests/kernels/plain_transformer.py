"""The transformer again, to compare with: one sequence, one head at a time, positions as complex numbers, float64.

Written from the papers, without anything of `roofline_kernels`, and as slowly as it reads.
"""

import torch


def plain_logits(weights, tokens, *, layers, heads, theta=10_000.0, eps=1e-5):
    """Logits [B, S, vocab], float64, of a model's state by name and of tokens [B, S]."""
    return torch.stack(
        [_one_sequence(weights, sequence, layers, heads, theta, eps) for sequence in tokens]
    )


def plain_loss(logits, targets):
    """The mean of minus the logarithm of what each target's probability is."""
    probabilities = logits.exp() / logits.exp().sum(dim=-1, keepdim=True)
    chosen = [
        probabilities[b, s, targets[b, s]]
        for b in range(targets.shape[0])
        for s in range(targets.shape[1])
    ]
    return -torch.stack(chosen).log().mean()


def plain_results(state, tokens, targets, **shape):
    """Logits, loss and the gradient of every parameter, by name, of a state of any type, worked out in float64."""
    weights = {
        name: value.detach().double().clone().requires_grad_() for name, value in state.items()
    }
    logits = plain_logits(weights, tokens, **shape)
    loss = plain_loss(logits, targets)
    gradients = torch.autograd.grad(loss, list(weights.values()))
    return {"logits": logits.detach(), "loss": loss.detach()} | dict(
        zip(weights, gradients, strict=True)
    )


def _one_sequence(weights, tokens, layers, heads, theta, eps):
    stream = weights["embedding.weight"][tokens]
    for layer in range(layers):
        own = {
            name.removeprefix(f"blocks.{layer}."): weight
            for name, weight in weights.items()
            if name.startswith(f"blocks.{layer}.")
        }
        stream = stream + _attention(
            own, _normed(stream, own["attention_norm.weight"], eps), heads, theta
        )
        stream = stream + _feed_forward(own, _normed(stream, own["feed_forward_norm.weight"], eps))
    return _normed(stream, weights["norm.weight"], eps) @ weights["embedding.weight"].T


def _normed(stream, gain, eps):
    return torch.stack([row / (row.dot(row) / len(row) + eps) ** 0.5 * gain for row in stream])


def _feed_forward(own, x):
    gate = x @ own["feed_forward.gate.weight"].T
    return (gate / (1 + (-gate).exp()) * (x @ own["feed_forward.up.weight"].T)) @ own[
        "feed_forward.down.weight"
    ].T


def _attention(own, x, heads, theta):
    width = x.shape[1] // heads
    outputs = []
    for head in range(heads):
        rows = slice(head * width, (head + 1) * width)
        q, k, v = (
            x @ own[f"attention.{name}.weight"][rows].T for name in ("query", "key", "value")
        )
        outputs.append(_one_head(_turned(q, theta), _turned(k, theta), v))
    return torch.cat(outputs, dim=1) @ own["attention.output.weight"].T


def _turned(rows, theta):
    """Every two neighbours of [S, D] are a complex number; number i of row p is multiplied by e^(j·p·theta^(-2i/D))."""
    numbers = torch.complex(rows[:, 0::2], rows[:, 1::2])
    speeds = torch.tensor(
        [theta ** (-2 * i / rows.shape[1]) for i in range(rows.shape[1] // 2)], dtype=torch.float64
    )
    angles = torch.arange(len(rows), dtype=torch.float64)[:, None] * speeds[None, :]
    return torch.view_as_real(numbers * torch.polar(torch.ones_like(angles), angles)).reshape(
        rows.shape
    )


def _one_head(q, k, v):
    outputs = []
    for position, query in enumerate(q):
        # A query sees itself and what came before.
        odds = (k[: position + 1] @ query / q.shape[1] ** 0.5).exp()
        outputs.append(odds @ v[: position + 1] / odds.sum())
    return torch.stack(outputs)
