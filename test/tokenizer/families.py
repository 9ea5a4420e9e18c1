"""Small tokenizers in the configurations of known families, trained with the `tokenizers` package.

The settings are those of the families' tokenizer.json files. Vocabularies are trained on TEXTS.
"""
import json

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
          r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|"
          r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + CONTRACTIONS + "?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + CONTRACTIONS + "?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"""
            r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""").replace("||", "|")
# Several thousand merges, next to the characters of all scripts.
SIZE = 6000


def trained(tokenizer, texts, special=(), alphabet=()):
    trainer = trainers.BpeTrainer(vocab_size=SIZE, special_tokens=list(special), initial_alphabet=list(alphabet), show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def byte_level(texts, split, special, normalizer=None, decoder=None, **model):
    """BPE over bytes, after the `split` steps."""
    tokenizer = Tokenizer(models.BPE(**model))
    if normalizer:
        tokenizer.normalizer = normalizer
    steps = [*split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    return trained(tokenizer, texts, special, pre_tokenizers.ByteLevel.alphabet())


def split(pattern, behavior="isolated"):
    return pre_tokenizers.Split(Regex(pattern), behavior)


def begins_with(tokenizer, token):
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(f"{token} $A", f"{token} $A {token} $B", [(token, tokenizer.token_to_id(token))])])
    return tokenizer


def gpt2(texts):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return trained(tokenizer, texts, ["<|endoftext|>"], pre_tokenizers.ByteLevel.alphabet())


def prefix_space(texts):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trained(tokenizer, texts, ["<s>", "</s>"], pre_tokenizers.ByteLevel.alphabet())
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    return tokenizer


def llama3(texts):
    tokenizer = byte_level(texts, [split(LLAMA3)], ["<|begin_of_text|>", "<|end_of_text|>"], ignore_merges=True)
    return begins_with(tokenizer, "<|begin_of_text|>")


def qwen2(texts):
    tokenizer = byte_level(texts, [split(QWEN2)], ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], normalizers.NFC())
    tokenizer.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("</tool_call>", normalized=False)])
    return tokenizer


def mistral_tekken(texts):
    return begins_with(byte_level(texts, [split(TEKKEN)], ["<s>", "</s>", "[INST]"], ignore_merges=True), "<s>")


def olmo2(texts):
    tokenizer = byte_level(texts, [split(LLAMA3)], ["<|endoftext|>", "<|pad|>"])
    tokenizer.add_tokens([AddedToken("|||IP_ADDRESS|||", normalized=False), AddedToken(" " * 24, normalized=True), AddedToken(" " * 12, normalized=True)])
    return tokenizer


def deepseek3(texts):
    steps = [split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(DEEPSEEK)]
    tokenizer = byte_level(texts, steps, ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"])
    return begins_with(tokenizer, "<｜begin▁of▁sentence｜>")


def gpt_oss(texts):
    return byte_level(texts, [split(O200K)], ["<|endoftext|>", "<|start|>", "<|return|>"])


def digits(texts):
    tokenizer = byte_level(texts, [pre_tokenizers.Digits(individual_digits=False), split(GPT2, "merged_with_next")], ["<end>"], normalizers.NFKC())
    return tokenizer


# Words with the spaces before them.
WORDS = "▁+[^▁]*|[^▁]+"
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def with_bytes(tokenizer, texts, pieces, special):
    """A model with byte fallback: trained on `pieces` of the texts, without a pre-tokenizer."""
    base = Tokenizer(models.BPE())
    base.normalizer = tokenizer.normalizer
    base.pre_tokenizer = pieces
    trained(base, texts, [*special, *BYTES])
    model = json.loads(base.to_str())["model"]
    merges = [tuple(pair) for pair in model["merges"]]
    tokenizer.model = models.BPE(model["vocab"], merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    tokenizer.add_special_tokens(list(special))
    return tokenizer


def llama2(texts):
    """The space before the text comes from the normalizer, and nothing divides it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    with_bytes(tokenizer, texts, split(WORDS), ["<unk>", "<s>", "</s>"])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s> $B", [("<s>", tokenizer.token_to_id("<s>"))])
    return tokenizer


def phi3(texts):
    tokenizer = llama2(texts)
    tokenizer.add_special_tokens([AddedToken("<|user|>", rstrip=True, normalized=False), AddedToken("<|end|>", rstrip=True, normalized=False),
                                  AddedToken("<|placeholder|>", rstrip=True, lstrip=True, normalized=False)])
    return tokenizer


def mistral(texts):
    """The newer form of Llama 2's: Metaspace adds the space, only at the start."""
    tokenizer = Tokenizer(models.BPE())
    with_bytes(tokenizer, texts, pre_tokenizers.Metaspace(prepend_scheme="always"), ["<unk>", "<s>", "</s>"])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s> $B", [("<s>", tokenizer.token_to_id("<s>"))])
    return tokenizer


def gemma(texts):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    with_bytes(tokenizer, texts, split(WORDS), ["<pad>", "<eos>", "<bos>", "<unk>"])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.add_tokens([AddedToken("\n" * n, normalized=False) for n in range(2, 6)] + [AddedToken("▁" * n, normalized=True) for n in range(2, 6)] +
                         [AddedToken("<table>", normalized=False)])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.post_processor = processors.TemplateProcessing("<bos> $A", "<bos> $A <bos> $B", [("<bos>", tokenizer.token_to_id("<bos>"))])
    return tokenizer


def joins_words(texts):
    """Merges cross spaces, so that the text cannot be divided at them."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    return with_bytes(tokenizer, texts, split(r"\p{N}"), ["<unk>"])


def first_space(texts):
    """A space before the first word only, although other steps divide the text."""
    tokenizer = mistral(texts)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(True), pre_tokenizers.Metaspace(prepend_scheme="first")])
    return tokenizer


def unknown(fuse):
    def make(texts):
        """Characters that are not in the vocabulary."""
        tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=fuse))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        tokenizer.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.Strip(), normalizers.Lowercase()])
        trained(tokenizer, [text.encode("ascii", "ignore").decode() for text in texts], ["<unk>"])
        tokenizer.add_tokens([AddedToken("word", single_word=True), AddedToken("İstanbul", normalized=True, lstrip=True, rstrip=True)])
        return tokenizer
    return make


def behavior(name, invert):
    def make(texts):
        tokenizer = Tokenizer(models.BPE())
        tokenizer.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.Replace(Regex(r"\d+"), "0"), normalizers.Replace("a", "aa")])
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"\p{P}|\s*"), name, invert), pre_tokenizers.Metaspace(prepend_scheme="always", split=name != "removed")])
        tokenizer.decoder = decoders.Metaspace()
        return trained(tokenizer, texts, ["<unk>"])
    return make


FAMILIES = {
    "gpt2": gpt2, "prefix_space": prefix_space, "llama2": llama2, "llama3": llama3, "mistral": mistral, "mistral_tekken": mistral_tekken,
    "qwen2": qwen2, "gemma": gemma, "olmo2": olmo2, "phi3": phi3, "deepseek3": deepseek3, "gpt_oss": gpt_oss, "digits": digits,
    "joins_words": joins_words, "first_space": first_space, "unknown_fused": unknown(True), "unknown_single": unknown(False),
    **{f"{name}{'_inverted' if invert else ''}": behavior(name, invert)
       for name in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous") for invert in (False, True)},
}
