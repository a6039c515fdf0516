"""``python -m falconcal``, for torchrun and for whoever has no command on the path."""

from falconcal.cli import main

if __name__ == "__main__":
    main()
