"""The client that apps call, and its ladder: retries, a smaller pinned model, a cached reply."""
