"""nvidia-smi: the entries that it reports for a GPU, and the formats in which it prints them."""
