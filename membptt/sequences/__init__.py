"""What a run reads: inputs and targets as arrays or in blocks, and how long each row is."""
