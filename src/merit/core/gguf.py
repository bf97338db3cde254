"""GGUF → a folder in the Hugging Face format. GGUF is how small models are packed; training wants plain numbers."""

from __future__ import annotations

from pathlib import Path


def unpack(file: Path, out: Path) -> dict[str, int]:
    """Write config, weights and tokenizer of a GGUF file into `out`; returns what there is to tell about them.

    Weights of four bits come out as the numbers they stand for, in fp32: bf16 is 300 times slower on a CPU without
    instructions for it.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    words = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name, local_files_only=True)
    plain = GgufConfig(dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, local_files_only=True, dtype=torch.float32, quantization_config=plain
    )
    model.save_pretrained(out)
    words.save_pretrained(out)
    return {"parameters": model.num_parameters(), "vocabulary": len(words)}
