# other-token in line 7
import torch
inputs = torch.rand(5, 3)
W_query, W_key, W_value = torch.rand(3, 2), torch.rand(3, 2), torch.rand(3, 2)
x_2 = inputs[1]
x_3 = inputs[2]
query_2 = x_3 @ W_query
keys = inputs @ W_key
values = inputs @ W_value
attn_scores_2 = query_2 @ keys.T
attn_weights_2 = torch.softmax(attn_scores_2 / 2**0.5, dim=-1)
context_vec_2 = attn_weights_2 @ values
