"""What a search for layouts starts from: the cluster as it is, its failures, and what measured runs say."""
