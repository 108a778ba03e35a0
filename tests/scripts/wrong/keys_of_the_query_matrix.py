# projection-reused in line 13
import torch
torch.manual_seed(123)
inputs = torch.rand(5, 4)
Wq = torch.nn.Parameter(torch.rand(4, 3), requires_grad=False)
Wk = torch.nn.Parameter(torch.rand(4, 3), requires_grad=False)
Wv = torch.nn.Parameter(torch.rand(4, 3), requires_grad=False)
rows = []
for i, x_i in enumerate(inputs):
    q_i = x_i @ Wq
    s_i = torch.empty(5)
    for j, x_j in enumerate(inputs):
        s_i[j] = torch.dot(q_i, x_j @ Wq) / 3 ** 0.5
    a_i = torch.softmax(s_i, dim=0)
    c_i = torch.zeros(3)
    for j, x_j in enumerate(inputs):
        c_i += a_i[j] * (x_j @ Wv)
    rows.append(c_i)
contexts = torch.stack(rows)
