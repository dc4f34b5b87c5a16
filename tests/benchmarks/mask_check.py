"""The mask check over the tests' families of transformers, random and tiny, in two number types, as a Markdown table.

    python -m tests.benchmarks.mask_check     about five minutes

A line for every alarm, with what was found; then how many obey.
"""

import torch
import transformers as hf

from mask_check.check import check
from mask_check.findings import CannotCheck
from tests.mask_check.test_families import DECODING, MORE, made
from tests.model.huggingface import families, more_families
from tests.model.huggingface.test_families import network_class

NETWORKS = {name: lambda name=name, config=config: families.random_network(name, config)
            for name, config in (families.ALL | families.REFUSED).items()}  # fmt: skip
NETWORKS |= {
    f"{name} as a decoder" if name in families.ALL else name: lambda config=config: made(
        hf.AutoModelForCausalLM, config
    )
    for name, config in (DECODING | MORE).items()
}
NETWORKS |= {
    name: lambda name=name, config=config: made(network_class(name), config)
    for name, config in more_families.ALL.items()
}


def main() -> None:
    print("| model type | number type | check | found |\n|---|---|---|---|")
    counts = {"obeys": 0, "cannot tell": 0, "broken": 0, "refused": 0}
    for name, make in NETWORKS.items():
        for number_type in (torch.float32, torch.bfloat16):
            words = str(number_type).removeprefix("torch.")
            try:
                report = check(make().to(number_type))
            except (CannotCheck, RuntimeError) as error:
                counts["refused"] += 1
                print(f"| {name} | {words} | refused | {str(error)[:150]} |", flush=True)
                continue
            counts[("obeys", "broken", "cannot tell")[report.exit_code]] += 1
            for finding in report.broken:
                print(f"| {name} | {words} | {finding.law} | {finding.words} |", flush=True)
    print("\n" + ", ".join(f"{count} {verdict}" for verdict, count in counts.items()))


if __name__ == "__main__":
    main()
