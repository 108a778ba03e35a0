import torch, torch.nn as nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.drop = nn.Dropout(0.2)
    def forward(self, x):
        w = torch.softmax(self.q(x) @ self.k(x).transpose(-2, -1) / 2, dim=-1)
        return self.drop(w) @ self.v(x)
model = Model()
x = torch.randn(2, 5, 4)
opt = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    loss = (model(x) ** 2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
print(x[0] @ x[0].T)
