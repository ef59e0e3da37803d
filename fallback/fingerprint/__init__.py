"""Fingerprints: fixed texts by which an endpoint shows that its weights are what they were."""
