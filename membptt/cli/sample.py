"""``membptt sample``: text as a saved model would write it."""

import json

from membptt.cli.values import real, whole
from membptt.training.sampling import load_model, sample


def add_arguments(subparsers):
    """Add the command and its options."""
    parser = subparsers.add_parser(
        "sample",
        help="write text as a saved model would",
        description="Write text as a model that `membptt train` saved would, the same for the same "
        "seed.",
    )
    parser.add_argument(
        "--resume", metavar="FILE", required=True, help="what --save or --save-best wrote"
    )
    parser.add_argument(
        "--length", type=whole, default=500, metavar="N", help="characters (default: 500)"
    )
    parser.add_argument(
        "--temperature",
        type=real,
        default=1.0,
        metavar="X",
        help="below 1 more of what is likely, above 1 less; 0 for the most likely character every "
        "time (default: 1)",
    )
    parser.add_argument(
        "--prime",
        default="",
        metavar="TEXT",
        help="text to go on from, which is written first (default: none)",
    )
    parser.add_argument("--seed", type=whole, default=0, metavar="N", help="of chance (default: 0)")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")


def run(args, out):
    """Write the text to `out` as it comes, and the JSON object to standard output.

    Returns
    -------
    int
        The exit code.
    """
    cell, head, alphabet = load_model(args.resume)
    if strange := set(args.prime).difference(alphabet):
        raise ValueError(
            f"prime has {min(strange)!r}, which is not one of the {len(alphabet)} characters that "
            "the model knows; leave it out"
        )
    prime = [alphabet.index(character) for character in args.prime]
    text = []
    for token in sample(cell, head, args.length, args.temperature, prime, args.seed):
        if not text:  # all arguments were right
            print(args.prime, end="", file=out)
        text.append(alphabet[token])
        print(text[-1], end="", file=out)
    print(file=out)
    if args.json:
        out.flush()
        report = {
            "prime": args.prime,
            "text": "".join(text),
            "temperature": args.temperature,
            "seed": args.seed,
        }
        print(json.dumps(report))
    return 0
