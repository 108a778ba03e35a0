# scale-other-constant in line 23
import torch
sentence = "life is short eat dessert first"
dc = {s: i for i, s in enumerate(sorted(sentence.split()))}
sentence_int = torch.tensor([dc[s] for s in sentence.split()])
torch.manual_seed(123)
embed = torch.nn.Embedding(50, 3)
embedded_sentence = embed(sentence_int).detach()
d = embedded_sentence.shape[1]
d_q, d_k, d_v = 2, 2, 4
W_query = torch.nn.Parameter(torch.rand(d_q, d))
W_key = torch.nn.Parameter(torch.rand(d_k, d))
W_value = torch.nn.Parameter(torch.rand(d_v, d))
x_2 = embedded_sentence[1]
query_2 = W_query.matmul(x_2)
key_2 = W_key.matmul(x_2)
value_2 = W_value.matmul(x_2)
keys = W_key.matmul(embedded_sentence.T).T
values = W_value.matmul(embedded_sentence.T).T
omega_24 = query_2.dot(keys[4])
omega_2 = query_2.matmul(keys.T)
import torch.nn.functional as F
attention_weights_2 = F.softmax(omega_2 / d_k, dim=0)
context_vector_2 = attention_weights_2.matmul(values)
