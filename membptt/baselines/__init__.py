"""What people do without exact gradients at any length: to compare with, not to train with."""
