"""Key/value caches: how they are recognised, made, handed from call to call, and found in what came back."""
