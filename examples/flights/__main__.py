"""A guided tour of the flights workflow."""


def main() -> None:
    """Feed some batches through the workflow and show what each step did."""
    raise NotImplementedError


if __name__ == "__main__":
    main()
