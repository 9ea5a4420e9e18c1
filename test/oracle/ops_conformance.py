#!/usr/bin/env python3
"""Compares the op table with PyTorch: ops_conformance.py HEDDLE

For each ATen op of `HEDDLE doc ops --json`, checks that the schema is PyTorch's (arguments that
PyTorch leaves undefined may be optional here). Runs the example on real tensors and compares the
element types and shapes with the shape rule."""
import json
import re
import subprocess
import sys

import torch
import torch._prims  # noqa: F401, registers the prims ops

DTYPES = {
    "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "c64": torch.complex64,
    "c128": torch.complex128, "i64": torch.int64, "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8,
    "u64": torch.uint64, "bool": torch.bool, "f8e4m3": torch.float8_e4m3fn, "f8e5m2": torch.float8_e5m2,
}
NAMES = {v: k for k, v in DTYPES.items()}
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TYPE = re.compile(r"(?:async |host )?(\w+)\[([\d,]*)\](?: (below|rising) (\d+)| (probability))?")


def make_tensor(match):
    dtype = DTYPES[match.group(1)]
    shape = [int(d) for d in match.group(2).split(",") if d]
    count = 1
    for d in shape:
        count *= d
    if match.group(3) == "below":
        return (torch.arange(count) * 7 % int(match.group(4))).reshape(shape).to(dtype)
    if match.group(3) == "rising":
        return ((torch.arange(count) + 1) * int(match.group(4)) // count).reshape(shape).to(dtype)
    if match.group(5):
        return torch.full(shape, 0.5).to(dtype)
    data = (torch.arange(count) % 13 + 1).reshape(shape)
    return (data % 2 == 0) if dtype == torch.bool else data.to(torch.float64).mul(0.125).to(dtype) if dtype.is_floating_point or dtype.is_complex else data.to(dtype)


class Reader:
    """Reads the arguments of an example."""

    def __init__(self, text):
        self.text, self.at = text, 0

    def skip(self):
        while self.at < len(self.text) and self.text[self.at] in " ,":
            self.at += 1

    def value(self):
        self.skip()
        match = TYPE.match(self.text, self.at)
        if match and match.group(1) in DTYPES:
            self.at = match.end()
            return make_tensor(match).to(DEVICE)
        if self.text[self.at] == "[":
            self.at += 1
            items = []
            while True:
                self.skip()
                if self.text[self.at] == "]":
                    self.at += 1
                    return items
                items.append(self.value())
        if self.text[self.at] == '"':
            end = self.text.index('"', self.at + 1)
            text = self.text[self.at + 1:end]
            self.at = end + 1
            return text
        word = re.compile(r"[-\w.+]+").match(self.text, self.at)
        self.at = word.end()
        word = word.group(0)
        if word in ("true", "false"):
            return word == "true"
        if word == "none":
            return None
        if word in DTYPES:
            return DTYPES[word]
        if word == "contiguous":
            return torch.contiguous_format
        return float(word) if re.search(r"[.einf]", word) else int(word)

    def arguments(self):
        self.at = 1
        positional, named = [], {}
        while True:
            self.skip()
            if self.text[self.at] == ")":
                return positional, named
            name = re.compile(r"(\w+)=").match(self.text, self.at)
            if name:
                self.at = name.end()
                named[name.group(1)] = self.value()
            else:
                positional.append(self.value())


def schema_of(name):
    space, base, *overload = name.split(".")
    for schema in torch._C._jit_get_schemas_for_operator(f"{space}::{base}"):
        if schema.overload_name == (overload[0] if overload else ""):
            return schema
    return None


def normalized(text):
    text = re.sub(r"SymInt", "int", text)
    text = re.sub(r"Tensor\(a( -> \*)?\)", "Tensor", text)
    text = re.sub(r"int\[\d\]", "int[]", text)
    text = re.sub(r"dtype=4\b", "dtype=i64", text)
    text = re.sub(r"(\d)\.(?!\d)", r"\1.0", text)
    return text.replace("Tensor? ", "Tensor ")


def run(op):
    schema = schema_of(op["name"])
    positional, named = Reader(op["example"]).arguments()
    args, kwargs = [], {}
    rest = list(positional)
    optional = set(re.findall(r"Tensor\? (\w+)", op["schema"]))
    for arg in schema.arguments:
        if arg.name in named:
            value = named[arg.name]
        elif arg.name not in optional and str(arg.type) in ("Tensor", "List[Tensor]", "List[Optional[Tensor]]") and rest:
            value = rest.pop(0)
        elif arg.has_default_value():
            continue
        elif str(arg.type) == "Tensor":
            raise NotImplementedError("Python cannot pass an undefined tensor")
        else:
            value = None
        if arg.kwarg_only:
            kwargs[arg.name] = value
        else:
            # Positional arguments need all defaults before them.
            for missing in schema.arguments[len(args):]:
                if missing.name == arg.name:
                    break
                args.append(missing.default_value)
            args.append(value)
    space, base, *overload = op["name"].split(".")
    packet = getattr(getattr(torch.ops, space), base)
    if any(arg.name == "device" for arg in schema.arguments):
        kwargs["device"] = DEVICE
    results = getattr(packet, overload[0] if overload else "default")(*args, **kwargs)
    flat = []
    for result in results if isinstance(results, (tuple, list)) else [results]:
        for item in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(item, torch.Tensor):
                flat.append(f"{NAMES[item.dtype]}[{','.join(str(d) for d in item.shape)}]")
            elif item is None:
                flat.append("none")
    return ", ".join(flat)


def main():
    ops = json.loads(subprocess.check_output([sys.argv[1], "doc", "ops", "--json"]))
    checked, skipped, problems = 0, [], []
    torch.manual_seed(0)
    for op in ops:
        if not op["name"].startswith(("aten.", "prims.")):
            continue
        schema = schema_of(op["name"])
        if schema is None:
            problems.append(f"{op['name']}: PyTorch has no such op")
            continue
        if normalized(str(schema)) != normalized(op["schema"]):
            problems.append(f"{op['name']}: schemas differ\n  PyTorch {schema}\n  here    {op['schema']}")
        try:
            got = run(op)
        except NotImplementedError:
            # No kernel for this device; checked on the device that has one.
            skipped.append(op["name"])
            continue
        except Exception as error:  # noqa: BLE001, whatever PyTorch raises is a finding
            problems.append(f"{op['name']}{op['example']}: {str(error).splitlines()[0]}")
            continue
        if got != op["results"]:
            problems.append(f"{op['name']}{op['example']}: PyTorch gives {got}, the shape rule {op['results']}")
        checked += 1
    print("\n".join(problems))
    if skipped:
        print(f"skipped: {', '.join(skipped)}: no kernel on {DEVICE}")
    print(f"torch {torch.__version__}: {checked} passed, {len(problems)} failed, {len(skipped)} skipped")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
