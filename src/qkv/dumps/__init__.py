"""Dumps: tensors that another program wrote while it ran an attention. One input alone, and it can't be asked again."""
