"""Training benchmark on a node with torch: trains a GPT for some steps in one of three modes and reports the time.

Python 3.6 grammar, standard library and torch. It arrives on stdin of ``python3 -`` and writes no files. Arguments: the
mode (``dp``: one process with DataParallel; ``ddp``: one process per GPU; ``ddp-no-p2p``: the same, but the data goes
over PCIe and host memory), steps, batch size per GPU, layers, width, words per sequence, and the number of processes if
there is no GPU (then gloo reduces, which only proves that it works). It prints one line of JSON.
"""
import json
import os
import sys
import time

ROW, (STEPS, BATCH, LAYERS, WIDTH, WORDS, PROCESSES) = sys.argv[1], map(int, sys.argv[2:8])
VOCABULARY = 50257      # GPT-2's
WARM_UP = 5


def say(**what) -> None:
    print(json.dumps(what), flush=True)


def count_gpus() -> int:
    """Count the GPUs in a child process, because a process that has used CUDA cannot fork; -1 without torch."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            import torch
            os.write(write, b"%d" % torch.cuda.device_count())
        except ImportError:
            pass        # no output means no torch
        finally:
            os._exit(0)
    os.close(write)
    output = os.read(read, 16)
    os.waitpid(pid, 0)
    return int(output or -1)


def gpt(torch):
    """Return a model with GPT-2's shape: pre-norm, GELU, tied embeddings; 124 million weights with 12 layers of 768."""
    nn = torch.nn

    class Gpt(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(VOCABULARY, WIDTH)
            self.places = nn.Embedding(WORDS, WIDTH)
            heads = max(1, WIDTH // 64)
            block = nn.TransformerEncoderLayer(
                WIDTH, heads, 4 * WIDTH, activation="gelu", batch_first=True, norm_first=True
            )
            self.blocks = nn.TransformerEncoder(block, LAYERS, norm=nn.LayerNorm(WIDTH), enable_nested_tensor=False)
            nn.init.normal_(self.words.weight, std=0.02)

        def forward(self, text):
            length = text.shape[1] - 1
            mask = nn.Transformer.generate_square_subsequent_mask(length, device=text.device)
            places = torch.arange(length, device=text.device)
            hidden = self.blocks(self.words(text[:, :-1]) + self.places(places), mask=mask, is_causal=True)
            logits = hidden @ self.words.weight.t()
            return nn.functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten()).reshape(1)

    return Gpt()


def train(rank, world, gpus, init_method) -> None:
    """Join the other processes and train; the first rank reports the result."""
    import torch
    from torch import distributed

    device = torch.device("cuda", rank) if gpus else torch.device("cpu")
    if gpus:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    torch.manual_seed(7)
    model = gpt(torch).to(device)
    if ROW == "dp":
        model = torch.nn.DataParallel(model)
    else:
        distributed.init_process_group(
            "nccl" if gpus else "gloo", init_method=init_method, rank=rank, world_size=world
        )
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank] if gpus else None)
    torch.manual_seed(rank)     # each rank trains on its own text
    batch = BATCH * (gpus if ROW == "dp" else 1)
    seconds, loss = run(torch, model, batch, device)
    alike = ROW == "dp" or same_everywhere(torch, distributed, model, device)
    if rank == 0:
        samples = STEPS * BATCH * (gpus or world)
        weights = sum(weight.numel() for weight in model.parameters())
        say(row=ROW, seconds=seconds, samples_per_second=samples / seconds, gpus=gpus, processes=world, loss=loss,
            weights=weights, alike=alike, torch=torch.__version__)
    if ROW != "dp":
        distributed.destroy_process_group()


def run(torch, model, batch, device):
    """Return the seconds of the steps after a warm-up, and the last loss."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    began = loss = 0.0
    for step in range(-min(WARM_UP, STEPS), STEPS):
        if step == 0:
            if device.type == "cuda":
                torch.cuda.synchronize()
            began = time.monotonic()
        text = torch.randint(VOCABULARY, (batch, WORDS + 1), device=device)
        loss = model(text).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return (loss.item(), time.monotonic() - began)[::-1]      # item() waits for the last step


def same_everywhere(torch, distributed, model, device) -> bool:
    """Return True if all ranks have the same weights; otherwise the gradients were not reduced."""
    own = torch.stack([weight.detach().double().sum() for weight in model.parameters()]).to(device)
    low, high = own.clone(), own.clone()
    distributed.all_reduce(low, op=distributed.ReduceOp.MIN)
    distributed.all_reduce(high, op=distributed.ReduceOp.MAX)
    return bool((low == high).all())


def child(rank, world, gpus, init_method) -> int:
    """Fork one process; it exits with 0, or reports its error and exits with 1."""
    pid = os.fork()
    if pid:
        return pid
    code = 0
    try:
        train(rank, world, gpus, init_method)
    except (AttributeError, ImportError, OSError, RuntimeError, TypeError, ValueError) as error:
        # torch raises RuntimeError; a broken or old torch raises the others
        say(row=ROW, error="rank %d: %s: %s" % (rank, type(error).__name__, " ".join(str(error).split())[:300]))
        code = 1
    sys.stdout.flush()
    os._exit(code)


def main() -> None:
    """Start the processes, and kill them all as soon as one fails."""
    sys.path[:] = [place for place in sys.path if place]      # never import torch.py from the current directory
    gpus = count_gpus()
    if gpus < 0:
        return say(row=ROW, error="this Python has no torch: " + sys.executable)
    if ROW == "dp" and not gpus:
        return say(row=ROW, error="DataParallel needs GPUs")
    if ROW == "ddp-no-p2p":
        os.environ["NCCL_P2P_DISABLE"] = "1"
    # an anonymous file, so that none is left behind even after SIGKILL
    init_method = "file:///proc/%d/fd/%d" % (os.getpid(), os.memfd_create("gpuops"))
    world = 1 if ROW == "dp" else gpus or PROCESSES
    children = {child(rank, world, gpus, init_method) for rank in range(world)}
    try:
        while children:
            pid, status = os.wait()
            children.discard(pid)
            if status:
                break
    finally:
        for pid in children:
            os.kill(pid, 9)


main()
