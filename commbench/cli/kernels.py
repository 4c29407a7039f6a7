"""commbench kernels attention: attention kernels checked, timed and counted, one beside the other."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        "Every kernel is checked against attention as defined before it is timed. TFLOPs/s are counted as\n"
        "flash-attention does: the mask's work is left out, backward is 2.5 times forward. MFU and HFU stand beside\n"
        "their peak; a GPU that is not in the table has none, unless --peak gives one.\n"
        "examples:\n"
        "  commbench kernels attention --seqlen 512..16384 --dim 64,128 --causal\n"
        "  commbench kernels attention --seqlen 4096 --dim 192/128 --gqa 8 --window 1024 --dtype bf16\n"
        "  commbench kernels attention --backend sdpa-flash,tiled --seqlen 4096 --peak 0.15"
    )
    add = parser.add_argument
    add("kernel", help="attention")
    add("--seqlen", help="tokens of a sequence: 4096, 1024,2048 or 512..16384, which doubles")
    add("--seqlen-k", type=int, metavar="N", help="keys, where they are not as many as the queries")
    add("--dim", default="64,128", help="head dims, such as 64,128 or 192/128 (queries and keys / values)")
    add("--causal", action="store_true", help="a query sees the keys up to its own (default: all)")
    add("--window", type=int, metavar="N", help="a query sees N keys before its own (and after it without --causal)")
    add("--documents", type=int, default=1, metavar="N", help="each sequence is N packed documents of equal length")
    add("--gqa", type=int, default=1, metavar="N", help="query heads that share a head of keys and values")
    add("--hidden", type=int, help="heads times head dim (default: about 2048, on a CPU 256)")
    add("--tokens", type=int, help="tokens of a batch, at least one sequence (default: 16384, on a CPU 4096)")
    add("--dtype", help="float32, fp16 or bf16 (default: bf16, on a CPU float32)")
    add("--backend", help="backends, comma-separated (default: all)")
    add("--device", choices=("cpu", "cuda"), help="(default: cuda where there is one)")
    add("--peak", type=float, metavar="TFLOPS", help="the device's peak, in place of the table's")
    add("--budget", type=float, default=1.0, metavar="S", help="seconds of samples a row (default: %(default)s)")
    add("--out", help="folder of the run (default: runs/kernels-DATE-TIME)")
    add("--no-report", action="store_true", help="do not write report.html at the end")


def main(args) -> int:
    from commbench.cli.kernels_run import measure
    from commbench.cli.kernels_view import View
    from commbench.errors import UsageError

    if args.kernel != "attention":
        raise UsageError(f"there is no kernel {args.kernel!r} to time; there is attention")
    device = _device(args.device)
    return measure(args, cases(args, device), backends(args.backend), device, View())


def _device(wanted: str | None) -> str:
    import torch

    from commbench.errors import UsageError

    if wanted == "cuda" and not torch.cuda.is_available():
        raise UsageError(
            "--device cuda: torch sees no GPU here (`commbench doctor` says what it sees); use --device cpu"
        )
    return wanted or ("cuda" if torch.cuda.is_available() else "cpu")


def backends(text: str | None) -> list:
    """The rows of the table of backends that `text` names; all of them where it is None."""
    from commbench.errors import UsageError
    from commbench.kernels.backends import BACKENDS

    names = [word.strip() for word in text.split(",")] if text is not None else list(BACKENDS)
    for name in names:
        if name not in BACKENDS:
            raise UsageError(f"--backend {name}: there is no such backend; there are {', '.join(BACKENDS)}")
    return [BACKENDS[name] for name in dict.fromkeys(names)]


def cases(args, device: str) -> list:
    """What the flags ask for, by head dim, then length. Raises UsageError for sizes that do not fit together."""
    from commbench.cli.numbers import numbers
    from commbench.errors import UsageError
    from commbench.kernels.flops import ITEMSIZE, Attention
    from commbench.world.dtypes import ALIASES

    small = device == "cpu"
    hidden = args.hidden if args.hidden is not None else 256 if small else 2048
    tokens = args.tokens if args.tokens is not None else 4096 if small else 16384
    dtype = (args.dtype or ("float32" if small else "bfloat16")).lower()
    dtype = ALIASES.get(dtype, dtype)
    if dtype not in ITEMSIZE:
        raise UsageError(f"--dtype {args.dtype}: attention is timed in {', '.join(ITEMSIZE)}")
    if not 0 < args.budget < 1e6:
        raise UsageError(f"--budget {args.budget:g}: write seconds above 0, a million at most")
    for flag, value in dict(hidden=hidden, tokens=tokens, gqa=args.gqa, documents=args.documents).items():
        if value < 1:
            raise UsageError(f"--{flag} {value}: write a number from 1 up")
    made = []
    for dim, dim_v in _dims(args.dim):
        heads = hidden // dim if args.hidden is not None else max(1, round(hidden / dim / args.gqa)) * args.gqa
        if args.hidden is not None and (heads < 1 or hidden % dim or heads % args.gqa):
            raise UsageError(
                f"--hidden {hidden} with head dim {dim} is {hidden / dim:g} heads, which --gqa {args.gqa} must divide; "
                f"choose --hidden {dim * args.gqa * max(1, round(heads / args.gqa))}"
            )
        for seqlen in numbers("--seqlen", args.seqlen or ("512..2048" if small else "512..16384")):
            sk = args.seqlen_k if args.seqlen_k is not None else seqlen
            batch = max(1, tokens // seqlen)
            mask = _mask(args, seqlen, sk)
            made.append(Attention(batch, heads, heads // args.gqa, seqlen, sk, dim, dim_v, dtype, mask))
    return made


def _mask(args, seqlen: int, sk: int):
    from commbench.errors import UsageError
    from commbench.kernels.masks import Mask

    if args.documents > seqlen:
        raise UsageError(f"--documents {args.documents} of a sequence of {seqlen} tokens would be empty")
    each, more = divmod(seqlen, args.documents)
    documents = tuple(each + (i < more) for i in range(args.documents)) if args.documents > 1 else ()
    right = 0 if args.causal else args.window
    return Mask(args.window, right, documents)


def _dims(text: str) -> list[tuple[int, int]]:
    from commbench.errors import UsageError

    found = []
    for word in text.split(","):
        parts = word.strip().split("/")
        if not (
            1 <= len(parts) <= 2 and all(part.isascii() and part.isdigit() and 0 < int(part) <= 4096 for part in parts)
        ):
            raise UsageError(f"--dim {text}: write head dims such as 64,128, or 192/128 where values have another")
        found.append((int(parts[0]), int(parts[-1])))
    return list(dict.fromkeys(found))
