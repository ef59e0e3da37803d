"""Where models come from, how they are kept, versioned, converted and loaded.

A *model* is stored files, known by the digest of their bytes. A *version* is a
model and all else that shapes its answers. Importing this package, the store or
a version loads no torch; ``load`` and ``convert_child`` do.
"""
