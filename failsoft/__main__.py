"""``python -m failsoft`` is the ``failsoft`` command."""

from failsoft.cli.main import main

if __name__ == "__main__":
    main()
