import torch

tokens = torch.rand(4, 6)
Wq, Wk, Wv = torch.rand(6, 5), torch.rand(6, 5), torch.rand(6, 5)
queries, keys, values = tokens @ Wq, tokens @ Wk, tokens @ Wv
# keys on the rows, queries on the columns: softmax runs down
scores = keys @ queries.T / 5**0.5
weights = torch.softmax(scores, dim=0)
context = weights.T @ values
