import torch
torch.manual_seed(0)
sentence = torch.randn(6, 16)
d_k, d_v = 24, 28
U_query = torch.randn(d_k, 16) / 4
U_key = torch.randn(d_k, 16) / 4
U_value = torch.randn(d_v, 16) / 4
x_2 = sentence[1]
query_2 = U_query.matmul(x_2)
keys = U_key.matmul(sentence.T).T
values = U_value.matmul(sentence.T).T
omega_2 = query_2.matmul(keys.T)
import torch.nn.functional as F
attention_weights_2 = F.softmax(omega_2 / d_k**0.5, dim=0)
context_vector_2 = attention_weights_2.matmul(values)
