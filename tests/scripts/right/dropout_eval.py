import torch

inputs = torch.tensor(
    [[0.43, 0.15, 0.89], [0.55, 0.87, 0.66], [0.57, 0.85, 0.64], [0.22, 0.58, 0.33], [0.77, 0.25, 0.10], [0.05, 0.80, 0.55]]
)
torch.manual_seed(123)
d_in, d_out = 3, 2
W_query = torch.rand(d_in, d_out)
W_key = torch.rand(d_in, d_out)
W_value = torch.rand(d_in, d_out)

queries = inputs @ W_query
keys = inputs @ W_key
values = inputs @ W_value
attn_scores = queries @ keys.T
mask = torch.triu(torch.ones(6, 6), diagonal=1)
masked = attn_scores.masked_fill(mask.bool(), -torch.inf)
attn_weights = torch.softmax(masked / keys.shape[-1] ** 0.5, dim=-1)
dropout = torch.nn.Dropout(0.5)
dropout.eval()
attn_weights = dropout(attn_weights)
context = attn_weights @ values
