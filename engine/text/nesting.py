"""How deep a JSON value is nested, found without recursion."""


def depth_of(value: object) -> int:
    """Return how many levels *value* has below its first."""
    depth, level = 0, [value]
    while level := [
        child
        for node in level
        if isinstance(node, dict | list)
        for child in (node.values() if isinstance(node, dict) else node)
    ]:
        depth += 1
    return depth
