"""nvidia-smi: the entries it tells of a GPU, and the forms in which it prints them."""
