"""Local graphs in the shape of a training step: per layer a gather of its weight, products, and
a reduction of the gradient."""

HEAD = "heddle 1 local\nmesh [dp=16, tp=4]\n"


def layered_graph(layers, prefetch=True, unit="layers.{}", label="layers.{}.w"):
    """About 14 nodes per layer. With `prefetch`, a weight is gathered while the previous layer
    computes."""
    params = [f'%w{i}: f32[64,1024] param {i} "{label.format(i)}" unit "{unit.format(i)}" of f32[1024{{dp}},1024]' for i in range(layers)]
    outputs = [f"grad {i} %g{i}" for i in range(layers)]
    fwd, bwd = [], []

    def gather(i):
        name = unit.format(i)
        return [f"%c{i} = aten._to_copy(%w{i}, dtype=bf16) : bf16[64,1024] @layers.{i}",
                f'%u{i}! = comm.all_gather(%c{i}, over=[dp], why=unshard, unit="{name}") : async bf16[1024,1024] @layers.{i} stream=1']

    last = "%x"
    if prefetch and layers:
        fwd += gather(0)
    for i in range(layers):
        fwd += gather(i + 1) if prefetch and i + 1 < layers else [] if prefetch else gather(i)
        fwd += [f"%u{i} = comm.wait(%u{i}!) : bf16[1024,1024] @layers.{i}",
                f"%m{i} = aten.mm({last}, %u{i}) : bf16[8192,1024] @layers.{i}.proj",
                f"%r{i}! = comm.all_reduce(%m{i}, over=[tp], why=tensor) : async bf16[8192,1024] @layers.{i}.proj",
                f"%r{i} = comm.wait(%r{i}!) : bf16[8192,1024] @layers.{i}.proj",
                f"%s{i} = aten.silu(%r{i}) : bf16[8192,1024] @layers.{i}.act",
                f"%h{i} = aten.mul.Tensor(%s{i}, {last}) : bf16[8192,1024] @layers.{i}.act"]
        last = f"%h{i}"
    for i in reversed(range(layers)):
        bwd += [f"%t{i} = aten.t({last}) : bf16[1024,8192] @layers.{i}.proj",
                f"%d{i} = aten.mm(%t{i}, %s{i}) : bf16[1024,1024] @layers.{i}.proj",
                f"%f{i} = aten._to_copy(%d{i}, dtype=f32) : f32[1024,1024] @layers.{i}",
                f'%g{i}! = comm.reduce_scatter(%f{i}, over=[dp], why=grad, unit="{unit.format(i)}") : async f32[64,1024] @layers.{i} stream=2']
        if not prefetch:
            bwd.append(f"%g{i} = comm.wait(%g{i}!) : f32[64,1024] @layers.{i}")
    if prefetch:
        bwd += [f"%g{i} = comm.wait(%g{i}!) : f32[64,1024] @layers.{i}" for i in reversed(range(layers))]
    inputs = ", ".join(["%x: bf16[8192,1024] batch"] + params)
    body = "\n".join([" fwd:"] + ["  " + line for line in fwd] + [" bwd:"] + ["  " + line for line in bwd])
    return f"{HEAD}graph @step({inputs}) -> ({', '.join(outputs)}) {{\n{body}\n}}\n"
