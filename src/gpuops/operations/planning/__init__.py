"""What a search for layouts starts from, and what the store adds to it: the cluster as it is, and its failures."""
