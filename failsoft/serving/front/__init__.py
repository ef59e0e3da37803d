"""The front: the ladder over HTTP, for any OpenAI client in any language."""
