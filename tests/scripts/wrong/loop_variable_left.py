# other-token in line 22
import torch

inputs = torch.tensor(
    [
        [0.43, 0.15, 0.89],  # Your
        [0.55, 0.87, 0.66],  # journey
        [0.57, 0.85, 0.64],  # starts
        [0.22, 0.58, 0.33],  # with
        [0.77, 0.25, 0.10],  # one
        [0.05, 0.80, 0.55],  # step
    ]
)

attn_scores = inputs @ inputs.T
attn_weights = torch.softmax(attn_scores, dim=-1)
all_context_vecs = attn_weights @ inputs

for x_i in inputs:
    print(x_i)
x_1, x_2 = inputs[0], inputs[1]
attn_scores_2 = inputs @ x_i
attn_weights_2 = torch.softmax(attn_scores_2, dim=0)
context_vec_2 = attn_weights_2 @ inputs
